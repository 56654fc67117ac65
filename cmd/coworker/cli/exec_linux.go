package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"coworker/enforce"
	"coworker/platform/audit"
	"coworker/runtime/session"
)

// execute runs one command: settings → Spec → session → command → end, and fills in the report on the way.
func execute(ctx context.Context, e *environment, f execFlags, r *report) error {
	begun := e.now()
	defer func() { r.DurationMS = e.now().Sub(begun).Milliseconds() }()
	f = e.forLearning(f)
	host, err := localHost()
	if err != nil {
		return err
	}
	p, err := e.decide(ctx, f, host)
	if err != nil {
		return err
	}
	defer p.close()
	r.DroppedEnv, r.NamedSecrets = jsonTexts(p.plan.Summary.DroppedEnv), len(p.plan.Summary.NamedSecrets)
	if p.plan.Level == enforce.Direct {
		if f.level == enforce.Direct.String() {
			if f.ask || f.net != "" || len(f.allow) > 0 {
				return &usageError{text: "--level direct has no wall around the network, so --allow, --net and --ask would hold nothing back", hint: "leave them out, or leave --level direct out"}
			}
			return e.runDirect(ctx, f, p, r)
		}
		p.plan.Level = enforce.Partial // the settings name a minimum; without walls only by a flag
	}
	p.once = true
	ports, err := parsePorts(f.publish)
	if err != nil {
		return err
	}
	rec := e.recorder(context.WithoutCancel(ctx), p, "exec")
	defer rec.close()
	stop := followSignals(ctx)
	defer stop.end()
	x := &execution{environment: e, flags: f, planned: p, report: r, record: rec, stop: stop, ports: ports}
	return x.run()
}

// execution is one exec from the first signal handler to the summary.
type execution struct {
	*environment
	*planned
	flags  execFlags
	report *report
	record *recorder
	stop   *interrupts
	ports  []port
	tty    *os.File   // of the person, with --ask
	talk   sync.Mutex // held by what writes to the person's terminal, and by a question as long as it stands

	mu      sync.Mutex
	session *session.Session // written once, before the command starts
	notices []session.Notice
}

func (x *execution) run() error {
	if x.flags.ask {
		tty, err := openTerminal()
		if err != nil {
			return err
		}
		defer tty.Close()
		x.tty, x.egress.Ask = tty, x.ask
	}
	s, err := x.open(x.stop.ctx, x.planned, x.record, x.notify)
	if err != nil {
		x.report.refused(err)
		if code := x.stop.code(); code != 0 {
			return &statusError{code}
		}
		return err
	}
	x.mu.Lock()
	x.session = s
	x.mu.Unlock()
	x.record.name(s.ID())
	attestation, id := s.Attestation()
	x.report.proved(attestation)
	x.report.Attestation = id
	x.report.TrackedSecrets, x.report.Watching = jsonTexts(s.TrackedSecrets()), append(s.Watching(), "inferred")
	x.warnPartial(attestation)
	x.stop.onSecond(func() { s.Close() })

	streams := x.streams()
	result, err := x.command(streams)
	err = errors.Join(err, s.Close())
	x.network()
	for _, item := range s.Held() {
		x.report.Held = append(x.report.Held, heldReport{ID: item.ID, Path: jsonText(item.Workspace + "/" + item.Rel), Reason: item.Reason})
	}
	err = errors.Join(err, x.recordEnd(result, err))
	err = errors.Join(err, x.settle(result, err))
	err = errors.Join(err, x.learned(result))
	outcome := x.outcome(result, err)
	x.summarise(result, streams, outcome)
	return outcome
}

func (x *execution) notify(n session.Notice) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !slices.Contains(x.notices, n) {
		x.notices = append(x.notices, n)
	}
}

// warnPartial names what is missing, on every result of a weaker session.
func (x *execution) warnPartial(a session.Attestation) {
	if a.Level >= enforce.Enforced {
		return
	}
	x.note("warning", fmt.Sprintf("level %s: %s", a.Level, strings.Join(a.Missing, "\n")), "")
}

// outputs are where the command's output goes, with an eye on refused writes.
type outputs struct {
	command session.Command
	seen    []*textWatch
}

func (x *execution) streams() *outputs {
	o := &outputs{}
	watch := func(w io.Writer) io.Writer {
		var look []sign
		if !x.plan.Summary.Writable {
			look = append(look, readOnly)
		}
		if x.egress == nil {
			look = append(look, noNetwork)
		}
		if len(look) == 0 {
			return w
		}
		seen := &textWatch{w: w, look: look}
		o.seen = append(o.seen, seen)
		return seen
	}
	o.command = session.Command{Argv: x.flags.command, Timeout: x.plan.Timeout}
	if x.flags.tty {
		o.command.Terminal = &session.Terminal{In: x.in, Out: watch(x.inTurn(x.environment.out))}
		return o
	}
	o.command.Stdin, o.command.Stdout, o.command.Stderr = x.in, x.shown(x.environment.out), watch(x.shown(x.environment.err))
	return o
}

// shown is w without control over the person's clipboard, if w is a terminal. A file or a pipe gets every byte.
func (x *execution) shown(w io.Writer) io.Writer {
	if isTerminal(w) {
		return session.NewClipboardFilter(x.inTurn(w))
	}
	return w
}

