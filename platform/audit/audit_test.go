package audit

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"coworker/platform/redact"
	"coworker/platform/sqlite"
)

var clock = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC) }

func config(dir string) Config {
	return Config{KeyFile: filepath.Join(dir, "audit.key"), Redactor: redact.New(redact.Secret{Name: "K", Value: "hunter22"}), Now: clock}
}

// openIn opens the log of a folder and closes it with the test.
func openIn(tb testing.TB, dir string) (*Log, *sqlite.DB) {
	tb.Helper()
	ctx := context.Background()
	db, err := sqlite.Open(ctx, filepath.Join(dir, "coworker.db"), Schema1)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Error(err)
		}
	})
	l, err := Open(ctx, db, config(dir))
	if err != nil {
		tb.Fatal(err)
	}
	return l, db
}

// fillLog appends n rows in commits of at most 7.
func fillLog(tb testing.TB, l *Log, n int) {
	tb.Helper()
	for n > 0 {
		rows := make([]Row, min(n, 7))
		for i := range rows {
			rows[i] = Row{Session: "s1", Tool: "exec", Stage: "finished", Args: map[string]any{"n": n - i}}
		}
		if _, err := l.Append(context.Background(), rows...); err != nil {
			tb.Fatal(err)
		}
		n -= len(rows)
	}
}

