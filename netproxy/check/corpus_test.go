package check

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// corpusRow is a row with what it expects. Reason, which only our own rows have, must be part of the answer's reason.
type corpusRow struct {
	Row
	Expect string `json:"expect"`
	Why    string `json:"why"`
	Reason string `json:"reason"`
}

func readRows(t *testing.T, path string) []corpusRow {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []corpusRow
	in := bufio.NewScanner(bytes.NewReader(data))
	for in.Scan() {
		var r corpusRow
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		out = append(out, r)
	}
	return out
}

func checkRows(t *testing.T, path string, least int) {
	rows := readRows(t, path)
	if len(rows) < least {
		t.Fatalf("%s holds %d rows, want at least %d", path, len(rows), least)
	}
	for _, r := range rows {
		t.Run(r.ID, func(t *testing.T) {
			got := Decide(r.Row)
			if got.Decision != r.Expect {
				t.Errorf("%q with allow %q\n got %s: %s\nwant %s: %s", r.Request, r.Allow, got.Decision, got.Reason, r.Expect, r.Why)
			}
			if !strings.Contains(got.Reason, r.Reason) {
				t.Errorf("%q: reason %q does not say %q", r.Request, got.Reason, r.Reason)
			}
			if got.Reason == "" {
				t.Errorf("%q: no reason", r.Request)
			}
			t.Logf("%s %s (%s)", got.Decision, got.Reason, r.Why)
		})
	}
}

func TestCorpus(t *testing.T) { checkRows(t, "../../integration/testdata/corpus/url.jsonl", 147) }
