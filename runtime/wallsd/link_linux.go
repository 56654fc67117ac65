package wallsd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"coworker/enforce/cgroup"
	"coworker/runtime/ward"
)

// link is one connection, and the session that it holds.
//
// Three goroutines: serve reads, and ends everything when it cannot; work does one request after the other; events tells
// what the kernel refused. Only kill does not wait in the queue.
type link struct {
	server  *Server
	peer    *peer
	packets *packets
	session string
	ward    *ward.Local
	seq     uint64
	queue   chan queued
	unheard atomic.Int64
	removed bool // of work: the client removed the session itself
	lines   int  // of serve and, after it, of the end

	moving sync.Mutex // held from a move to the check that it moved the right process; who kills holds it too
	joined []member   // of work
	trees  []byte     // of work: parts of the list
	listed bool       // of work: the list was complete
}

// queued is a request that waits, with what came along.
type queued struct {
	request *request
	files   []int
}

// member is a process that joined, with the descriptor that names it.
type member struct {
	target
	fd   int
	left bool
}

// Bounds of one session.
const (
	maxQueue  = 16
	maxJoined = 8
	maxOwn    = 32 // lines in the log
)

func newLink(s *Server, conn *net.UnixConn, p *peer) *link {
	return &link{server: s, peer: p, packets: newPackets(conn), queue: make(chan queued, maxQueue)}
}

// serve runs the connection until its end.
func (l *link) serve() {
	opened, err := l.shake()
	if err != nil && !gone(err) {
		l.log("connect", "refused", err)
	}
	if !opened {
		return
	}
	var parts sync.WaitGroup
	parts.Go(l.work)
	var events sync.WaitGroup
	events.Go(l.events)
	err = l.read()
	// Who asked is gone, or is not listened to any more: everything dies now, whatever the worker does.
	killErr := l.kill()
	close(l.queue)
	parts.Wait()
	if gone(err) {
		err = nil
	}
	err = errors.Join(err, killErr, l.finish())
	events.Wait()
	for _, m := range l.joined {
		unix.Close(m.fd)
	}
	verdict := "ok"
	if err != nil {
		verdict = "failed"
	}
	l.lines = 0 // the last line is always written
	l.log("close", verdict, err)
}

// shake does what comes before a session: within a time, because nothing bounds how many come without ever opening one.
func (l *link) shake() (opened bool, err error) {
	conn := l.packets.conn
	if err := conn.SetReadDeadline(time.Now().Add(shakeLimit)); err != nil {
		return false, err
	}
	r, err := l.next(opHello)
	if err != nil {
		return false, l.refuse(r, err)
	}
	if r.Version != Version {
		return false, l.refuse(r, fmt.Errorf("the client speaks version %d, this helper %d", r.Version, Version))
	}
	if err := l.packets.send(answer{Seq: r.Seq, Version: Version, Build: l.server.config.Build}, answerLimit); err != nil {
		return false, err
	}
	if r, err = l.next(opOpen); err != nil {
		return false, l.refuse(r, err)
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return false, err
	}
	l.session = r.Name
	limits := bounded(*r.Limits, l.server.config.Most)
	l.ward, err = ward.Open(ward.Request{
		Name: GroupName(l.peer.uid, r.Name), Limits: limits, Literals: r.Literals, NoEgress: r.NoEgress, Guard: r.Guard, Below: l.server.config.Below,
	})
	if err != nil {
		return false, l.refuse(r, err)
	}
	if err := l.ward.Made(); err != nil { // a name twice, or no control groups: that is no ward
		return false, errors.Join(l.refuse(r, err), l.ward.Remove())
	}
	l.log("open", "ok", nil)
	err = l.packets.send(answer{Seq: r.Seq, Limits: l.ward.Limits(), CanFreeze: l.ward.CanFreeze()}, answerLimit)
	return true, err
}

// refuse tells why there is no session; an end without a word gets none.
func (l *link) refuse(r *request, err error) error {
	if r != nil || errors.Is(err, errProtocol) {
		a := answer{Seq: 1, Error: err.Error()}
		if r != nil {
			a.Seq = r.Seq
		}
		_ = l.packets.sendNow(a)
	}
	return err
}

// next reads one request of the beginning, which carries no descriptor.
func (l *link) next(want op) (*request, error) {
	r, files, err := l.receive()
	closeAll(files)
	switch {
	case err != nil:
		return nil, err
	case len(files) > 0 || r.Op != want:
		return nil, fmt.Errorf("%w: %q with %d descriptors, %q comes now", errProtocol, r.Op, len(files), want)
	}
	return r, nil
}

