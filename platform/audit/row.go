package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/mod/sumdb/tlog"

	"coworker/platform/redact"
)

// Row is one event. Strings are short facts; whatever a tool or a person wrote
// goes into Args, Reason and Preview. All of it is redacted by Append.
type Row struct {
	Seq  int64     // position from 1; set by Append
	Time time.Time // when it happened; the zero time is replaced by the clock of the log

	Session   string
	Parent    string // session or call this one belongs to
	Actor     string // who caused it: a person, the agent, a schedule
	Approver  string // who allowed it, where a person did
	Agent     string
	Workspace string
	Connector string
	Tool      string
	Stage     string // what kind of event: proposed, started, finished, …
	Status    string // how it went: ok, error, denied, …

	VerdictSource string // what decided: floor, rule, person, reviewer, …
	Rule          string
	Reason        string

	ActionDigest string // SHA-256 of the exact action, 64 hexadecimal digits
	Args         any    // JSON-like value; json.RawMessage when read back
	ResultDigest string // like ActionDigest
	Preview      string // the start of the result
	Resource     string // what was acted on: a path, a URL
	CallID       string

	TokensIn, TokensOut, TokensCache int64

	Level       string   // level of the walls it ran behind
	Walls       []string // walls that were verified
	Attestation string   // id from PutAttestation

	Leaf tlog.Hash // hash of the stored row in the Merkle tree; set when read
}

// Bounds of a stored row. Longer text is cut, and says so.
const (
	maxText  = 4 << 10
	maxArgs  = 64 << 10
	maxWalls = 64
	// maxInput is how much of a text is looked at before it is cut.
	maxInput = 1 << 20
	// maxRecord is above what the bounds allow after JSON escaping.
	maxRecord = 2 << 20
)

// version is the first member of each record. A new encoding gets a new number
// and the old one stays readable: hashes cover these bytes for ever.
const version = 1

// timeLayout has a fixed width, so that times order like their text.
const timeLayout = "2006-01-02T15:04:05.000000000Z"

// record is the stored form. Field order is part of the encoding. The first
// two members are written by seal, because the sequence number is known only
// under the write lock.
type record struct {
	V   int   `json:"v,omitempty"`
	Seq int64 `json:"seq,omitempty"`
	body
}

type body struct {
	Time          string          `json:"time"`
	Session       string          `json:"session,omitempty"`
	Parent        string          `json:"parent,omitempty"`
	Actor         string          `json:"actor,omitempty"`
	Approver      string          `json:"approver,omitempty"`
	Agent         string          `json:"agent,omitempty"`
	Workspace     string          `json:"workspace,omitempty"`
	Connector     string          `json:"connector,omitempty"`
	Tool          string          `json:"tool,omitempty"`
	Stage         string          `json:"stage,omitempty"`
	Status        string          `json:"status,omitempty"`
	VerdictSource string          `json:"verdict_source,omitempty"`
	Rule          string          `json:"rule,omitempty"`
	Reason        string          `json:"reason,omitempty"`
	ActionDigest  string          `json:"action_digest,omitempty"`
	Args          json.RawMessage `json:"args,omitempty"`
	ResultDigest  string          `json:"result_digest,omitempty"`
	Preview       string          `json:"preview,omitempty"`
	Resource      string          `json:"resource,omitempty"`
	CallID        string          `json:"call_id,omitempty"`
	TokensIn      int64           `json:"tokens_in,omitempty"`
	TokensOut     int64           `json:"tokens_out,omitempty"`
	TokensCache   int64           `json:"tokens_cache,omitempty"`
	Level         string          `json:"level,omitempty"`
	Walls         []string        `json:"walls,omitempty"`
	Attestation   string          `json:"attestation,omitempty"`
}

// encodeBody redacts a row, cuts it to the bounds and encodes all of it but
// version and sequence. Bytes that are not UTF-8 become U+FFFD.
func encodeBody(r *redact.Redactor, row Row) ([]byte, error) {
	for _, d := range []struct{ name, value string }{
		{"action digest", row.ActionDigest}, {"result digest", row.ResultDigest}, {"attestation id", row.Attestation},
	} {
		// Checked instead of redacted: a digest looks like a secret.
		if d.value != "" && !isDigest(d.value) {
			return nil, fmt.Errorf("audit row: %s %q is not 64 hexadecimal digits", d.name, cut(d.value, 80))
		}
	}
	if y := row.Time.UTC().Year(); y < 1 || y > 9999 {
		return nil, fmt.Errorf("audit row: year %d cannot be written", y)
	}
	args, err := encodeArgs(r, row.Args)
	if err != nil {
		return nil, err
	}
	text := func(s string) string { return clean(r, s) }
	b := body{
		Time: row.Time.UTC().Format(timeLayout), Session: text(row.Session), Parent: text(row.Parent),
		Actor: text(row.Actor), Approver: text(row.Approver), Agent: text(row.Agent), Workspace: text(row.Workspace),
		Connector: text(row.Connector), Tool: text(row.Tool), Stage: text(row.Stage), Status: text(row.Status),
		VerdictSource: text(row.VerdictSource), Rule: text(row.Rule), Reason: text(row.Reason),
		ActionDigest: row.ActionDigest, Args: args, ResultDigest: row.ResultDigest, Preview: text(row.Preview),
		Resource: text(row.Resource), CallID: text(row.CallID),
		TokensIn: row.TokensIn, TokensOut: row.TokensOut, TokensCache: row.TokensCache,
		Level: text(row.Level), Attestation: row.Attestation,
	}
	for _, w := range row.Walls[:min(len(row.Walls), maxWalls)] {
		b.Walls = append(b.Walls, cut(text(w), 128))
	}
	return marshal(b)
}

