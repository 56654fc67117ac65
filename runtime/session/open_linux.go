package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"coworker/enforce"
	"coworker/enforce/enforcetest"
	"coworker/runtime/treescan"
	"coworker/runtime/ward"
	"coworker/runtime/wire"
)

// Options say what a session is made of. All values are required unless they say otherwise.
type Options struct {
	Spec     enforce.Spec
	Backend  enforce.Backend
	Program  *os.File      // from OpenProgram; stays owned by the caller
	StateDir string        // coworker's own state folder on the host
	MinLevel enforce.Level // below it the session is refused
	Recorder Recorder
	Notify   func(Notice) // told what the person must know, as it happens; must not block
	Now      func() time.Time
	Scan     treescan.Config
	Exclude  []string // folders that the scan leaves out and the cell does not see
	Lifted   []string // absolute paths whose protection a person lifted by name
	// OneCommand says that the session runs one command and is closed: trees are swept once, at the
	// end, by walking them again instead of by notification.
	OneCommand bool
	// Disk is by how many bytes the used space of the file systems that the session writes to may
	// grow; 0: no bound. A reserve of free space is kept in any case. DiskInterval is the longest
	// time between two looks; 0: one second.
	Disk         int64
	DiskInterval time.Duration
	Shown        []string // absolute paths that a person named although they look secret
	// Egress belongs to a Spec with a network; nil otherwise.
	Egress *Egress
	// Staged says that no writable tree changes until somebody applies what was written; StageStore is the absolute path of
	// the folder in which that is kept (see runtime/changes).
	Staged     bool
	StageStore string
}

// Session is a cell with proved walls. Its methods may be called from several goroutines.
type Session struct {
	life
	options     Options
	id          string
	cell        *enforce.Cell
	link        *cellLink
	ward        ward.Ward
	guard       *guard
	staging     staging
	egress      *egress
	refused     *refusals
	log         auditLog
	input       sync.Mutex // of the caller's standard input, see WhilePaused
	terminals   terminals
	disk        *diskWatch
	attestation Attestation
	attestID    string
	crash       *crashLog
	cleanUp     []func() error // in the order in which things were made
	journal     *os.File       // locked while the session lives
	journalName string
	phases      map[string]time.Duration
	lastLap     time.Time

	background sync.WaitGroup
	fellLate   error // of awaitFall, for the end of tearDown
	failMu     sync.Mutex
	failure    error
}

// Backends lists the backends of this build, best first.
func Backends() []enforce.Backend {
	return []enforce.Backend{nativeBackend{}, containerBackend{}, bareBackend{}}
}

// Open starts a cell, has its walls proved and returns it ready for commands. A *RefusedError
// says which wall did not hold. On any error nothing is left behind.
func Open(ctx context.Context, o Options) (*Session, error) {
	s := &Session{life: life{state: Starting}, options: o, id: randomName(8), phases: map[string]time.Duration{}}
	s.guard = &guard{session: s}
	if fault := enforcetest.Asked(); fault != "" {
		s.options.Spec.Fault = fault
	}
	s.options.Spec.Trees = slices.Clone(o.Spec.Trees)
	if err := s.open(ctx); err != nil {
		refusal := s.refusal(ctx, err)
		return nil, errors.Join(refusal, s.tearDown())
	}
	return s, nil
}

// refusal makes the error of a session that did not start, and its row.
func (s *Session) refusal(ctx context.Context, err error) error {
	var refused *RefusedError
	var scan *ScanError
	if errors.As(err, &scan) {
		return err // no wall is in question: the folder is
	}
	if !errors.As(err, &refused) {
		// No level was reached. Partial says the same as a row does: a required wall is missing; and
		// nothing was run.
		refused = &RefusedError{Level: enforce.Partial, Wanted: s.options.MinLevel, Cause: err}
		if av := s.options.Backend.Available(ctx); !av.OK { // ENOSPC is also how clone(2) says that there may be no more user namespaces
			refused.Cause = fmt.Errorf("%s: %w", av.Cause, err)
			refused.Remedy = av.Remedy
		} else if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			refused.Remedy = fmt.Sprintf("make room on the file system of %q or %q", s.options.StateDir, s.options.Spec.HomeStore)
		}
		s.stagingRemedy(refused)
		if text := s.crash.text(); text != "" {
			refused.Cause = fmt.Errorf("%w (%s)", refused.Cause, text)
		}
	}
	row := Event{Stage: "start", Status: "refused", Reason: refused.Error(), Level: refused.Level, Walls: s.attestation.Walls}
	if recordErr := s.options.Recorder.Record(context.WithoutCancel(ctx), s.attestID, row); recordErr != nil {
		return errors.Join(refused, recordErr)
	}
	return refused
}

