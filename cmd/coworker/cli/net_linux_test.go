package cli

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"coworker/netproxy/flow"
	"coworker/platform/audit"
)

// TestFlowRow: what a flow is stored as comes back as what net log shows.
func TestFlowRow(t *testing.T) {
	begun := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	r := flow.Record{
		Source: flow.Transparent, Host: "a.example", Port: 443, Addr: "203.0.113.7:443", Protocol: "https", Verdict: flow.Allow, Inspected: true,
		Method: "GET", Path: "/x", Status: 200, Credential: "github", BytesIn: 10, BytesOut: 20, Begun: begun, Duration: 1500 * time.Millisecond, Count: 2, Broken: "reset",
	}
	args, err := json.Marshal(flowArgs(r))
	if err != nil {
		t.Fatal(err)
	}
	got := flowOf(audit.Row{Seq: 7, Session: "s", Resource: "a.example:443", Status: "allow", Rule: "a.example", Reason: "allowed", Level: "enforced", Args: json.RawMessage(args)})
	want := flowRow{
		Row: 7, Time: got.Time, Session: "s", Host: "a.example:443", Verdict: "allow", Rule: "a.example", Reason: "allowed", Level: "enforced", Source: "transparent",
		Protocol: "https", Addr: "203.0.113.7:443", Method: "GET", Path: "/x", Status: 200, Used: "github", Broken: "reset", BytesIn: 10, BytesOut: 20, Millis: 1500, Count: 2, Inspected: true,
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if text := why(got); text != "GET /x: allowed, 2 times; ended early: reset" {
		t.Errorf("%q", text)
	}
	broken := flowOf(audit.Row{Resource: "b:1", Args: json.RawMessage(`{"bytes_in":"many"}`)})
	if broken.Broken == "" || broken.Host != "b:1" || broken.Count != 1 {
		t.Errorf("%+v", broken)
	}
}

func TestSumHosts(t *testing.T) {
	rows := []flowRow{
		{Host: "a:443", Verdict: "allow", BytesIn: 5, BytesOut: 5, Count: 1}, {Host: "b:443", Verdict: "deny", Count: 9},
		{Host: "c:443", Verdict: "allow", BytesIn: 100, Count: 1}, {Host: "a:443", Verdict: "deny", Count: 3}, {Host: "d:443", Verdict: "deny", Count: 9},
	}
	want := []hostSum{{"c:443", 1, 0, 100, 0}, {"a:443", 1, 3, 5, 5}, {"b:443", 0, 9, 0, 0}, {"d:443", 0, 9, 0, 0}}
	sums := hostSums{}
	for _, r := range rows {
		sums.add(r)
	}
	if got := sums.list(); !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestByteCount(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 1 << 20: "1.0 MiB", 3 << 30: "3.0 GiB", 1 << 62: "4096.0 PiB"} {
		if got := byteCount(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestParseRequestRule(t *testing.T) {
	for text, want := range map[string]string{
		"GET,HEAD api.example.com/repos/acme": "api.example.com:443 GET,HEAD /repos/acme",
		"* api.example.com":                   "api.example.com:443  ",
		"POST api.example.com:8443/":          "api.example.com:8443 POST ",
		"api.example.com":                     "!",
		"GET http://api.example.com/":         "!",
		"GET user@api.example.com":            "!",
	} {
		r, err := parseRequestRule(text)
		if want == "!" {
			if err == nil {
				t.Errorf("%q is taken: %+v", text, r)
			}
			continue
		}
		if got := strings.Join([]string{hostPort(r.Host, r.Port), strings.Join(r.Methods, ","), r.Path}, " "); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
}
