package netproxy

import (
	"time"

	"coworker/netproxy/flow"
)

const (
	toldApart = 64   // equal flows that are told one by one in each flushEvery; the rest of that time is one sum
	maxKinds  = 1024 // of flows that are summed at once; others are told one by one
)

// flowKey is everything in a record but time and bytes.
type flowKey struct {
	source             flow.Source
	host, addr         string
	port               uint16
	protocol           string
	rule, reason       string
	resolvedBy         string
	method, path       string
	status             int
	credential, broken string
	inspected, battery bool
}

// kind is what came of one key since the last sums.
type kind struct {
	told int
	sum  flow.Record // Count: how many are not told yet
}

// fold adds a flow to a sum, unless it is to be told by itself: each row costs the record more than the
// proxy spends on a request, so a client that asks thousands of times a second would be held back by its own log.
func (r *recorder) fold(rec *flow.Record) bool {
	key := flowKey{
		rec.Source, rec.Host, rec.Addr, rec.Port, rec.Protocol, rec.Rule, rec.Reason, rec.ResolvedBy,
		rec.Method, rec.Path, rec.Status, rec.Credential, rec.Broken, rec.Inspected, rec.Battery,
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.kinds[key]
	switch {
	case k == nil && len(r.kinds) >= maxKinds:
		return false
	case k == nil:
		r.kinds[key] = &kind{told: 1}
		return false
	case k.told < toldApart:
		k.told++
		return false
	case k.sum.Count == 0:
		k.sum = *rec
		return true
	}
	s := &k.sum
	end := later(s.Begun.Add(s.Duration), rec.Begun.Add(rec.Duration))
	if rec.Begun.Before(s.Begun) {
		s.Begun = rec.Begun
	}
	s.Duration = end.Sub(s.Begun)
	s.Count, s.BytesIn, s.BytesOut = s.Count+rec.Count, s.BytesIn+rec.BytesIn, s.BytesOut+rec.BytesOut
	return true
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// folded takes the sums and begins anew. The caller holds mu.
func (r *recorder) folded() []flow.Record {
	var out []flow.Record
	for _, k := range r.kinds {
		if k.sum.Count > 0 {
			out = append(out, k.sum)
		}
	}
	clear(r.kinds)
	return out
}
