package netproxy

import (
	"testing"
	"time"

	"coworker/netproxy/control"
	"coworker/netproxy/flow"
)

// What is told, one by one or in sums, is what happened.
func TestFold(t *testing.T) {
	var got []flow.Record
	r := newRecorder(func(list []control.Message) error {
		for _, m := range list {
			got = append(got, *m.Flow)
		}
		return nil
	}, func(err error) { t.Error(err) })
	begun := time.Unix(1000, 0)
	const many = 1000
	for i := range many {
		rec := flow.Record{Source: flow.Proxy, Host: "a.example", Port: 443, Verdict: flow.Allow, BytesIn: 3, BytesOut: 2, Begun: begun.Add(time.Duration(i) * time.Millisecond), Duration: time.Minute}
		r.report(rec)
		switch i {
		case 500:
			rec.Path = "/other"
			r.report(rec)
		case 600:
			rec.Broken = "reset"
			r.report(rec)
		}
	}
	r.close()
	var plain, other, broken, in, out int64
	last := begun
	for _, g := range got {
		switch {
		case g.Path != "":
			other += int64(g.Count)
		case g.Broken != "":
			broken += int64(g.Count)
		default:
			plain, in, out = plain+int64(g.Count), in+g.BytesIn, out+g.BytesOut
			last = later(last, g.Begun.Add(g.Duration))
		}
	}
	if plain != many || in != 3*many || out != 2*many || other != 1 || broken != 1 {
		t.Errorf("%d flows with %d and %d bytes, %d to another path, %d broken", plain, in, out, other, broken)
	}
	if want := begun.Add((many-1)*time.Millisecond + time.Minute); !last.Equal(want) {
		t.Errorf("the last flow ended %v, told is %v", want, last)
	}
	if len(got) < toldApart+3 || len(got) > many/2 {
		t.Errorf("%d records", len(got))
	}
}

// A cell that makes up paths gets no unbounded table, and loses nothing.
func TestFoldKinds(t *testing.T) {
	told := 0
	r := newRecorder(func(list []control.Message) error { told += len(list); return nil }, func(err error) { t.Error(err) })
	for i := range 3 * maxKinds {
		r.report(flow.Record{Verdict: flow.Allow, Path: string(rune('a' + i))})
	}
	r.mu.Lock()
	kinds := len(r.kinds)
	r.mu.Unlock()
	r.close()
	if told != 3*maxKinds || kinds > maxKinds {
		t.Errorf("%d told, %d kinds kept", told, kinds)
	}
}
