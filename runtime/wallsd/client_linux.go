package wallsd

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"coworker/enforce"
	"coworker/enforce/cgroup"
	"coworker/runtime/ward"
)

// Socket is where the helper of a machine listens.
const Socket = "/run/coworker/wallsd.sock"

// ErrAbsent means that no helper listens.
var ErrAbsent = errors.New("coworker-wallsd does not run here")

// Limits of time for a client.
const (
	dialLimit   = 2 * time.Second
	callLimit   = 30 * time.Second
	removeLimit = 2 * time.Minute
)

// Client is a ward that the helper holds.
type Client struct {
	packets *packets
	pids    map[int]int // ticket by process; guarded by mu
	limits  []enforce.Limit
	freezes bool

	refusals chan enforce.Refusal
	fallen   chan error
	reading  sync.WaitGroup

	mu      sync.Mutex
	seq     uint64
	waiting map[uint64]chan *answer
	lost    error // why nothing can be asked any more
	closing bool  // by Remove: the end is no surprise
	counts  ward.Counts
	unheard int64
}

var _ ward.Ward = (*Client)(nil)

// maxNews bounds the refusals that wait for a reader; the rest is counted.
const maxNews = 1024

// Ask says hello and returns the version of the helper's build.
func Ask(socket string) (build string, err error) {
	c, build, err := dial(socket)
	if err != nil {
		return "", err
	}
	return build, c.shut()
}

// Open has the helper make a ward. ErrAbsent means that there is none; any other error is its refusal, or its failure.
func Open(socket string, r ward.Request) (*Client, error) {
	c, _, err := dial(socket)
	if err != nil {
		return nil, err
	}
	a, err := c.call(request{Op: opOpen, Name: r.Name, Limits: &r.Limits, Literals: r.Literals, NoEgress: r.NoEgress, Guard: r.Guard}, callLimit)
	if err != nil {
		return nil, errors.Join(err, c.shut())
	}
	c.limits, c.freezes = a.Limits, a.CanFreeze
	return c, nil
}

// shut ends a connection that holds no session.
func (c *Client) shut() error {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	err := c.packets.conn.Close()
	c.reading.Wait()
	return err
}

func dial(socket string) (*Client, string, error) {
	d := net.Dialer{Timeout: dialLimit}
	conn, err := d.Dial("unixpacket", socket)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, "", ErrAbsent
	}
	if err != nil {
		return nil, "", fmt.Errorf("connect to coworker-wallsd: %w", err)
	}
	c := &Client{
		packets: newPackets(conn.(*net.UnixConn)), pids: map[int]int{}, waiting: map[uint64]chan *answer{},
		refusals: make(chan enforce.Refusal, maxNews), fallen: make(chan error, 1),
	}
	if err := c.ofRoot(); err != nil {
		return nil, "", errors.Join(err, conn.Close())
	}
	c.reading.Go(c.read)
	a, err := c.call(request{Op: opHello, Version: Version}, callLimit)
	if err == nil && a.Version != Version {
		err = fmt.Errorf("coworker-wallsd speaks version %d, this build %d", a.Version, Version)
	}
	if err != nil {
		return nil, "", errors.Join(err, c.shut())
	}
	return c, a.Build, nil
}

// ofRoot refuses a socket that somebody else put there.
func (c *Client) ofRoot() error {
	raw, err := c.packets.conn.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var askErr error
	err = raw.Control(func(fd uintptr) { cred, askErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, askErr); err == nil && cred.Uid != 0 {
		err = fmt.Errorf("the socket of coworker-wallsd belongs to uid %d, not to root", cred.Uid)
	}
	return err
}

// call asks and waits for the answer. A helper that does not answer in time is left.
func (c *Client) call(r request, limit time.Duration, files ...int) (*answer, error) {
	got := make(chan *answer, 1)
	c.mu.Lock()
	if c.lost != nil {
		c.mu.Unlock()
		return nil, c.lost
	}
	c.seq++
	r.Seq = c.seq
	c.waiting[r.Seq] = got
	// Sent under the lock: numbers must rise on the wire. It does not wait for long, the helper always reads.
	err := c.packets.send(r, limit, files...)
	c.mu.Unlock()
	if err != nil {
		c.packets.conn.Close()
		return nil, fmt.Errorf("ask coworker-wallsd to %s: %w", r.Op, err)
	}
	late := time.AfterFunc(limit, func() { c.packets.conn.Close() })
	defer late.Stop()
	a := <-got
	if a == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		return nil, c.lost
	}
	if a.NotQuiet {
		return a, cgroup.ErrNotQuiet
	}
	if a.Error != "" {
		return a, fmt.Errorf("coworker-wallsd refused to %s: %s", r.Op, a.Error)
	}
	return a, nil
}

