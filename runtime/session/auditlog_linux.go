package session

import (
	"errors"
	"os"
	"sync"

	"coworker/enforce"
	"coworker/enforce/landlock/auditlog"
)

// auditLog is the kernel's audit log as one more source of refusals. It is no wall: a session goes without it.
type auditLog struct {
	source  *auditlog.Source
	why     string // there is none
	hearing sync.WaitGroup
}

// openAuditLog listens before the cell is made, so that no record about it is missed.
func (s *Session) openAuditLog() {
	source, err := auditlog.Open(s.options.Spec.Workspace)
	if err != nil {
		s.log.why = err.Error()
		return
	}
	s.log.source = source
	s.log.hearing.Go(func() {
		for {
			one, err := source.Next()
			if errors.Is(err, os.ErrClosed) {
				return
			}
			if err != nil {
				s.options.Notify(Notice{Text: "no more is heard of what Landlock refuses: " + err.Error()})
				return
			}
			s.refused.add(one)
		}
	})
	s.undo(func() error {
		err := source.Close()
		s.log.hearing.Wait() // before the last rows are written
		return err
	})
}

// watch tells whose refusals are the session's.
func (l *auditLog) watch(pid int) {
	if l.source != nil {
		l.source.Watch(pid)
	}
}

// Seen is an attempt that the kernel refused and told about.
type Seen struct {
	enforce.Refusal
	Count int64
}

// Seen lists what the kernel told since the first command, equal ones summed, in the order in which they first came. more is
// how many did not fit into the list.
func (s *Session) Seen() (refused []Seen, more int64) {
	r := s.refused
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.refused.order {
		refused = append(refused, Seen{
			Refusal: enforce.Refusal{Source: k.source, Wall: k.wall, Hook: k.hook, Comm: k.comm, What: k.what, Needed: k.needed},
			Count:   r.refused.counts[k],
		})
	}
	return refused, r.refused.more
}

// NotWatching says which sources of refusals this session lacks, and why, as "source: why".
func (s *Session) NotWatching() []string {
	var out []string
	if s.log.source == nil {
		out = append(out, string(enforce.SourceLandlock)+": "+s.log.why)
	}
	state := s.ward.State()
	if !state.Egress.On() {
		out = append(out, string(enforce.SourceEBPF)+": "+state.Egress.Why)
	}
	if !state.Guard.On() && state.Guard.Why != "" {
		out = append(out, string(enforce.SourceBPFLSM)+": "+state.Guard.Why)
	}
	return out
}