// encodeArgs returns nil for no arguments. Arguments that are too long are
// stored as the start of their text.
func encodeArgs(r *redact.Redactor, args any) (json.RawMessage, error) {
	if args == nil {
		return nil, nil
	}
	raw, err := marshal(r.Value(args))
	if err != nil {
		return nil, fmt.Errorf("audit row: arguments: %w", err)
	}
	if len(raw) > maxArgs {
		return marshal(cut(string(raw), maxArgs/2))
	}
	if string(raw) == "null" {
		return nil, nil
	}
	return raw, nil
}

// clean redacts, then cuts: the other order could cut a secret into a piece
// that no detector knows.
func clean(r *redact.Redactor, s string) string {
	if s == "" {
		return ""
	}
	if len(s) <= maxInput {
		return cut(strings.ToValidUTF8(r.String(s), "\ufffd"), maxText)
	}
	// The same problem at the far end of what is looked at: drop what a
	// secret could have been cut in.
	seen := r.String(s[:maxInput])
	seen = seen[:max(0, len(seen)-maxText)]
	return cut(strings.ToValidUTF8(seen, "\ufffd")+" ", min(maxText, len(seen)))
}

// cut shortens s to about n bytes, at a character, and says by how much.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "… [" + strconv.Itoa(len(s)-n) + " bytes cut]"
}

func isDigest(s string) bool {
	if len(s) != 64 {
		return false
	}
	return strings.Trim(s, "0123456789abcdef") == ""
}

// marshal encodes compactly and leaves <, > and & readable.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// prefix is how the record of a row begins.
func prefix(seq int64) string {
	return `{"v":` + strconv.Itoa(version) + `,"seq":` + strconv.FormatInt(seq, 10) + `,`
}

// seal puts version and sequence in front of an encoded body.
func seal(seq int64, body []byte) []byte {
	return append([]byte(prefix(seq)), body[1:]...)
}

// decodeRow reads a record. It accepts exactly what Append writes: a second
// spelling of the same row would let two readers disagree about it.
func decodeRow(data []byte) (Row, error) {
	if len(data) > maxRecord {
		return Row{}, fmt.Errorf("audit row: %d bytes, at most %d are possible", len(data), maxRecord)
	}
	var rec record
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&rec); err != nil {
		return Row{}, fmt.Errorf("audit row: %w", err)
	}
	if rec.V != version {
		return Row{}, fmt.Errorf("audit row: encoding version %d is not known", rec.V)
	}
	if rec.Seq < 1 {
		return Row{}, fmt.Errorf("audit row: sequence %d", rec.Seq)
	}
	again, err := marshal(rec)
	if err != nil {
		return Row{}, fmt.Errorf("audit row: %w", err)
	}
	if !bytes.Equal(again, data) {
		return Row{}, errors.New("audit row: the encoding is not canonical")
	}
	when, err := time.Parse(timeLayout, rec.Time)
	if err != nil || when.Format(timeLayout) != rec.Time {
		return Row{}, fmt.Errorf("audit row: time %q", cut(rec.Time, 80))
	}
	return rec.row(when, data), nil
}

func (rec record) row(when time.Time, data []byte) Row {
	row := Row{
		Seq: rec.Seq, Time: when, Session: rec.Session, Parent: rec.Parent, Actor: rec.Actor, Approver: rec.Approver,
		Agent: rec.Agent, Workspace: rec.Workspace, Connector: rec.Connector, Tool: rec.Tool, Stage: rec.Stage, Status: rec.Status,
		VerdictSource: rec.VerdictSource, Rule: rec.Rule, Reason: rec.Reason,
		ActionDigest: rec.ActionDigest, ResultDigest: rec.ResultDigest, Preview: rec.Preview, Resource: rec.Resource, CallID: rec.CallID,
		TokensIn: rec.TokensIn, TokensOut: rec.TokensOut, TokensCache: rec.TokensCache,
		Level: rec.Level, Walls: rec.Walls, Attestation: rec.Attestation, Leaf: tlog.RecordHash(data),
	}
	if rec.Args != nil {
		row.Args = rec.Args
	}
	return row
}
