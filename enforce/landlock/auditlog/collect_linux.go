package auditlog

import (
	"slices"
	"strings"
	"time"

	"coworker/enforce"
)

// Bounds of what is remembered. Records that belong together follow each other at once, so little waits.
const (
	maxDomains = 4096
	maxWaiting = 256
	// patience is how long a refusal waits for the records that say whose it is.
	patience = 200 * time.Millisecond
)

// collector puts records of one session together. It has one caller at a time.
type collector struct {
	workspace string
	member    func(pid int) bool // whether a process is the cell
	ours      map[uint64]bool
	waiting   []*waiting
	unheard   int64
}

// waiting is a refusal whose domain, or whose program, is not known yet.
type waiting struct {
	stamp
	domain  uint64
	since   time.Time
	refusal enforce.Refusal
}

func newCollector(workspace string, member func(pid int) bool) *collector {
	return &collector{workspace: workspace, member: member, ours: map[uint64]bool{}}
}

// add takes a record. What it completes is returned.
func (c *collector) add(kind uint16, text string, now time.Time) []enforce.Refusal {
	if kind != typeLandlockAccess && kind != typeLandlockDomain && kind != typeSyscall {
		return nil
	}
	r, err := parse(kind, text)
	if err != nil {
		if kind != typeSyscall { // those of the whole machine come by, and one that is unreadable is no refusal of ours
			c.unheard++
		}
		return nil
	}
	switch {
	case kind == typeSyscall:
		return c.name(r)
	case r.gone:
		delete(c.ours, r.domain)
	case r.made && c.member(r.pid):
		if len(c.ours) < maxDomains {
			c.ours[r.domain] = true
		}
	case r.made: // a domain of somebody else's
		c.waiting = slices.DeleteFunc(c.waiting, func(w *waiting) bool { return w.domain == r.domain })
	default:
		c.wait(r, now)
	}
	return nil
}

// wait keeps a refusal until its domain and its program are known, or the time is up.
func (c *collector) wait(r *record, now time.Time) {
	refusal, err := r.refusal(c.workspace)
	if err != nil || len(c.waiting) == maxWaiting {
		c.unheard++
		return
	}
	c.waiting = append(c.waiting, &waiting{stamp: r.stamp, domain: r.domain, since: now, refusal: refusal})
}

// name tells who made the system call that was refused. It is the last record of interest of its event.
func (c *collector) name(r *record) []enforce.Refusal {
	var out []enforce.Refusal
	c.waiting = slices.DeleteFunc(c.waiting, func(w *waiting) bool {
		if w.stamp != r.stamp || !c.ours[w.domain] {
			return false
		}
		w.refusal.Pid = r.pid
		if value, ok := r.get("comm"); ok {
			if comm, err := untrusted(value); err == nil {
				w.refusal.Comm = comm[:min(len(comm), maxComm)]
			}
		}
		out = append(out, w.refusal)
		return true
	})
	return out
}

// due returns the refusals that waited long enough, with what is known about them. Those whose domain nobody claimed belong to
// somebody else.
func (c *collector) due(now time.Time) []enforce.Refusal {
	var out []enforce.Refusal
	c.waiting = slices.DeleteFunc(c.waiting, func(w *waiting) bool {
		if now.Sub(w.since) < patience {
			return false
		}
		if c.ours[w.domain] {
			out = append(out, w.refusal)
		}
		return true
	})
	slices.SortStableFunc(out, func(a, b enforce.Refusal) int {
		if d := a.Time.Compare(b.Time); d != 0 {
			return d
		}
		return strings.Compare(a.What, b.What)
	})
	return out
}
