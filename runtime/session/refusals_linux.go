package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"coworker/enforce"
	"coworker/runtime/ward"
)

const (
	maxRefusals = 256         // different ones that have rows and stand in a report
	maxPrograms = 256         // different programs that have rows
	maxNewsText = 512         // bytes of an address, a path or a name in a row
	newsDelay   = time.Second // longest time that a row waits for company
)

// refusals keeps what the kernel's programs tell of a session: attempts that they refused, and programs that started.
// Equal ones are one row when they first come and one with their number at the end, so that a loop inside fills neither
// the record nor the report.
type refusals struct {
	session *Session

	mu       sync.Mutex
	settled  time.Time // when commands could begin; what came before was the battery. Zero: not yet
	refused  sums[refusalKey]
	programs sums[string]
	pending  []Event
}

// refusalKey says which refusals are summed.
type refusalKey struct {
	source           enforce.Source
	wall             enforce.Wall
	hook, comm, what string
	needed           string
}

// sums counts equal things in the order in which they first came.
type sums[K comparable] struct {
	order  []K
	counts map[K]int64
	most   int
	more   int64 // things beyond most different ones
}

// add says whether it is a new one.
func (s *sums[K]) add(k K) bool {
	if _, ok := s.counts[k]; !ok {
		if len(s.order) >= s.most {
			s.more++
			return false
		}
		s.order = append(s.order, k)
	}
	s.counts[k]++
	return s.counts[k] == 1
}

func newSums[K comparable](most int) sums[K] { return sums[K]{counts: map[K]int64{}, most: most} }

// listenToWard starts to take what the ward tells. The ward's end ends it.
func (s *Session) listenToWard() {
	s.refused = &refusals{session: s, refused: newSums[refusalKey](maxRefusals), programs: newSums[string](maxPrograms)}
	s.background.Go(s.refused.listen)
}

// awaitFall ends the session when one of its walls is gone. What is only found when the session is closed, Close says.
func (s *Session) awaitFall() {
	err, fell := <-s.ward.Fallen()
	if !fell {
		return
	}
	if s.current() == Closing && s.failed() == nil {
		s.fellLate = &FallenError{Err: err}
	} else {
		s.fail(&FallenError{Err: err})
	}
	row := Event{Stage: "wall", Status: "fallen", Reason: err.Error(), Source: enforce.SourceEBPF}
	if fall := (*ward.Fall)(nil); errors.As(err, &fall) {
		row.Source = fall.Source
	}
	if err := s.record(context.Background(), row); err != nil {
		s.options.Notify(Notice{Text: "record that a wall is gone: " + err.Error()})
	}
}

// settle says that the battery is over.
func (r *refusals) settle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settled = time.Now()
}

func (r *refusals) listen() {
	tick := time.NewTicker(newsDelay)
	defer tick.Stop()
	news := r.session.ward.Refusals()
	for open := true; open; {
		var one enforce.Refusal
		select {
		case one, open = <-news:
			if open {
				r.add(one)
			}
		case <-tick.C:
			r.flush()
		}
	}
	r.total()
	r.flush()
}

// add takes one piece of news. Names of programs and paths are what processes inside made of them.
func (r *refusals) add(one enforce.Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.settled.IsZero() || one.Time.Before(r.settled) {
		return
	}
	what, comm := plainText(one.What, maxNewsText), plainText(one.Comm, maxNewsText)
	if one.Hook == enforce.HookExec {
		if r.programs.add(what) {
			r.pending = append(r.pending, Event{Stage: "exec", Status: Ran, Resource: what, Args: []string{comm}, Reason: fmt.Sprintf("process %d", one.Pid), Source: one.Source})
		}
		return
	}
	needed := flagText(one.Needed)
	if r.session.options.Backend.Name() == enforce.Bare && one.Source == enforce.SourceEBPF {
		needed = "" // it has no network to allow anything in
	}
	k := refusalKey{one.Source, one.Wall, one.Hook, comm, what, needed}
	if r.refused.add(k) {
		reason := fmt.Sprintf("%s refused it to %s, process %d", one.Hook, comm, one.Pid)
		if one.Pid == 0 {
			reason = one.Hook + " refused it"
		}
		r.pending = append(r.pending, k.event(reason))
	}
}

func (k refusalKey) event(reason string) Event {
	stage := "net"
	if k.wall != enforce.NetEgress && k.wall != enforce.NetLocal {
		stage = "file"
	}
	return Event{Stage: stage, Status: "denied", Resource: k.what, Reason: reason, Rule: string(k.wall), Source: k.source}
}

// total adds a row for whatever came more than once, and for what there was no room for.
func (r *refusals) total() {
	unheard := r.session.ward.Counts().Unheard
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.refused.order {
		if n := r.refused.counts[k]; n > 1 {
			r.pending = append(r.pending, k.event(fmt.Sprintf("%s refused it to %s %d times in all", k.hook, k.comm, n)))
		}
	}
	if r.refused.more > 0 {
		r.pending = append(r.pending, Event{Stage: "net", Status: "denied", Reason: fmt.Sprintf("%d more refusals, of more than %d kinds", r.refused.more, maxRefusals)})
	}
	if r.programs.more > 0 {
		r.pending = append(r.pending, Event{Stage: "exec", Status: Ran, Reason: fmt.Sprintf("%d more starts, of more than %d programs", r.programs.more, maxPrograms)})
	}
	if unheard > 0 && !r.settled.IsZero() {
		r.pending = append(r.pending, Event{Stage: "net", Status: "denied", Reason: fmt.Sprintf("%d times the kernel told more than could be heard", unheard)})
	}
}

// flush stores what waits. What the kernel refused stays refused when it cannot be recorded, but the session ends.
func (r *refusals) flush() {
	r.mu.Lock()
	rows := r.pending
	r.pending = nil
	r.mu.Unlock()
	if len(rows) == 0 {
		return
	}
	if err := r.session.record(context.Background(), rows...); err != nil {
		r.session.fail(fmt.Errorf("record what the kernel refused: %w", err))
	}
}

// denials lists what was refused, each once.
func (r *refusals) denials() []Denial {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	out := []Denial{}
	seen := map[Denial]bool{}
	for _, k := range r.refused.order {
		d := Denial{Wall: k.wall, What: k.what, Needed: k.needed, Source: string(k.source)}
		if !seen[d] {
			seen[d] = true
			out = append(out, d)
		}
	}
	return out
}