func (s *Session) open(ctx context.Context) (err error) {
	s.lap("")
	canaries, err := newCanaries(s.options.StateDir, s.id)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, canaries.close()) }()
	scratch, err := s.newScratch(ctx, &canaries.targets)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scratch.close()) }()
	s.lap("canaries")
	if err := s.start(ctx, scratch.tree); err != nil {
		return err
	}
	s.lap("start")
	if err := s.move(Proving); err != nil {
		return err
	}
	proved, err := s.prove(ctx, canaries)
	if err != nil {
		return err
	}
	s.lap("prove")
	for name, micros := range proved.Micros {
		s.phases["cell-"+name] = time.Duration(micros) * time.Microsecond
	}
	probes := append(proved.Probes, outsideChecks(s.cell.Pid, s.options.Backend, canaries.targets)...)
	probes = append(probes, slices.Concat(s.wardChecks(), s.guardChecks())...)
	probes = append(probes, canaries.touched()...)
	probes = append(probes, s.stagedChecks()...)
	if probes, err = scratch.judge(ctx, probes, s); err != nil {
		return err
	}
	s.lap("outside")
	halves, err := s.halves(ctx)
	if err != nil {
		return err
	}
	probes = append(probes, halves...)
	s.lap("halves")
	defer s.lap("admit")
	return s.admit(ctx, proved, plain(probes, canaries.targets))
}

// lap notes how long a phase of the start took; an empty name starts the clock.
func (s *Session) lap(phase string) {
	now := s.options.Now()
	if phase != "" {
		s.phases[phase] = now.Sub(s.lastLap)
	}
	s.lastLap = now
}

// Phases tells how long each phase of the start took, for benchmarks and --debug.
func (s *Session) Phases() map[string]time.Duration { return s.phases }

// start makes the wire, the cell and its limits.
func (s *Session) start(ctx context.Context, scratch *enforce.Tree) error {
	conn, peer, err := wire.Pair("cell-wire")
	if err != nil {
		return err
	}
	defer peer.Close()
	if s.crash, err = newCrashLog(); err != nil {
		conn.Close()
		return err
	}
	s.link = newCellLink(conn)
	s.undo(s.guard.close)
	s.undo(s.closeJournal)
	s.undo(func() error { return s.guard.final(context.WithoutCancel(ctx)) })
	s.undo(s.crash.close)
	s.undo(func() error { s.link.fail(os.ErrClosed); return nil })
	spec := s.options.Spec
	if enforcetest.Off(spec, enforce.Res) {
		spec.Limits = enforce.Limits{}
	}
	request := ward.Request{
		Name: s.id, Limits: spec.Limits, Literals: spec.Literals,
		NoEgress: enforcetest.Off(spec, faultEBPF), Guard: s.options.MinLevel >= enforce.Hardened && !enforcetest.Off(spec, faultGuard),
	}
	if s.ward, err = openWard(request); err != nil {
		s.crash.started()
		return err
	}
	s.undo(s.ward.Remove)
	s.listenToWard()
	s.openAuditLog()
	s.egress = s.newEgress()
	s.undo(s.egress.close)
	// In the group before the cell opens its first socket: a socket keeps the group of its birth.
	launch := enforce.Launch{
		Identity: spec.Identity, Fault: spec.Fault, Complete: func() (enforce.Spec, error) { return s.complete(ctx, scratch) },
		Program: s.options.Program, CellWire: peer, Stderr: s.crash.writer, Made: s.egress.begin, Join: s.ward.Join, Leave: s.ward.Leave, Lend: lender(s.ward),
	}
	s.cell, err = s.options.Backend.Start(ctx, launch)
	s.crash.started()
	if err != nil {
		return err
	}
	s.log.watch(s.cell.Pid)
	s.undo(s.killCell)
	if err := s.egress.started(); err != nil {
		return err
	}
	if s.attestation.SpecDigest == "" {
		return fmt.Errorf("bug: backend %s started a cell without the whole spec", s.options.Backend.Name())
	}
	if err := s.tellTrees(); err != nil {
		return err
	}
	s.lap("keeper")
	s.background.Go(s.listen)
	s.background.Go(s.awaitFall)
	return nil
}