// read takes what the helper says until the connection ends.
func (c *Client) read() {
	err := c.readAll()
	if err == nil || gone(err) {
		err = errors.New("coworker-wallsd ended, and its walls with it")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = err
	for seq, w := range c.waiting {
		w <- nil
		delete(c.waiting, seq)
	}
	if !c.closing {
		c.fell(err)
	}
}

func (c *Client) readAll() error {
	for {
		data, files, err := c.packets.receive()
		if err != nil {
			return err
		}
		closeAll(files)
		a := &answer{}
		if err := decodeFrame(data, a); err != nil {
			return errors.Join(err, c.packets.conn.Close())
		}
		c.take(a)
	}
}

func (c *Client) take(a *answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case a.Fallen != "":
		c.fell(errors.New(a.Fallen))
	case a.Refusal != nil:
		select {
		case c.refusals <- a.Refusal.unpacked():
		default:
			c.unheard++
		}
	case c.waiting[a.Seq] != nil:
		c.waiting[a.Seq] <- a
		delete(c.waiting, a.Seq)
	}
}

// fell tells the first fall; one is enough to end the session. mu is held.
func (c *Client) fell(err error) {
	select {
	case c.fallen <- err:
	default:
	}
}

// Join implements ward.Ward.
func (c *Client) Join(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("name process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	a, err := c.call(request{Op: opJoin}, callLimit, fd)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pids[pid] = a.Ticket
	return nil
}

// Leave implements ward.Ward.
func (c *Client) Leave(pid int) error {
	c.mu.Lock()
	ticket, ok := c.pids[pid]
	delete(c.pids, pid)
	c.mu.Unlock()
	if !ok {
		return fmt.Errorf("process %d did not join", pid)
	}
	_, err := c.call(request{Op: opLeave, Ticket: ticket}, callLimit)
	return err
}

// Guard implements ward.Ward.
func (c *Client) Guard(trees []enforce.Tree) error {
	data, err := encodeTrees(trees)
	if err != nil {
		return err
	}
	for {
		n := min(len(data), maxPart)
		r := request{Op: opGuard, Part: data[:n], Last: n == len(data)}
		if _, err := c.call(r, callLimit); err != nil || r.Last {
			return err
		}
		data = data[n:]
	}
}

// Limits implements ward.Ward.
func (c *Client) Limits() []enforce.Limit { return c.limits }

// CanFreeze implements ward.Ward.
func (c *Client) CanFreeze() bool { return c.freezes }

// Freeze implements ward.Ward.
func (c *Client) Freeze(limit time.Duration) error {
	limit = min(max(limit, 1), maxFreeze)
	_, err := c.call(request{Op: opFreeze, Limit: limit}, limit+callLimit)
	return err
}

// Thaw implements ward.Ward.
func (c *Client) Thaw() error {
	_, err := c.call(request{Op: opThaw}, callLimit)
	return err
}

// Kill implements ward.Ward. A helper that is gone is no error: what it held is reported as fallen, and whoever kills has
// other ways too.
func (c *Client) Kill() error {
	_, err := c.call(request{Op: opKill}, callLimit)
	if c.isLost() {
		return nil
	}
	return err
}

func (c *Client) isLost() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost != nil
}

// Counts implements ward.Ward. Of a session that was removed, or whose helper is gone, it tells the last ones known.
func (c *Client) Counts() ward.Counts {
	a, err := c.call(request{Op: opCounts}, callLimit)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && a.Counts != nil {
		c.counts = *a.Counts
	}
	out := c.counts
	out.Unheard += c.unheard
	return out
}

// State implements ward.Ward. Where the helper is gone nothing is held any more.
func (c *Client) State() ward.State {
	a, err := c.call(request{Op: opState}, callLimit)
	if err != nil || a.State == nil {
		why := ward.Programs{Why: fmt.Sprintf("coworker-wallsd does not say: %v", err)}
		return ward.State{Egress: why, Guard: why, Helper: true}
	}
	return *a.State
}

// Check implements ward.Ward.
func (c *Client) Check() error {
	_, err := c.call(request{Op: opCheck}, callLimit)
	return err
}

// Refusals implements ward.Ward.
func (c *Client) Refusals() <-chan enforce.Refusal { return c.refusals }

// Fallen implements ward.Ward.
func (c *Client) Fallen() <-chan error { return c.fallen }

// Remove implements ward.Ward.
func (c *Client) Remove() error {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	a, err := c.call(request{Op: opRemove}, removeLimit)
	c.mu.Lock()
	if err == nil && a.Counts != nil {
		c.counts = *a.Counts
	}
	if c.lost != nil { // it was told as fallen
		err = nil
	}
	c.mu.Unlock()
	c.packets.conn.Close()
	c.reading.Wait()
	close(c.refusals)
	close(c.fallen)
	return err
}

// Trial is what a helper can do for this user.
type Trial struct {
	Build  string          `json:"build"` // version of its build
	Limits []enforce.Limit `json:"limits"`
	State  ward.State      `json:"state"`
}

// Try has the helper make a ward with a limit of each kind, looks at it, and has it removed.
func Try(socket, name string) (*Trial, error) {
	build, err := Ask(socket)
	if err != nil {
		return nil, err
	}
	c, err := Open(socket, ward.Request{Name: name, Limits: enforce.Limits{Processes: 64, Memory: 256 << 20, CPUs: 1}})
	if err != nil {
		return nil, err
	}
	t := &Trial{Build: build, Limits: c.Limits(), State: c.State()}
	return t, errors.Join(c.Check(), c.Remove())
}
