package netproxy

import (
	"context"
	"errors"
	"net/http"
	"time"

	"coworker/netproxy/dial"
	"coworker/netproxy/dns"
	"coworker/netproxy/flow"
	"coworker/netproxy/hostmatch"
	"coworker/netproxy/request"
)

// attempt is one try to reach something, from the decision to the record.
type attempt struct {
	e     *engine
	place place
	rule  hostmatch.Decision
	rec   flow.Record
	told  bool
}

// refusal is why an attempt ends without success, and what the client is answered.
type refusal struct {
	status int
	reply  request.SOCKSReply
	reason string
	needed string
}

func (r *refusal) Error() string { return r.reason }

func denied(reason, needed string) *refusal {
	return &refusal{http.StatusForbidden, request.SOCKSNotAllowed, reason, needed}
}

// begin makes the attempt that decide judges. A host that could not be read is zero.
func (e *engine) begin(src flow.Source, protocol string, p place) *attempt {
	a := &attempt{e: e, place: p}
	a.rec = flow.Record{Source: src, Protocol: protocol, Port: p.port, Begun: time.Now(), Verdict: flow.Deny, Battery: !e.settled.Load()}
	if !p.host.IsZero() {
		a.rec.Host = p.host.String()
	}
	return a
}

// decide judges host and port by the rules, and asks if somebody can be asked.
func (a *attempt) decide(ctx context.Context) *refusal {
	if addr, ok := a.place.host.Addr(); ok && dns.IsSynthetic(addr) {
		a.rec.Reason = addr.String() + " stands for no name of this session" // so no rule could be about it
		return denied(a.rec.Reason, "")
	}
	a.rule = a.e.book.decide(ctx, a.place.host, a.place.port, a.rec.Source)
	a.rec.Rule, a.rec.Reason = a.rule.Rule, a.rule.Reason
	if a.rule.Verdict != hostmatch.Allow {
		return denied(a.rule.Reason, a.rule.Needed)
	}
	a.rec.Verdict = flow.Allow
	a.rec.Inspected = !a.rule.Raw
	return nil
}

// dial connects to where decide allowed. plain: requests in clear text follow.
func (a *attempt) dial(ctx context.Context, plain bool) (dial.Result, *refusal) {
	res, err := a.e.dialer.Dial(ctx, dial.Target{Host: a.place.host, Port: a.place.port, Grant: a.rule.Grant, Plain: plain})
	if err == nil {
		a.reached(res)
		return res, nil
	}
	var no *dial.Refusal
	if errors.As(err, &no) {
		needed := ""
		if no.Pin.IsValid() {
			needed = a.place.host.Authority(a.place.port) + "=" + no.Pin.String()
		}
		return res, denied(no.Reason, needed)
	}
	r := &refusal{http.StatusBadGateway, request.SOCKSUnreachable, err.Error(), ""}
	var failure *dial.Failure
	if errors.As(err, &failure) && failure.Timeout {
		r.status = http.StatusGatewayTimeout
	}
	return res, r
}

func (a *attempt) reached(res dial.Result) {
	a.rec.Addr = res.Addr.String()
	if res.ByUpstream {
		a.rec.ResolvedBy = "upstream"
	}
}

// refuse notes why the attempt failed. What the rules allow and the network did not is an allowed flow that broke.
func (a *attempt) refuse(r *refusal) {
	if r.status == http.StatusBadGateway || r.status == http.StatusGatewayTimeout {
		a.rec.Broken = r.reason
		return
	}
	a.rec.Verdict, a.rec.Reason, a.rec.Needed = flow.Deny, r.reason, r.needed
}

// tell ends the attempt with its record, once.
func (a *attempt) tell() {
	if a.told {
		return
	}
	a.told = true
	a.rec.Duration = time.Since(a.rec.Begun)
	a.e.records.report(a.rec)
}

// named gives the name that a synthetic address stands for: clients with a SOCKS library often resolve before they ask.
func (e *engine) named(p place) place {
	if a, literal := p.host.Addr(); literal {
		if h, known := e.names.Host(a); known {
			p.host = h
		}
	}
	return p
}

// isProbe says that an attempt is the battery's, which is answered here until the walls are proved.
func (e *engine) isProbe(p place) bool {
	return !e.settled.Load() && e.cfg.Probe.Name != "" && p.port == 443 && p.host == e.probe
}

// refusalOf turns the error of a parser into what the client is answered.
func refusalOf(err error) *refusal {
	var bad *request.Refusal
	var socks *request.SOCKSRefusal
	switch {
	case errors.As(err, &bad):
		return &refusal{bad.Status, request.SOCKSFailure, bad.Reason, ""}
	case errors.As(err, &socks):
		return &refusal{http.StatusBadRequest, socks.Reply, socks.Reason, ""}
	case errors.Is(err, errHeadTime):
		return &refusal{http.StatusRequestTimeout, request.SOCKSFailure, err.Error(), ""}
	}
	return denied(err.Error(), "")
}