// complete looks at the trees and makes what the Spec names, while the keeper starts.
func (s *Session) complete(ctx context.Context, scratch *enforce.Tree) (enforce.Spec, error) {
	if s.attestation.SpecDigest != "" {
		return enforce.Spec{}, errors.New("bug: the spec of one session was completed twice")
	}
	s.lap("fork")
	if err := s.scanTrees(ctx); err != nil {
		return enforce.Spec{}, err
	}
	s.lap("scan")
	if err := errors.Join(s.reportInterrupted(ctx), s.openJournal()); err != nil {
		return enforce.Spec{}, err
	}
	s.tellWorktree()
	if err := s.prepareHome(); err != nil {
		return enforce.Spec{}, err
	}
	if err := s.openDisk(); err != nil {
		return enforce.Spec{}, err
	}
	// Of what was asked for, not of the scratch repository, whose name differs each time.
	var err error
	if s.attestation.SpecDigest, err = specDigest(s.options.Spec); err != nil {
		return enforce.Spec{}, err
	}
	if scratch != nil {
		s.options.Spec.Trees = append(s.options.Spec.Trees, *scratch)
	}
	s.lap("prepare")
	return s.options.Spec, nil
}

// undo registers what Close does, in reverse order.
func (s *Session) undo(f func() error) { s.cleanUp = append(s.cleanUp, f) }

// prove lets the cell raise its walls and attack them.
func (s *Session) prove(ctx context.Context, c *canaries) (*wire.Proved, error) {
	if enforcetest.Off(s.options.Spec, enforce.Env) {
		s.options.Spec.Env = append(slices.Clone(s.options.Spec.Env), os.Environ()...)
	}
	c.targets.Egress = s.egress.targets(s.cell.Egress)
	ctx, cancel := context.WithTimeout(ctx, proveLimit)
	defer cancel()
	c.targets.EBPF = s.ward.State().Egress.Hooks
	begin := wire.Begin{Backend: s.options.Backend.Name(), Spec: s.options.Spec, Targets: c.targets, LogDenials: s.log.source != nil}
	proved := &wire.Proved{}
	return proved, s.link.request(ctx, wire.TypeBegin, begin, wire.TypeProved, proved)
}

// proveLimit bounds how long a cell may take to raise its walls and attack them. It takes some tens
// of milliseconds; the rest is for a machine that does many things at once.
const proveLimit = time.Minute

// listen serves the link and ends a cell whose link ended: one that broke the rules or left its wire
// must not go on running until somebody closes the session.
func (s *Session) listen() {
	s.link.listen()
	if errors.Is(s.link.reason(), errCellGone) {
		select {
		case <-s.cell.Ended: // as it should; killing the keeper now would lose how
			return
		case <-time.After(time.Second):
		}
	}
	s.endCell()
}

// endCell ends the cell ahead of Close, frozen or not.
func (s *Session) endCell() {
	if err := errors.Join(s.cell.Kill(), s.ward.Kill()); err != nil {
		s.options.Notify(Notice{Text: "end the cell: " + err.Error()})
	}
}

// admit decides on the evidence, stores the attestation and opens the session for commands.
func (s *Session) admit(ctx context.Context, proved *wire.Proved, probes []enforce.Probe) error {
	limits := mergeLimits(s.options.Spec.Limits, proved.Limits, s.ward.Limits(), []enforce.Limit{s.disk.limit()}, s.timeLimit())
	mechanisms := mechanismsOf(s.options.Backend.Name(), proved, limits, s.ward.State())
	s.stagedMechanisms(mechanisms)
	verdict := enforce.Assess(enforce.Evidence{Probes: probes, Mechanisms: mechanisms, Limits: limits})
	s.attestation = Attestation{
		Version: 1, Backend: s.options.Backend.Name(), Level: verdict.Level, Walls: verdict.Walls, Missing: verdict.Missing, Lacking: verdict.Lacking,
		Probes: probes, Limits: limits, Landlock: proved.LandlockABI, Rights: proved.Rights,
		Kernel: kernelRelease(), Cell: CellDigest, Proxy: s.proxyDigest(), SpecDigest: s.attestation.SpecDigest, Notes: slices.Concat(s.cell.Notes, s.egress.notes(), wardNotes(s.ward.State())),
	}
	document, err := json.Marshal(s.attestation)
	if err != nil {
		return err
	}
	if s.attestID, err = s.options.Recorder.Attest(ctx, document); err != nil {
		return err
	}
	if verdict.Level < s.options.MinLevel {
		return errors.Join(&RefusedError{Level: verdict.Level, Wanted: s.options.MinLevel, Missing: slices.Concat(verdict.Missing, verdict.Lacking), Attestation: &s.attestation}, s.move(Refused))
	}
	if err := s.cell.Settled(); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	var ready wire.Empty
	if err := s.link.request(waiting, wire.TypeCommit, wire.Empty{}, wire.TypeReady, &ready); err != nil {
		return err
	}
	if err := s.egress.settle(); err != nil {
		return err
	}
	s.refused.settle()
	if err := s.guard.startWatch(); err != nil {
		return err
	}
	s.undo(func() error { s.guard.endWatch(); return nil })
	s.watchDisk()
	s.undo(s.disk.close)
	if err := s.record(ctx, Event{Stage: "start", Status: "ok", Args: []string{s.options.Spec.Workspace}}); err != nil {
		return err
	}
	return s.move(Ready)
}

