package cli

import (
	"context"
	"errors"
	"fmt"
	"os/user"
	"strings"

	"coworker/platform/audit"
	"coworker/platform/redact"
	"coworker/platform/secret"
	"coworker/platform/secret/store"
)

// changeSecrets carries out one change and puts it on record. The record is opened first: where it cannot be written,
// nothing is changed. change returns the entries that it added or took away; their values, like those of the store, are
// redacted in what is written.
func (e *environment) changeSecrets(ctx context.Context, stage string, change func(*store.Store) ([]secret.Entry, error)) (err error) {
	s, d, err := e.openSecrets()
	if err != nil {
		return err
	}
	rec, err := openLog(ctx, d, redact.New(), e.now)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rec.db.Close()) }()
	changed, err := change(s)
	if len(changed) == 0 {
		return err
	}
	// From here on the store has changed, so there is a row, also if the result could not be printed.
	kept, readErr := s.Entries()
	rec.log.SetRedactor(redact.New(secret.Redactions(append(kept, changed...))...))
	if _, recordErr := rec.log.Append(ctx, secretRows(stage, changed)...); recordErr != nil {
		recordErr = fmt.Errorf("the secrets were changed (%s), but that is not on record: %w", stage, recordErr)
		return errors.Join(recordErr, err)
	}
	return errors.Join(err, readErr)
}

func secretRows(stage string, entries []secret.Entry) []audit.Row {
	actor := ""
	if u, err := user.Current(); err == nil {
		actor = u.Username
	}
	var rows []audit.Row
	for _, one := range entries {
		rows = append(rows, audit.Row{
			Actor: actor, Tool: "secrets", Stage: stage, Status: "ok", VerdictSource: "person",
			Resource: strings.TrimSpace(one.Name + " " + one.Binding.Resource()),
		})
	}
	return rows
}
