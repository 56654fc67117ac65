package cli

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"time"

	"coworker/platform/audit"
	"coworker/platform/paths"
	"coworker/platform/redact"
	"coworker/platform/sqlite"
)

// record is the open audit log.
type record struct {
	db  *sqlite.DB
	log *audit.Log
}

// openLog opens the log, and makes it if it is the first time.
func openLog(ctx context.Context, d paths.Dirs, redactor *redact.Redactor, now func() time.Time) (*record, error) {
	if err := d.Make(); err != nil {
		return nil, err
	}
	db, err := sqlite.Open(ctx, filepath.Join(d.State, "coworker.db"), audit.Schema1)
	if err != nil {
		return nil, err
	}
	log, err := audit.Open(ctx, db, audit.Config{KeyFile: filepath.Join(d.State, "audit.key"), Redactor: redactor, Now: now})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &record{db: db, log: log}, nil
}

// rowJSON is how rows look in --json output: the stored record, byte by byte, has the same names.
func rowJSON(row audit.Row) map[string]any {
	fields := map[string]any{"seq": row.Seq, "time": row.Time.UTC().Format(time.RFC3339Nano), "leaf": row.Leaf.String()}
	for name, value := range map[string]string{
		"session": row.Session, "parent": row.Parent, "actor": row.Actor, "approver": row.Approver, "agent": row.Agent,
		"workspace": row.Workspace, "connector": row.Connector, "tool": row.Tool, "stage": row.Stage, "status": row.Status,
		"verdict_source": row.VerdictSource, "rule": row.Rule, "reason": row.Reason, "action_digest": row.ActionDigest,
		"result_digest": row.ResultDigest, "preview": row.Preview, "resource": row.Resource, "call_id": row.CallID,
		"level": row.Level, "attestation": row.Attestation,
	} {
		if value != "" {
			fields[name] = value
		}
	}
	if len(row.Walls) > 0 {
		fields["walls"] = row.Walls
	}
	if raw, ok := row.Args.(json.RawMessage); ok {
		fields["args"] = raw
	}
	return fields
}