// record adds the session's level to an event and stores it.
func (s *Session) record(ctx context.Context, events ...Event) error {
	for i := range events {
		events[i].Level, events[i].Walls = s.attestation.Level, s.attestation.Walls
	}
	return s.options.Recorder.Record(ctx, s.attestID, events...)
}

// ID names the session in reports, rows and held files.
func (s *Session) ID() string { return s.id }

// Attestation returns what was proved, and the id under which it is stored.
func (s *Session) Attestation() (Attestation, string) { return s.attestation, s.attestID }

// Close ends everything inside, sweeps the trees a last time and removes what the session made.
// It is safe to call it twice.
func (s *Session) Close() error {
	if s.current() == Closed {
		return nil
	}
	return s.tearDown()
}

// tearDown undoes what was made, in reverse order. Sweeping comes after the cell is dead: nothing
// can put a file back then.
func (s *Session) tearDown() error {
	if err := s.move(Closing); err != nil {
		return err
	}
	s.egress.stopAsking()
	var errs []error
	for _, undo := range slices.Backward(s.cleanUp) {
		errs = append(errs, undo())
	}
	s.background.Wait()
	return errors.Join(append(errs, s.fellLate, s.move(Closed))...)
}

func (s *Session) killCell() error {
	err := errors.Join(s.cell.Kill(), s.ward.Kill())
	if s.cell.MountInfo != nil {
		err = errors.Join(err, s.cell.MountInfo.Close())
	}
	return errors.Join(err, waitGone(s.cell.Pid))
}

// waitGone waits until a process that was killed has ended, bounded: a process that hangs in the
// kernel must not hang the supervisor.
func waitGone(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("watch the end of process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, int(killedLimit.Milliseconds()))
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return fmt.Errorf("watch the end of process %d: %w", pid, err)
		case n == 0:
			return fmt.Errorf("process %d was killed and is still there after %v", pid, killedLimit)
		}
		return nil
	}
}

// fail ends a session in which a wall fell or the cell broke the rules.
func (s *Session) fail(err error) {
	s.failMu.Lock()
	if s.failure == nil {
		s.failure = err
	}
	s.failMu.Unlock()
	s.egress.stopAsking()
	s.link.fail(err)
	s.endCell()
}

func (s *Session) failed() error {
	s.failMu.Lock()
	defer s.failMu.Unlock()
	return s.failure
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}

// crashLog keeps the first part of what the keeper and the cell write to their standard error.
// Commands have their own; this is for a crash of coworker's code.
type crashLog struct {
	writer *os.File
	reader *os.File
	done   chan struct{}
	buf    strings.Builder
}

const maxCrash = 8 << 10

func newCrashLog() (*crashLog, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("pipe for the cell's standard error: %w", err)
	}
	c := &crashLog{writer: w, reader: r, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		io.Copy(&c.buf, io.LimitReader(r, maxCrash))
		io.Copy(io.Discard, r)
	}()
	return c, nil
}

// started closes this process's copy of the writing end.
func (c *crashLog) started() { c.writer.Close() }

// text waits for the end of the writers and returns what they wrote. Call it when they are dead.
func (c *crashLog) text() string {
	if c == nil {
		return ""
	}
	select {
	case <-c.done:
	case <-time.After(200 * time.Millisecond):
		return ""
	}
	return strings.TrimSpace(c.buf.String())
}

func (c *crashLog) close() error {
	c.writer.Close()
	err := c.reader.Close()
	<-c.done
	return err
}