func change(t *testing.T, db *sqlite.DB, statements ...string) {
	t.Helper()
	ctx := context.Background()
	if err := db.Write(ctx, func(tx *sql.Tx) error {
		for _, s := range statements {
			if _, err := tx.ExecContext(ctx, s); err != nil {
				return fmt.Errorf("%s: %w", s, err)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func TestAppendAndRead(t *testing.T) {
	ctx := context.Background()
	l, _ := openIn(t, t.TempDir())
	digest := strings.Repeat("ab", 32)
	full := Row{
		Time: time.Date(2026, 5, 6, 7, 8, 9, 0, time.FixedZone("x", 3600)), Session: "s", Parent: "p", Actor: "ada", Approver: "bob", Agent: "main",
		Workspace: "/w\n<é>", Connector: "mcp", Tool: "exec", Stage: "finished", Status: "ok", VerdictSource: "rule", Rule: "r1", Reason: "because",
		ActionDigest: digest, Args: []string{"login", "--token", "t0ken", "hunter22"}, ResultDigest: digest, Preview: "password=abc", Resource: "https://u:p@h/", CallID: "c1",
		TokensIn: 1, TokensOut: 2, TokensCache: 3, Level: "enforced", Walls: []string{"read", "write"}, Attestation: digest,
	}
	first, err := l.Append(ctx, full, Row{Stage: "second"})
	if err != nil || first != 1 {
		t.Fatalf("first = %d, %v", first, err)
	}
	got, err := l.Get(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	want := full
	want.Seq, want.Time, want.Leaf = 1, full.Time.UTC(), got.Leaf
	want.Args = json.RawMessage(`["login","--token","[redacted:token]","[redacted:K]"]`)
	want.Preview, want.Resource = "password=[redacted:password]", "https://[redacted:url-credentials]@h/"
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	second, err := l.Get(ctx, 2)
	if err != nil || second.Time != clock() || second.Args != nil {
		t.Errorf("second = %+v, %v", second, err)
	}
	if _, err := l.Get(ctx, 3); !errors.Is(err, ErrNoRow) {
		t.Errorf("Get(3): %v, want ErrNoRow", err)
	}
	// Nothing may be left anywhere in the files.
	if v, err := l.Verify(ctx); err != nil || v.Rows != 2 {
		t.Errorf("Verify = %+v, %v", v, err)
	}
}

func TestNoSecretReachesTheDisk(t *testing.T) {
	dir := t.TempDir()
	l, _ := openIn(t, dir)
	s := "hunter22"
	row := Row{Session: s, Parent: s, Actor: s, Approver: s, Agent: s, Workspace: s, Connector: s, Tool: s, Stage: s, Status: s, VerdictSource: s,
		Rule: s, Reason: s, Args: map[string]any{s: []any{s, map[string]string{"a": s}}}, Preview: strings.Repeat("x", maxText-4) + s, Resource: s, CallID: s, Level: s, Walls: []string{s}}
	// Every field of the type that can hold text is in the row above, so a
	// new field fails here until it is redacted.
	v := reflect.ValueOf(row)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if v.Field(i).Kind() == reflect.String && v.Field(i).IsZero() && !strings.HasSuffix(name, "Digest") && name != "Attestation" {
			t.Errorf("field %s is not covered", name)
		}
	}
	if _, err := l.Append(context.Background(), row); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(context.Background(), Row{ActionDigest: s}); !errors.Is(err, ErrNotRecorded) {
		t.Errorf("a digest that is none was taken: %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte("hunte")) {
			t.Errorf("%s holds the secret or a piece of it", e.Name())
		}
		if info, _ := e.Info(); runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", e.Name(), info.Mode().Perm())
		}
	}
}

func TestSetRedactor(t *testing.T) {
	ctx := context.Background()
	l, _ := openIn(t, t.TempDir())
	l.SetRedactor(redact.New(redact.Secret{Name: "NEW", Value: "correct horse"}))
	if _, err := l.Append(ctx, Row{Preview: "a correct horse"}); err != nil {
		t.Fatal(err)
	}
	if row, err := l.Get(ctx, 1); err != nil || row.Preview != "a [redacted:NEW]" {
		t.Errorf("preview = %q, %v", row.Preview, err)
	}
}

func TestRowIsBounded(t *testing.T) {
	ctx := context.Background()
	l, _ := openIn(t, t.TempDir())
	huge := strings.Repeat("é<\x00", 1<<20)
	walls := make([]string, 1000)
	if _, err := l.Append(ctx, Row{Preview: huge, Args: []string{huge}, Walls: walls, Reason: huge[:maxInput]}); err != nil {
		t.Fatal(err)
	}
	row, err := l.Get(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(row.Preview) > maxText+64 || !strings.HasSuffix(row.Preview, "bytes cut]") || len(row.Walls) != maxWalls || len(row.Args.(json.RawMessage)) > 6*maxArgs {
		t.Errorf("not bounded: preview %d, walls %d, args %d", len(row.Preview), len(row.Walls), len(row.Args.(json.RawMessage)))
	}
}

// The tree must be the one that the library computes from the leaves alone.
func TestTreeMatchesLibrary(t *testing.T) {
	ctx := context.Background()
	l, db := openIn(t, t.TempDir())
	var stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(indexes []int64) (out []tlog.Hash, err error) {
		for _, i := range indexes {
			out = append(out, stored[i])
		}
		return out, nil
	})
	for n := range int64(70) {
		fillLog(t, l, 1)
		row, err := l.Get(ctx, n+1)
		if err != nil {
			t.Fatal(err)
		}
		hs, err := tlog.StoredHashesForRecordHash(n, row.Leaf, reader)
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, hs...)
		want, err := tlog.TreeHash(n+1, reader)
		if err != nil {
			t.Fatal(err)
		}
		c, err := l.Checkpoint(ctx)
		if err != nil || c.Root != want || c.Size != n+1 {
			t.Fatalf("size %d: checkpoint %+v, %v; want root %v", n+1, c, err, want)
		}
		if err := db.Read(ctx, func(tx *sql.Tx) error {
			got, err := tlog.TreeHash(n+1, nodes{ctx, tx})
			if err != nil || got != want {
				return fmt.Errorf("stored nodes give %v, %w", got, err)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestList(t *testing.T) {
	ctx := context.Background()
	l, _ := openIn(t, t.TempDir())
	var rows []Row
	for i := range 20 {
		rows = append(rows, Row{Session: fmt.Sprint("s", i%2), Tool: fmt.Sprint("t", i%5), Stage: "x", Time: clock().Add(time.Duration(i) * time.Minute)})
	}
	if _, err := l.Append(ctx, rows...); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		filter Filter
		want   []int64
	}{
		{"newest first", Filter{Limit: 3}, []int64{20, 19, 18}},
		{"oldest first", Filter{Limit: 2, Oldest: true}, []int64{1, 2}},
		{"session and tool", Filter{Session: "s1", Tool: "t3"}, []int64{14, 4}},
		{"nothing", Filter{Session: "' OR 1 --"}, nil},
		{"time", Filter{Since: clock().Add(3 * time.Minute), Until: clock().Add(5 * time.Minute)}, []int64{5, 4}},
		{"page", Filter{After: 4, Before: 7}, []int64{6, 5}},
	} {
		got, err := l.List(ctx, tt.filter)
		if err != nil {
			t.Fatal(err)
		}
		var seqs []int64
		for _, r := range got {
			seqs = append(seqs, r.Seq)
		}
		if !reflect.DeepEqual(seqs, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, seqs, tt.want)
		}
	}
}

func TestExportCanBeVerifiedWithoutUs(t *testing.T) {
	ctx := context.Background()
	l, _ := openIn(t, t.TempDir())
	fillLog(t, l, 9)
	var out bytes.Buffer
	if err := l.Export(ctx, &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	var last struct{ Checkpoint string }
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatal(err)
	}
	c, err := ParseCheckpoint(last.Checkpoint)
	if err != nil || c.Verify(l.PublicKey()) != nil {
		t.Fatalf("checkpoint: %v", err)
	}
	var e edge
	for _, line := range lines[:len(lines)-1] {
		e.add(sha256.Sum256([]byte("\x00"+line)), nil)
	}
	if e.size != 9 || e.root() != c.Root {
		t.Errorf("the export of %d rows does not have the signed root", e.size)
	}
}

func TestAttestations(t *testing.T) {
	ctx := context.Background()
	l, db := openIn(t, t.TempDir())
	id, err := l.PutAttestation(ctx, []byte(`{"a":1}`))
	if err != nil {
		t.Fatal(err)
	}
	first, other, err := l.AppendAttested(ctx, []byte(`{"b":2}`), Row{Stage: "x"}, Row{Stage: "y", Attestation: id})
	if err != nil || first != 1 {
		t.Fatalf("AppendAttested = %d, %v", first, err)
	}
	rows, err := l.List(ctx, Filter{})
	if err != nil || len(rows) != 2 || rows[1].Attestation != other || rows[0].Attestation != id {
		t.Errorf("rows = %+v, %v", rows, err)
	}
	again, err := l.PutAttestation(ctx, []byte(`{"a":1}`))
	if err != nil || again != id {
		t.Fatalf("second put: %s, %v", again, err)
	}
	if got, err := l.Attestation(ctx, id); err != nil || string(got) != `{"a":1}` {
		t.Errorf("got %s, %v", got, err)
	}
	if _, err := l.Attestation(ctx, "x"); !errors.Is(err, ErrNoAttestation) {
		t.Errorf("unknown id: %v", err)
	}
	if _, err := l.PutAttestation(ctx, []byte(`{`)); err == nil {
		t.Error("broken JSON was taken")
	}
	if v, err := l.Verify(ctx); err != nil || v.Rows != 2 {
		t.Errorf("Verify = %+v, %v", v, err)
	}
	change(t, db, `UPDATE audit_attestation SET json = '{"a":2}'`)
	if _, err := l.Attestation(ctx, id); !errors.Is(err, ErrTampered) {
		t.Errorf("changed attestation: %v", err)
	}
}

func TestAppendFromManyGoroutines(t *testing.T) {
	ctx := context.Background()
	l, _ := openIn(t, t.TempDir())
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 20 {
				if _, err := l.Append(ctx, Row{Session: fmt.Sprint(g), CallID: fmt.Sprint(i)}); err != nil {
					t.Error(err)
				}
				if i%5 == 0 {
					if _, err := l.Checkpoint(ctx); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if v, err := l.Verify(ctx); err != nil || v.Rows != 160 {
		t.Errorf("Verify = %+v, %v", v, err)
	}
}

func TestCancelledAppendStoresNothing(t *testing.T) {
	l, _ := openIn(t, t.TempDir())
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := l.Append(ctx, Row{Stage: "x"}); !errors.Is(err, ErrNotRecorded) || !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v", err)
	}
	if v, err := l.Verify(context.Background()); err != nil || v.Rows != 0 {
		t.Errorf("Verify = %+v, %v", v, err)
	}
}

func TestProof(t *testing.T) {
	ctx := context.Background()
	l, _ := openIn(t, t.TempDir())
	fillLog(t, l, 37)
	pub, err := ParsePublicKey(FormatPublicKey(l.PublicKey()))
	if err != nil {
		t.Fatal(err)
	}
	for seq := int64(1); seq <= 37; seq++ {
		p, err := l.Prove(ctx, seq)
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if p, err = ParseProof(data); err != nil {
			t.Fatal(err)
		}
		if row, c, err := VerifyProof(p, pub); err != nil || row.Seq != seq || c.Size != 37 {
			t.Fatalf("row %d: %+v, %+v, %v", seq, row, c, err)
		}
	}
	if _, err := l.Prove(ctx, 38); !errors.Is(err, ErrNoRow) {
		t.Errorf("row 38: %v", err)
	}
	refuseForged(t, l, pub)
}

// refuseForged changes one thing of a good proof at a time.
func refuseForged(t *testing.T, l *Log, pub ed25519.PublicKey) {
	t.Helper()
	other, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, forge := range map[string]func(p *Proof) ed25519.PublicKey{
		"record": func(p *Proof) ed25519.PublicKey { p.Record = strings.Replace(p.Record, "exec", "read", 1); return pub },
		"record, leaf": func(p *Proof) ed25519.PublicKey {
			p.Record = strings.Replace(p.Record, "exec", "read", 1)
			p.Leaf = tlog.RecordHash([]byte(p.Record))
			return pub
		},
		"sequence": func(p *Proof) ed25519.PublicKey {
			p.Record = strings.Replace(p.Record, `"seq":5`, `"seq":6`, 1)
			return pub
		},
		"white space": func(p *Proof) ed25519.PublicKey { p.Record += " "; return pub },
		"leaf":        func(p *Proof) ed25519.PublicKey { p.Leaf[0] ^= 1; return pub },
		"path":        func(p *Proof) ed25519.PublicKey { p.Path[2][3] ^= 1; return pub },
		"short path":  func(p *Proof) ed25519.PublicKey { p.Path = p.Path[1:]; return pub },
		"long path":   func(p *Proof) ed25519.PublicKey { p.Path = make([]tlog.Hash, 1000); return pub },
		"size": func(p *Proof) ed25519.PublicKey {
			p.Checkpoint = strings.Replace(p.Checkpoint, "size 37", "size 38", 1)
			return pub
		},
		"time": func(p *Proof) ed25519.PublicKey {
			p.Checkpoint = strings.Replace(p.Checkpoint, "time 2026", "time 2025", 1)
			return pub
		},
		"title": func(p *Proof) ed25519.PublicKey {
			p.Checkpoint = strings.Replace(p.Checkpoint, "log v1", "log v2", 1)
			return pub
		},
		"key":    func(*Proof) ed25519.PublicKey { return other },
		"no key": func(*Proof) ed25519.PublicKey { return nil },
		"empty":  func(p *Proof) ed25519.PublicKey { *p = Proof{}; return pub },
	} {
		p, err := l.Prove(context.Background(), 5)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := VerifyProof(p, forge(&p)); !errors.Is(err, ErrProof) {
			t.Errorf("%s: %v, want ErrProof", name, err)
		}
	}
}
