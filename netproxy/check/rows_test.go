package check

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// Our own rows, of the kinds of the corpus; they also say what the reason has to name.
func TestOwnRows(t *testing.T) { checkRows(t, "testdata/rows.jsonl", 60) }

func TestRun(t *testing.T) {
	in := `{"id":"a","kind":"url","allow":["github.com"],"request":"CONNECT GitHub.com:443"}` + "\n\n" +
		`{"id":"b","allow":[],"request":"CONNECT <x>:443","expect":"deny"}`
	var out bytes.Buffer
	if err := Run(strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var a, b Result
	if len(lines) != 2 || json.Unmarshal([]byte(lines[0]), &a) != nil || json.Unmarshal([]byte(lines[1]), &b) != nil {
		t.Fatalf("%q", lines)
	}
	if want := (Result{"a", "allow", `allowed by the rule "github.com"`, "github.com", 443}); a != want {
		t.Errorf("%+v, want %+v", a, want)
	}
	if b.ID != "b" || b.Decision != "deny" || b.Reason == "" || b.Host != "" {
		t.Errorf("%+v", b)
	}
	for _, bad := range []string{"nonsense", `{"id":1}`, `{"id":"a","kind":"shell"}`} {
		if err := Run(strings.NewReader(bad), &out); err == nil {
			t.Errorf("%s is taken for a row", bad)
		}
	}
}

// Without rules nothing is allowed, whatever the request looks like.
func FuzzDecide(f *testing.F) {
	for _, s := range []string{"CONNECT github.com:443 | SNI=github.com split over two records | ALPN=h2 | ECH", "GET http://a/ HTTP/1.1 | Host: a | BODY x\\r\\n\\x41 | THEN GET / | DNS a=1.1.1.1 then ::1",
		"SOCKS5 CONNECT a:443\x00 | FIRSTBYTES \\x16", "DNS A a", "TCP a:80 captured | GET / HTTP/1.1", "UDP a:1", "CONNECT a:443 | DNS a=CNAME a | INNER :authority=a | INJECT X for a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got := Decide(Row{Request: s}); got.Decision != "deny" || got.Reason == "" {
			t.Fatalf("%q: %+v", s, got)
		}
		got := Decide(Row{Request: s, Allow: []string{"a:443", "a:80"}})
		if got.Reason == "" || got.Decision == "allow" && got.Host != "a" {
			t.Fatalf("%q: %+v", s, got)
		}
	})
}
