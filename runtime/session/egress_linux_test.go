package session

import (
	"context"
	"strings"
	"testing"
	"time"

	"coworker/enforce/redirect"
	"coworker/netproxy/control"
	"coworker/netproxy/flow"
)

// The keeper may not import netproxy, nor the proxy enforce: each has the order of the sockets in its own words.
func TestSocketsAgree(t *testing.T) {
	for _, c := range []struct{ descriptor, socket int }{
		{control.FDProxy4, redirect.SocketProxy4}, {control.FDTransparent4, redirect.SocketTransparent4},
		{control.FDNameUDP4, redirect.SocketNameUDP4}, {control.FDNameTCP4, redirect.SocketNameTCP4},
		{control.FDProxy6, redirect.SocketProxy6}, {control.FDTransparent6, redirect.SocketTransparent6},
		{control.FDNameUDP6, redirect.SocketNameUDP6}, {control.FDNameTCP6, redirect.SocketNameTCP6},
	} {
		if c.descriptor != control.FDProxy4+c.socket {
			t.Errorf("descriptor %d is socket %d", c.descriptor, c.socket)
		}
	}
}

func TestProxyIDs(t *testing.T) {
	seen := map[uint32]bool{}
	for range 200 {
		id := proxyIDs(randomName(8))
		if id < 61184 || id > 65519 {
			t.Fatalf("id %d is outside of the range", id)
		}
		seen[id] = true
	}
	if len(seen) < 150 {
		t.Errorf("200 sessions have %d ids", len(seen))
	}
}

// TestLedgerSums: equal flows are one line of the report, and what comes from the proxy cannot hold a line break or a
// control sequence.
func TestLedgerSums(t *testing.T) {
	l := &ledger{queue: make(chan flow.Record, 10), sums: map[flowKey]int{}}
	for range 3 {
		l.add(flow.Record{Source: flow.Proxy, Host: "a.example", Port: 443, Verdict: flow.Allow, BytesIn: 5, BytesOut: -1, Duration: time.Second})
	}
	l.add(flow.Record{Source: "\x1b[2J", Host: "evil\r\nerror: all is well", Verdict: "yes", Reason: strings.Repeat("x", 4000), Needed: "evil"})
	got := l.list()
	if len(got) != 2 || got[0].Count != 3 || got[0].BytesIn != 15 || got[0].BytesOut != 0 {
		t.Fatalf("%+v", got)
	}
	bad := got[1]
	if bad.Verdict != flow.Deny || bad.Source != flow.Proxy || strings.ContainsAny(bad.Host, "\r\n\x1b") || len(bad.Reason) > maxFlowStr+4 {
		t.Errorf("%+v", bad)
	}
	d := l.denials()
	if len(d) != 1 || d[0].Needed != "--allow evil" {
		t.Errorf("%+v", d)
	}
	for i := range 2 * maxEgress {
		l.sum(flow.Record{Host: randomName(8), Port: uint16(i), Count: 1})
	}
	if len(l.list()) != maxEgress || l.more != maxEgress+2 {
		t.Errorf("%d listed, %d more", len(l.list()), l.more)
	}
}

// TestFlowSums: a session that makes connections without end gets few rows, and they still count everything.
func TestFlowSums(t *testing.T) {
	s := newFlowSums()
	const n = 10 * maxSums
	for i := range n {
		s.add([]flow.Record{{Source: flow.Proxy, Host: randomName(8), Port: 443, Verdict: flow.Deny, Reason: "no", Path: "/x", Count: 2}})
		s.add([]flow.Record{{Source: flow.Proxy, Host: "a.example", Port: uint16(80 + i%2), Verdict: flow.Allow, Rule: "r", BytesIn: 1, BytesOut: 2, Count: 1}})
	}
	rows := s.take()
	if len(rows) > maxSums+2 {
		t.Errorf("%d rows", len(rows))
	}
	var refused, allowed int
	var in, out int64
	for _, r := range rows {
		in, out = in+r.BytesIn, out+r.BytesOut
		if r.Path != "" || r.Reason != sumReason {
			t.Errorf("%+v", r)
		}
		if r.Verdict == flow.Allow {
			allowed += r.Count
		} else {
			refused += r.Count
		}
	}
	if refused != 2*n || allowed != n || in != n || out != 2*n {
		t.Errorf("refused %d, allowed %d, %d octets in, %d out; want %d, %d, %d, %d", refused, allowed, in, out, 2*n, n, n, 2*n)
	}
	if len(s.take()) != 0 {
		t.Error("sums are given twice")
	}
}

// countingRecorder counts rows of flows.
type countingRecorder struct {
	rows, count int
	fail        error
}

func (c *countingRecorder) Attest(context.Context, []byte) (string, error) { return "a", nil }
func (c *countingRecorder) Record(_ context.Context, _ string, events ...Event) error {
	for _, e := range events {
		c.rows++
		c.count += e.Flow.Count
	}
	return c.fail
}

// TestLedgerBounds: beyond its share a session's flows are summed, and none is lost.
func TestLedgerBounds(t *testing.T) {
	rec := &countingRecorder{}
	s := &Session{options: Options{Recorder: rec}}
	l := &ledger{}
	l.start(&egress{session: s})
	const n = maxFlowRows + 5000
	for range n {
		l.add(flow.Record{Source: flow.Proxy, Host: "a.example", Port: 443, Verdict: flow.Deny, Reason: "no", Count: 1})
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	if rec.count != n || rec.rows > maxFlowRows+flowBatch+maxSums {
		t.Errorf("%d rows for %d of %d flows", rec.rows, rec.count, n)
	}
}