func (l *link) receive() (*request, []int, error) {
	data, files, err := l.packets.receive()
	if err != nil {
		return nil, nil, err
	}
	r, err := decodeRequest(data)
	if err == nil && r.Seq <= l.seq {
		err = fmt.Errorf("%w: request %d after %d", errProtocol, r.Seq, l.seq)
	}
	if err != nil {
		closeAll(files)
		return nil, nil, err
	}
	l.seq = r.Seq
	return r, files, nil
}

// read takes requests until there are no more.
func (l *link) read() error {
	for {
		r, files, err := l.receive()
		if err != nil {
			return err
		}
		wants := 0
		if r.Op == opJoin {
			wants = 1
		}
		if len(files) != wants {
			closeAll(files)
			return fmt.Errorf("%w: %q with %d descriptors, wants %d", errProtocol, r.Op, len(files), wants)
		}
		if r.Op == opKill {
			if err := l.packets.send(l.answer(r, l.kill()), answerLimit); err != nil {
				return err
			}
			continue
		}
		select {
		case l.queue <- queued{request: r, files: files}:
		default:
			closeAll(files)
			return fmt.Errorf("%w: more than %d requests at once", errProtocol, maxQueue)
		}
	}
}

// work answers requests in their order. When one cannot be answered the connection is closed, and read ends it.
func (l *link) work() {
	for q := range l.queue {
		a := l.do(q)
		if err := l.packets.send(a, answerLimit); err != nil {
			l.packets.conn.Close()
		}
	}
}

func (l *link) answer(r *request, err error) answer {
	a := answer{Seq: r.Seq}
	if err != nil {
		a.Error, a.NotQuiet = err.Error(), errors.Is(err, cgroup.ErrNotQuiet)
	}
	return a
}

func (l *link) do(q queued) answer {
	r := q.request
	var err error
	ticket := 0
	switch r.Op {
	case opJoin:
		ticket, err = l.join(q.files[0])
		l.verdict(r.Op, err)
	case opLeave:
		err = l.leave(r.Ticket)
	case opGuard:
		err = l.guard(r)
	case opFreeze:
		err = l.ward.Freeze(r.Limit)
	case opThaw:
		err = l.ward.Thaw()
	case opRemove:
		err = l.finish()
	case opCheck:
		err = l.ward.Check()
	case opCounts, opState:
	default:
		err = fmt.Errorf("%w: %q comes at the beginning", errProtocol, r.Op)
	}
	a := l.answer(r, err)
	a.Ticket = ticket
	switch r.Op {
	case opCounts, opRemove:
		counts := l.ward.Counts()
		counts.Unheard += l.unheard.Load()
		a.Counts = &counts
	case opState:
		state := l.state()
		a.State = &state
	}
	return a
}

func (l *link) state() ward.State {
	s := l.ward.State()
	s.Helper = true
	return s
}

// join moves a process of the peer into the session's group. It owns the descriptor.
func (l *link) join(fd int) (ticket int, err error) {
	kept := false
	defer func() {
		if !kept {
			unix.Close(fd)
		}
	}()
	if len(l.joined) == maxJoined {
		return 0, fmt.Errorf("%w: %d processes joined already", errTarget, maxJoined)
	}
	if l.removed {
		return 0, errors.New("the session was removed")
	}
	t, err := l.peer.examine(fd)
	if err != nil {
		return 0, err
	}
	hook(l.server.checked, t.pid)
	if err := l.move(*t, fd, func() error { return l.ward.Join(t.pid) }); err != nil {
		return 0, err
	}
	kept = true
	l.joined = append(l.joined, member{target: *t, fd: fd})
	return len(l.joined), nil
}

// leave moves a process back to where it was when it joined.
func (l *link) leave(ticket int) error {
	if ticket < 1 || ticket > len(l.joined) || l.joined[ticket-1].left {
		return fmt.Errorf("%w: there is no ticket %d", errProtocol, ticket)
	}
	m := &l.joined[ticket-1]
	if !alive(m.fd) {
		return fmt.Errorf("%w: it has ended", errTarget)
	}
	hook(l.server.checked, m.pid)
	m.left = true
	return l.move(m.target, m.fd, func() error { return l.ward.Leave(m.pid) })
}

