package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"coworker/enforce"
	"coworker/platform/audit"
	"coworker/platform/paths"
	"coworker/platform/redact"
	"coworker/runtime/session"
)

// openRecord is openLog for a caller that must not act without a record.
func openRecord(ctx context.Context, d paths.Dirs, redactor *redact.Redactor, now func() time.Time) (*record, error) {
	r, err := openLog(ctx, d, redactor, now)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", audit.ErrNotRecorded, err)
	}
	return r, nil
}

// recorder turns what a session reports into rows. The log is opened while the cell starts, and the row of a
// session that started is stored in one commit with the next one: nothing has run in between.
type recorder struct {
	open   func() (*record, error) // opens once; later calls give the same answer
	redact *redact.Redactor
	fields audit.Row // what all rows have in common
	opened sync.WaitGroup

	mu       sync.Mutex
	document []byte // attestation that no row names yet
	pending  []audit.Row
	session  string
}

// newRecorder begins to open the log. fields are common to all rows.
func newRecorder(ctx context.Context, d paths.Dirs, redactor *redact.Redactor, now func() time.Time, fields audit.Row) *recorder {
	r := &recorder{redact: redactor, fields: fields}
	r.open = sync.OnceValues(func() (*record, error) { return openRecord(ctx, d, redactor, now) })
	r.opened.Go(func() { r.open() })
	return r
}

// Attest implements session.Recorder. The document is stored with the first row that names it.
func (r *recorder) Attest(_ context.Context, document []byte) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sum := sha256.Sum256(document)
	r.document = document
	return hex.EncodeToString(sum[:]), nil
}

// Record implements session.Recorder.
func (r *recorder) Record(ctx context.Context, attestation string, events ...session.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	started := true
	for _, ev := range events {
		r.pending = append(r.pending, r.row(attestation, ev))
		// Neither announces anything: it is enough that they are stored with the next row, or at the end.
		started = started && (ev.Stage == "start" && ev.Status == "ok" || ev.Status == session.Ran)
	}
	if started {
		return nil
	}
	return r.store(ctx)
}

// flush makes everything durable that was reported so far.
func (r *recorder) flush(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.store(ctx)
}

// name sets the session of rows that are stored from now on.
func (r *recorder) name(session string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.session = session
}

func (r *recorder) store(ctx context.Context) error {
	if len(r.pending) == 0 {
		return nil
	}
	rec, err := r.open()
	if err != nil {
		return err
	}
	if err := putAttestation(ctx, rec.log, r.document, r.pending[0].Attestation); err != nil {
		return err
	}
	r.document = nil
	for i := range r.pending {
		if r.pending[i].Session == "" {
			r.pending[i].Session = r.session
		}
	}
	if _, err := rec.log.Append(ctx, r.pending...); err != nil {
		return err
	}
	r.pending = nil
	return nil
}

// putAttestation stores a document unless it is there: two sessions with the same walls have the same one, and a
// read is cheaper than a commit.
func putAttestation(ctx context.Context, log *audit.Log, document []byte, id string) error {
	if document == nil {
		return nil
	}
	_, err := log.Attestation(ctx, id)
	if errors.Is(err, audit.ErrNoAttestation) || id == "" {
		_, err = log.PutAttestation(ctx, document)
	}
	return err
}

// close ends the use of the log. Every row was durable when it was stored; see sqlite.DB.Leave.
func (r *recorder) close() {
	r.opened.Wait()
	if rec, err := r.open(); err == nil {
		rec.db.Leave()
	}
}

func (r *recorder) row(attestation string, ev session.Event) audit.Row {
	row := r.fields
	row.Time = time.Now()
	row.Stage, row.Status, row.Reason = ev.Stage, ev.Status, ev.Reason
	row.Resource, row.CallID = ev.Resource, ev.CallID
	row.Level, row.Attestation = ev.Level.String(), attestation
	row.Walls = verifiedWalls(ev.Walls)
	if isSHA256(ev.Result) {
		row.ResultDigest = ev.Result
	} else {
		row.Preview = ev.Result
	}
	row.Rule = ev.Rule
	if ev.Stage == "ask" && ev.Status == "allow" {
		row.Approver = row.Actor
	}
	if len(ev.Args) > 0 {
		row.Args = r.redact.Args(ev.Args)
	}
	if ev.Source != "" {
		row.VerdictSource = string(ev.Source)
	}
	if ev.Flow != nil {
		row.Args, row.VerdictSource = flowArgs(*ev.Flow), "rule"
	}
	if ev.Stage == "exec" && ev.Status != session.Ran {
		row.ActionDigest = actionDigest(ev.Args, row.Workspace)
	}
	return row
}

// actionDigest names exactly what ran where: arguments may hold any byte but NUL.
func actionDigest(argv []string, dir string) string {
	sum := sha256.Sum256([]byte(strings.Join(argv, "\x00") + "\x00\x00" + dir))
	return hex.EncodeToString(sum[:])
}

func isSHA256(s string) bool {
	return len(s) == 2*sha256.Size && strings.Trim(s, "0123456789abcdef") == ""
}

func verifiedWalls(states map[enforce.Wall]enforce.WallState) []string {
	var out []string
	for _, w := range enforce.Walls() {
		if states[w].Verified {
			out = append(out, string(w))
		}
	}
	return out
}

// secretsOf are the values that must not reach the record: variables whose name says secret, and those that a
// person named as one.
func secretsOf(environ, named []string) []redact.Secret {
	var out []redact.Secret
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if value != "" && (redact.Key(name) || slices.Contains(named, name)) {
			out = append(out, redact.Secret{Name: name, Value: value})
		}
	}
	return out
}
