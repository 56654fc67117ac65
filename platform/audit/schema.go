package audit

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"coworker/platform/sqlite"
)

// schema is compared with the database by Verify, so each statement is written
// exactly as SQLite stores it.
//
// A row is its record, the bytes that are hashed. The columns are computed from
// it and cannot disagree with it. hashes holds the tree nodes that the row
// completes, from the leaf upwards: one insert per row, and the node (level, n)
// is found in row (n+1)<<level. It stands before record so that reading it
// never touches the overflow pages of a long record.
var schema = []string{
	`CREATE TABLE audit_row (
	seq INTEGER PRIMARY KEY,
	hashes BLOB NOT NULL,
	record TEXT NOT NULL,
	time TEXT AS (record ->> 'time') VIRTUAL,
	session TEXT AS (record ->> 'session') VIRTUAL,
	parent TEXT AS (record ->> 'parent') VIRTUAL,
	actor TEXT AS (record ->> 'actor') VIRTUAL,
	workspace TEXT AS (record ->> 'workspace') VIRTUAL,
	connector TEXT AS (record ->> 'connector') VIRTUAL,
	tool TEXT AS (record ->> 'tool') VIRTUAL,
	stage TEXT AS (record ->> 'stage') VIRTUAL,
	status TEXT AS (record ->> 'status') VIRTUAL,
	call_id TEXT AS (record ->> 'call_id') VIRTUAL
) STRICT`,
	`CREATE INDEX audit_row_session ON audit_row (session)`,
	`CREATE TABLE audit_head (id INTEGER PRIMARY KEY CHECK (id = 1), note TEXT NOT NULL) STRICT`,
	`CREATE TABLE audit_checkpoint (size INTEGER PRIMARY KEY, note TEXT NOT NULL) STRICT`,
	`CREATE TABLE audit_attestation (id TEXT PRIMARY KEY, json TEXT NOT NULL) STRICT, WITHOUT ROWID`,
}

// Schema1 makes the tables of the log.
var Schema1 = sqlite.Migration{Name: "audit log", SQL: strings.Join(schema, ";\n")}

// checkSchema finds a table that was redefined or a trigger that was added: a
// trigger can drop rows on their way in without leaving a trace in the tree.
func checkSchema(ctx context.Context, tx *sql.Tx) error {
	rows, err := tx.QueryContext(ctx, `SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL
		AND (tbl_name LIKE 'audit\_%' ESCAPE '\' OR type IN ('trigger', 'view') AND sql LIKE '%audit\_%' ESCAPE '\')`)
	if err != nil {
		return err
	}
	defer rows.Close()
	var have []string
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return err
		}
		have = append(have, text)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, text := range have {
		if !slices.Contains(schema, text) {
			return &TamperError{Reason: fmt.Sprintf("the database holds a definition that is not ours: %s", cut(text, 200))}
		}
	}
	if len(have) != len(schema) {
		return &TamperError{Reason: fmt.Sprintf("%d of %d definitions of the log are there", len(have), len(schema))}
	}
	return nil
}
