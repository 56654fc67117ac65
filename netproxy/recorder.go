package netproxy

import (
	"sync"
	"time"

	"coworker/netproxy/control"
	"coworker/netproxy/flow"
)

const (
	recordQueue = 256 // records that wait for the supervisor; then connections wait
	maxRefusals = 1024
	maxBatch    = 64
	flushEvery  = time.Second
	maxText     = 512 // octets of a text that came from inside
)

// recorder tells the supervisor every attempt. Equal refusals are told once at first and then in sums, so that a loop
// inside cannot flood it; equal flows are told in sums when they come in great numbers.
type recorder struct {
	send  func([]control.Message) error
	broke func(error)
	queue chan flow.Record
	done  chan struct{} // the writer has ended

	mu       sync.Mutex
	refusals map[refusalKey]*flow.Record // Count: how many are not told yet
	kinds    map[flowKey]*kind
}

type refusalKey struct {
	source   flow.Source
	host     string
	port     uint16
	protocol string
	reason   string
	battery  bool
}

// newRecorder starts the writer; broke is called once if the line breaks.
func newRecorder(send func([]control.Message) error, broke func(error)) *recorder {
	r := &recorder{send: send, broke: broke, queue: make(chan flow.Record, recordQueue), done: make(chan struct{}), refusals: map[refusalKey]*flow.Record{}, kinds: map[flowKey]*kind{}}
	go r.write()
	return r
}

// report takes one record. It waits while the supervisor is behind.
func (r *recorder) report(rec flow.Record) {
	rec.Reason, rec.Path, rec.Broken = clip(rec.Reason), clip(rec.Path), clip(rec.Broken)
	if rec.Count == 0 {
		rec.Count = 1
	}
	if rec.Verdict == flow.Deny && !r.first(&rec) || rec.Verdict == flow.Allow && r.fold(&rec) {
		return
	}
	r.queue <- rec
}

// count takes a record of the resolver, which may not wait. Equal ones are summed, whatever the verdict.
func (r *recorder) count(rec flow.Record) {
	rec.Reason, rec.Count = clip(rec.Reason), 1
	if !r.first(&rec) {
		return
	}
	select {
	case r.queue <- rec:
	default:
		r.first(&rec) // told with the next sums
	}
}

// first says that a refusal is told now, and counts it otherwise. A full table counts under a record without a host.
func (r *recorder) first(rec *flow.Record) bool {
	key := refusalKey{rec.Source, rec.Host, rec.Port, rec.Protocol, rec.Reason, rec.Battery}
	r.mu.Lock()
	defer r.mu.Unlock()
	if sum := r.refusals[key]; sum != nil {
		sum.Count++
		sum.Duration = rec.Begun.Add(rec.Duration).Sub(sum.Begun)
		return false
	}
	if len(r.refusals) >= maxRefusals {
		*rec = flow.Record{Source: rec.Source, Protocol: rec.Protocol, Verdict: flow.Deny, Reason: "refusals of too many kinds to tell apart", Begun: rec.Begun, Count: 1}
		key = refusalKey{source: rec.Source, reason: rec.Reason}
		if sum := r.refusals[key]; sum != nil {
			sum.Count++
			return false
		}
	}
	sum := *rec
	sum.Count = 0
	r.refusals[key] = &sum
	return true
}

// sums takes what was counted. Kinds that did not come again are forgotten, and told at once the next time.
func (r *recorder) sums() []flow.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.folded()
	for key, sum := range r.refusals {
		if sum.Count == 0 {
			delete(r.refusals, key)
			continue
		}
		out = append(out, *sum)
		sum.Begun, sum.Count = sum.Begun.Add(sum.Duration), 0
	}
	return out
}

func (r *recorder) write() {
	defer close(r.done)
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	var failed error
	tell := func(batch []flow.Record) {
		if failed != nil || len(batch) == 0 {
			return // the proxy ends; senders must not hang
		}
		var out []control.Message
		for i := range batch {
			out = append(out, control.Message{Flow: &batch[i]})
		}
		if failed = r.send(out); failed != nil {
			r.broke(failed)
		}
	}
	for {
		select {
		case rec, open := <-r.queue:
			if !open {
				tell(r.sums())
				return
			}
			tell(r.batch(rec))
		case <-tick.C:
			tell(r.sums())
		}
	}
}

// batch takes what else waits, so that many small records are one write.
func (r *recorder) batch(first flow.Record) []flow.Record {
	out := []flow.Record{first}
	for len(out) < maxBatch {
		select {
		case rec, open := <-r.queue:
			if !open {
				return out
			}
			out = append(out, rec)
		default:
			return out
		}
	}
	return out
}

// close tells what is left and waits for it. Nothing may be reported after.
func (r *recorder) close() {
	close(r.queue)
	<-r.done
}

func clip(s string) string {
	if len(s) <= maxText {
		return s
	}
	return s[:maxText-3] + "..."
}
