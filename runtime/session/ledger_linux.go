package session

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"coworker/enforce"
	"coworker/netproxy/flow"
)

const (
	maxEgress  = 2000                   // different flows that a report lists
	flowBatch  = 256                    // rows of one commit
	flowDelay  = 200 * time.Millisecond // longest time that a flow waits for company
	flowQueue  = 1024                   // then the proxy waits
	maxFlowStr = 512
	// maxFlowRows is how many rows a session may have one by one: some 25 MB.
	maxFlowRows = 50_000
	sumEvery    = 10 * time.Second
)

// ledger keeps what the proxy told: summed for the report, and one by one for the record.
type ledger struct {
	session *Session
	queue   chan flow.Record
	work    sync.WaitGroup

	mu   sync.Mutex
	sums map[flowKey]int // index in list
	all  []flow.Record
	more int // flows beyond maxEgress

	stored int // rows; only write uses it
}

// flowKey says which flows are summed.
type flowKey struct {
	source             flow.Source
	host, addr         string
	port               uint16
	verdict            flow.Verdict
	rule, reason       string
	inspected          bool
	credential, broken string
}

func (l *ledger) start(e *egress) {
	l.session, l.queue, l.sums = e.session, make(chan flow.Record, flowQueue), map[flowKey]int{}
	l.work.Go(l.write)
}

// add takes one record from the proxy, which has read hostile bytes: texts are bounded and free of controls. A full queue
// makes the proxy wait.
func (l *ledger) add(r flow.Record) {
	for _, text := range []*string{&r.Host, &r.Addr, &r.Protocol, &r.Rule, &r.Reason, &r.Needed, &r.ResolvedBy, &r.Method, &r.Path, &r.Credential, &r.Broken} {
		*text = plainText(*text, maxFlowStr)
	}
	if r.Verdict != flow.Allow {
		r.Verdict = flow.Deny
	}
	switch r.Source {
	case flow.Proxy, flow.DNS, flow.Transparent:
	default:
		r.Source = flow.Proxy
	}
	r.BytesIn, r.BytesOut, r.Count = max(r.BytesIn, 0), max(r.BytesOut, 0), max(r.Count, 1)
	l.sum(r)
	l.queue <- r
}

// plainText makes a text fit for a terminal and a row: one line, no controls, bounded.
func plainText(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + "…"
}

func (l *ledger) sum(r flow.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := flowKey{r.Source, r.Host, r.Addr, r.Port, r.Verdict, r.Rule, r.Reason, r.Inspected, r.Credential, r.Broken}
	i, ok := l.sums[key]
	switch {
	case ok:
		have := &l.all[i]
		have.BytesIn, have.BytesOut, have.Count, have.Duration = have.BytesIn+r.BytesIn, have.BytesOut+r.BytesOut, have.Count+r.Count, have.Duration+r.Duration
	case len(l.all) >= maxEgress:
		l.more += r.Count
	default:
		l.sums[key] = len(l.all)
		l.all = append(l.all, r)
	}
}

func (l *ledger) list() []flow.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]flow.Record{}, l.all...)
}

// beyond is how many flows the list had no room for.
func (l *ledger) beyond() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.more
}

// write stores rows in groups. A record that cannot be kept ends the session: what leaves must stand in it.
func (l *ledger) write() {
	sums := newFlowSums()
	tick := time.NewTicker(sumEvery)
	defer tick.Stop()
	for open := true; open; {
		var batch []flow.Record
		select {
		case r, ok := <-l.queue:
			if open = ok; ok {
				batch, open = l.collect(r)
			}
		case <-tick.C:
			l.store(sums.take())
		}
		if l.stored >= maxFlowRows {
			sums.add(batch)
			continue
		}
		l.store(batch)
	}
	l.store(sums.take())
}