// command records the command, then runs it.
func (x *execution) command(o *outputs) (session.Result, error) {
	if err := errors.Join(x.recordRules(), x.event("started", "", "")); err != nil {
		return session.Result{}, err
	}
	closePorts, err := x.publish()
	if err != nil {
		return session.Result{}, err
	}
	started := x.now()
	result, err := x.session.Run(x.stop.ctx, o.command)
	if result.Started {
		x.report.Started = &started
	}
	return result, errors.Join(err, closePorts(), x.limits())
}

// limits takes over the limits that the session ran into, each with a row. They are counted by the control group,
// which ends with the session.
func (x *execution) limits() error {
	denials := x.session.Denials()
	x.report.Denials = append(x.report.Denials, denials...)
	a, id := x.session.Attestation()
	var rows []session.Event
	for _, d := range denials {
		rows = append(rows, session.Event{Stage: "limit", Status: "hit", Reason: d.What, Resource: string(d.Wall), Level: a.Level, Walls: a.Walls})
	}
	if len(rows) == 0 {
		return nil
	}
	return x.record.Record(context.WithoutCancel(x.stop.ctx), id, rows...)
}

func (x *execution) event(status, reason, outcome string) error {
	a, id := x.session.Attestation()
	return x.record.Record(context.WithoutCancel(x.stop.ctx), id, session.Event{
		Stage: "exec", Status: status, Reason: reason, Args: x.flags.command, CallID: x.session.ID() + "/1", Result: outcome,
		Level: a.Level, Walls: a.Walls,
	})
}

func (x *execution) recordEnd(result session.Result, err error) error {
	if errors.Is(err, audit.ErrNotRecorded) {
		return nil // it was not run, and there is no use in a second attempt
	}
	status, reason := "ok", result.Reason
	switch {
	case err != nil:
		status, reason = "error", err.Error()
	case result.TimedOut:
		status = "timeout"
		x.report.Denials = append(x.report.Denials, session.Denial{
			Wall: enforce.Res, What: fmt.Sprintf("time limit of %v", x.plan.Timeout), Needed: "--timeout", Source: "limit",
		})
	case !result.Started:
		status = "not started"
	case result.Code != 0:
		status = "failed"
	}
	if err != nil {
		return x.event(status, reason, "")
	}
	return x.event(status, reason, fmt.Sprintf("exit code %d", result.Code))
}

// outcome decides how exec itself ends.
func (x *execution) outcome(result session.Result, err error) error {
	code := x.stop.code()
	var lost *session.LostError
	var limit *session.LimitError
	switch {
	case errors.As(err, &limit):
		return &limitError{err: err, hint: limit.Hint()}
	case err != nil && code != 0 && (errors.As(err, &lost) || x.stop.twice()):
		return &statusError{code} // the second signal ends the session under the command
	case err != nil:
		return err
	case result.TimedOut:
		return &timeoutError{x.plan.Timeout}
	case !result.Started:
		return &startError{name: x.flags.command[0], reason: result.Reason, code: result.Code}
	case code != 0 && result.Signal != 0:
		return &statusError{code}
	case result.Code != 0:
		return &statusError{result.Code}
	}
	return nil
}

// summarise tells the person, once the command has stopped talking, what was held back and what would have helped.
func (x *execution) summarise(result session.Result, o *outputs, outcome error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if folders, files := x.session.Shared(); folders+files > 0 && x.plan.Summary.Writable {
		x.note("note", fmt.Sprintf("%d folders (%d files looked at) are hard links into a shared package store: writing one writes the store", folders, files), "")
	}
	for _, n := range x.notices {
		x.note("note", n.Text, n.Hint)
	}
	x.summariseNet()
	x.summariseRest()
	if outcome == nil || !result.Started {
		return
	}
	met := func(s sign) bool { return slices.ContainsFunc(o.seen, func(w *textWatch) bool { return w.met(s) }) }
	if met(noNetwork) {
		x.report.Denials = append(x.report.Denials, session.Denial{Wall: enforce.NetEgress, What: "a connection, in a session without a network", Needed: "--allow", Source: "inferred"})
		x.note("note", "this session has no network", "--allow HOST lets it reach one, --allow registries the package registries")
	}
	if met(readOnly) {
		x.report.Denials = append(x.report.Denials, session.Denial{Wall: enforce.FSWrite, What: "a write to a read-only place", Needed: "-w", Source: "inferred"})
		x.note("note", "the command met a read-only file system", x.plan.Summary.Hint)
	}
	for i, text := range x.plan.Summary.Notes {
		if i == 5 {
			x.note("note", fmt.Sprintf("and %d more", len(x.plan.Summary.Notes)-i), "")
			break
		}
		x.note("note", text, "")
	}
}

// summariseRest tells about limits, and about files where a source in the kernel saw that they were refused.
func (x *execution) summariseRest() {
	const most = 10
	files := 0
	for _, d := range x.report.Denials {
		switch {
		case !strings.HasPrefix(d.Needed, "-") || d.Needed == "--timeout" || d.Wall == enforce.NetEgress || d.Source == "inferred":
			// That is the error itself, or was told already, or is yet to be.
		case d.Wall == enforce.Res:
			x.note("denied", fmt.Sprintf("%s: %s", d.Wall, d.What), d.Needed+" raises it")
		default:
			if files++; files <= most {
				x.note("denied", fmt.Sprintf("%s: %s", d.Wall, d.What), d.Needed+" allows it")
			}
		}
	}
	if files > most {
		x.note("denied", fmt.Sprintf("and %d more", files-most), "--report FILE lists them")
	}
}