// move moves a process by its number and makes sure that the number meant the same process all the time: the kernel has no
// move by descriptor. One that took the number over goes to where its parent is, and the session ends.
func (l *link) move(t target, fd int, by func() error) error {
	l.moving.Lock()
	defer l.moving.Unlock()
	err := by()
	hook(l.server.moved, t.pid)
	if alive(fd) {
		return err
	}
	if foreign := l.expel(t); foreign != nil {
		l.packets.conn.Close()
		return errors.Join(err, foreign)
	}
	return errors.Join(err, fmt.Errorf("%w: it ended meanwhile", errTarget))
}

// expel takes a process, and what it forked since, out of the group if it is not the one that was meant.
func (l *link) expel(t target) error {
	// Not by the time of its start, which is counted in hundredths of a second: the one that was meant has ended.
	now, err := readStat(t.pid)
	if err != nil || now.dead {
		return nil // the number means nobody, or somebody whom nothing can be done to any more
	}
	out := fmt.Errorf("%w: the number %d was used again by another process, which was taken out", errTarget, t.pid)
	for _, pid := range append([]int{t.pid}, childrenOf(t.pid)...) {
		if err := l.ward.Expel(pid, max(now.parent, 1)); err != nil && !errors.Is(err, unix.ESRCH) {
			out = errors.Join(out, err)
		}
	}
	return out
}

func childrenOf(pid int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []int
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if s, err := readStat(n); err == nil && s.parent == pid {
			out = append(out, n)
		}
	}
	return out
}

// guard collects the parts of the list of trees and hands it on. Paths in it are looked at with the peer's own rights, so
// that the answer tells the peer nothing that it could not find out itself.
func (l *link) guard(r *request) error {
	if l.listed {
		return fmt.Errorf("%w: the trees were told already", errProtocol)
	}
	if len(l.trees)+len(r.Part) > maxTrees {
		l.trees, l.listed = nil, true
		return fmt.Errorf("%w: trees of more than %d bytes", errProtocol, maxTrees)
	}
	l.trees = append(l.trees, r.Part...)
	if !r.Last {
		return nil
	}
	l.listed = true
	trees, err := decodeTrees(l.trees)
	l.trees = nil
	if err == nil {
		err = l.peer.as(func() error { return l.ward.Guard(trees) })
	}
	l.verdict(opGuard, err)
	return err
}

func (l *link) kill() error {
	l.moving.Lock()
	defer l.moving.Unlock()
	return l.ward.Kill()
}

// finish ends everything inside, waits for that, and takes the walls down: in this order, so that nothing runs without
// walls, however long it takes. The second call does nothing.
func (l *link) finish() error {
	if l.removed {
		return nil
	}
	l.removed = true
	told := false
	for {
		err := l.ward.Empty(emptyLimit)
		if err == nil {
			return l.ward.Remove()
		}
		if !told {
			l.log("empty", "failed", err)
			told = true
		}
		select {
		case <-l.server.closing:
			return errors.Join(err, l.ward.Remove())
		case <-time.After(time.Second):
		}
	}
}

// events tells the client what was refused and which wall fell. It ends when the ward is removed.
func (l *link) events() {
	refusals, fallen := l.ward.Refusals(), l.ward.Fallen()
	for refusals != nil || fallen != nil {
		select {
		case r, ok := <-refusals:
			if !ok {
				refusals = nil
			} else if l.packets.sendNow(answer{Refusal: packed(r)}) != nil {
				l.unheard.Add(1)
			}
		case err, ok := <-fallen:
			if !ok {
				fallen = nil
				continue
			}
			l.server.config.Log.write(l.line("fallen", "fallen", err))
			if l.packets.send(answer{Fallen: err.Error()}, time.Second) != nil {
				l.packets.conn.Close()
			}
			// The session ends itself when it hears of it. It is not asked whether it did.
			if err := l.kill(); err != nil {
				l.server.config.Log.write(l.line("kill", "failed", err))
			}
		}
	}
}

func (l *link) verdict(o op, err error) {
	if err != nil {
		l.log(string(o), "refused", err)
		return
	}
	l.log(string(o), "ok", nil)
}

// log writes a line about this session; a client can make only so many.
func (l *link) log(op, verdict string, err error) {
	if l.lines++; l.lines > maxOwn {
		return
	}
	l.server.config.Log.write(l.line(op, verdict, err))
}

func (l *link) line(op, verdict string, err error) line {
	out := line{UID: l.peer.uid, PID: l.peer.pid, Session: l.session, Op: op, Verdict: verdict}
	if err != nil {
		out.Reason = strings.ToValidUTF8(err.Error(), "?")
	}
	return out
}

func hook(f func(int), pid int) {
	if f != nil {
		f(pid)
	}
}