// collect waits a moment for company of a record, so that many share one commit; false: there will be no more.
func (l *ledger) collect(first flow.Record) ([]flow.Record, bool) {
	batch := []flow.Record{first}
	full := time.NewTimer(flowDelay)
	defer full.Stop()
	for len(batch) < flowBatch {
		select {
		case next, ok := <-l.queue:
			if !ok {
				return batch, false
			}
			batch = append(batch, next)
		case <-full.C:
			return batch, true
		}
	}
	return batch, true
}

func (l *ledger) store(batch []flow.Record) {
	if len(batch) == 0 {
		return
	}
	l.stored += len(batch)
	events := make([]Event, len(batch))
	for i, r := range batch {
		events[i] = flowEvent(r)
	}
	if err := l.session.record(context.Background(), events...); err != nil {
		l.session.fail(fmt.Errorf("record what left the session: %w", err))
	}
}

// flowSums adds records up by what is known of their destination, once a session has filled its share of the record. A
// program inside can make records as fast as it can connect; the log must not be its way to fill the disk.
type flowSums struct{ byKey map[flowKey]flow.Record }

const maxSums = 256 // destinations of one interval; the rest is one sum for each verdict

func newFlowSums() *flowSums { return &flowSums{byKey: map[flowKey]flow.Record{}} }

func (s *flowSums) add(batch []flow.Record) {
	for _, r := range batch {
		r.Method, r.Path, r.Status, r.Addr, r.Broken, r.Reason = "", "", 0, "", "", sumReason
		key := flowKey{source: r.Source, host: r.Host, port: r.Port, verdict: r.Verdict, rule: r.Rule, credential: r.Credential}
		if _, ok := s.byKey[key]; !ok && len(s.byKey) >= maxSums {
			r.Host, r.Port, r.Rule, r.Needed, r.Credential = "", 0, "", "", ""
			key = flowKey{source: r.Source, verdict: r.Verdict}
		}
		if have, ok := s.byKey[key]; ok {
			r.Begun, r.Duration = have.Begun, have.Duration+r.Duration
			r.BytesIn, r.BytesOut, r.Count = r.BytesIn+have.BytesIn, r.BytesOut+have.BytesOut, r.Count+have.Count
		}
		s.byKey[key] = r
	}
}

// sumReason is what stands in the place of the reasons that were added up.
const sumReason = "one sum: this session made more connections than are recorded one by one"

// take gives the sums and begins anew.
func (s *flowSums) take() []flow.Record {
	out := make([]flow.Record, 0, len(s.byKey))
	for _, r := range s.byKey {
		out = append(out, r)
	}
	clear(s.byKey)
	return out
}

func flowEvent(r flow.Record) Event {
	resource := r.Host
	if r.Port != 0 {
		resource = net.JoinHostPort(r.Host, strconv.Itoa(int(r.Port)))
	}
	return Event{Stage: "flow", Status: string(r.Verdict), Reason: r.Reason, Rule: r.Rule, Resource: resource, Flow: &r}
}

// close waits until every record is stored.
func (l *ledger) close() error {
	close(l.queue)
	l.work.Wait()
	return nil
}

// refusal says what was refused and why, naming the host once.
func refusal(what, host, reason string) string {
	switch {
	case what == "":
		return reason
	case strings.Contains(reason, what):
		return reason
	}
	return what + ": " + strings.TrimPrefix(reason, host+": ")
}

// denials turns refused flows into what a person can grant, each once.
func (l *ledger) denials() []Denial {
	var out []Denial
	seen := map[Denial]bool{}
	for _, r := range l.list() {
		if r.Verdict == flow.Allow {
			continue
		}
		what := r.Host
		if r.Port != 0 {
			what = net.JoinHostPort(r.Host, strconv.Itoa(int(r.Port)))
		}
		d := Denial{Wall: enforce.NetEgress, What: refusal(what, r.Host, r.Reason), Source: string(r.Source)}
		if r.Needed != "" {
			d.Needed = flow.Remedy(r.Needed)
		}
		if !seen[d] {
			seen[d] = true
			out = append(out, d)
		}
	}
	return out
}
