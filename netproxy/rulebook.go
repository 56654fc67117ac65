package netproxy

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"coworker/netproxy/control"
	"coworker/netproxy/flow"
	"coworker/netproxy/hostmatch"
)

const (
	maxGrants    = 4096 // rules added at run time
	maxQuestions = 256  // answered or not; what is asked beyond is denied
)

// rulebook is what the session may reach now. Rules are only added: what was allowed stays so.
type rulebook struct {
	rules  atomic.Pointer[hostmatch.Rules]
	wait   time.Duration // for an answer; 0: nobody is asked
	send   func(control.Message) error
	mu     sync.Mutex
	grants int
	asked  map[place]*question
	byID   map[uint64]*question
}

type place struct {
	host hostmatch.Host
	port uint16
}

// question is asked once for the session. done is closed by the answer.
type question struct {
	needed string
	done   chan struct{}
}

func newRulebook(cfg *control.Config, send func(control.Message) error) (*rulebook, error) {
	rules, err := hostmatch.ParseRules(cfg.Allow, cfg.Deny)
	if err != nil {
		return nil, err
	}
	rules.Open = cfg.Open
	b := &rulebook{wait: cfg.Ask, send: send, asked: map[place]*question{}, byID: map[uint64]*question{}}
	b.rules.Store(&rules)
	return b, nil
}

func (b *rulebook) match(h hostmatch.Host, port uint16) hostmatch.Decision {
	return hostmatch.Match(*b.rules.Load(), h, port)
}

// name decides whether a name may be known inside. While somebody can be asked, every name that a yes could open is: a
// program has to get as far as a connection, which then waits.
func (b *rulebook) name(h hostmatch.Host) hostmatch.Decision {
	d := hostmatch.MatchName(*b.rules.Load(), h)
	if d.Verdict == hostmatch.Deny && b.wait > 0 && d.Needed != "" && d.Rule == "" {
		d.Verdict, d.Reason = hostmatch.Allow, "the name is not listed; a connection to it is asked about"
	}
	return d
}

// grant adds an allow rule.
func (b *rulebook) grant(text string) error {
	rule, err := hostmatch.ParseAllow(text)
	if err != nil {
		return fmt.Errorf("granted rule: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.grants++; b.grants > maxGrants {
		return fmt.Errorf("more than %d granted rules", maxGrants)
	}
	next := *b.rules.Load()
	next.Allow = append(next.Allow[:len(next.Allow):len(next.Allow)], rule)
	b.rules.Store(&next)
	return nil
}

// decide matches, and asks if that can help.
func (b *rulebook) decide(ctx context.Context, h hostmatch.Host, port uint16, src flow.Source) hostmatch.Decision {
	d := b.match(h, port)
	if d.Verdict == hostmatch.Allow || b.wait <= 0 || d.Needed == "" || d.Rule != "" {
		return d
	}
	q := b.question(place{h, port}, src, d)
	if q == nil {
		return d
	}
	timer := time.NewTimer(b.wait)
	defer timer.Stop()
	select {
	case <-q.done:
		return b.match(h, port)
	case <-timer.C:
		d.Reason += "; nobody answered in time"
	case <-ctx.Done():
	}
	return d
}

// question finds the question about a place or asks it. It is nil when too much was asked already.
func (b *rulebook) question(p place, src flow.Source, d hostmatch.Decision) *question {
	b.mu.Lock()
	q, known := b.asked[p]
	if known || len(b.asked) >= maxQuestions {
		b.mu.Unlock()
		return q
	}
	q = &question{needed: d.Needed, done: make(chan struct{})}
	id := uint64(len(b.asked) + 1)
	b.asked[p], b.byID[id] = q, q
	b.mu.Unlock()
	ask := &control.Ask{ID: id, Host: p.host.String(), Port: p.port, Source: src, Reason: d.Reason, Needed: d.Needed}
	if err := b.send(control.Message{Ask: ask}); err != nil {
		return nil // the line is gone, and with it the proxy
	}
	return q
}

// answer ends a question. The answer stays for the session; a second one for the same question is an error.
func (b *rulebook) answer(a control.Answer) error {
	b.mu.Lock()
	q := b.byID[a.ID]
	delete(b.byID, a.ID)
	b.mu.Unlock()
	if q == nil {
		return fmt.Errorf("an answer to the question %d, which is not open", a.ID)
	}
	defer close(q.done)
	if a.Allow {
		return b.grant(q.needed)
	}
	return nil
}
