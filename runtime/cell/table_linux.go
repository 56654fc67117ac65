package cell

import (
	"os"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"coworker/runtime/wire"
)

// command is one entry of the table, from its start until its Exited is taken to be sent.
type command struct {
	id   uint64
	pid  int
	told bool         // Started is on the wire, Exited may follow
	exit *wire.Exited // set when the command has been reaped

	// The two copies of the terminal's master with TTY, else nil. The table's lock guards master,
	// which serves Resize and Signal and is closed when the command is reaped; sendMaster goes
	// out with Started and belongs to the dispatcher.
	master     *os.File
	sendMaster *os.File
}

// table knows the running commands and reaps. The lock is held while a command is forked and
// while one is reaped, so a command is always registered before its end is looked at, and a
// process id is never used after the kernel may have given it to another process.
type table struct {
	exits chan wire.Exited // at most one entry for each command in byID: a send never blocks
	idle  chan struct{}    // one token when the reaper found no child

	mu      sync.Mutex
	changed sync.Cond
	byID    map[uint64]*command
	byPID   map[int]*command // commands that have not been reaped
	max     int
	work    bool // there may be children: the reaper must look
	closed  bool // the reaper returns when there are no children
	none    bool // the reaper found no child and waits
	sending bool // the writer holds an Exited that is in no map any more
	killed  int  // children reaped so far that ended by SIGKILL
}

func newTable(max int) *table {
	t := &table{
		exits: make(chan wire.Exited, max),
		idle:  make(chan struct{}, 1),
		byID:  make(map[uint64]*command),
		byPID: make(map[int]*command),
		max:   max,
		work:  true,
	}
	t.changed.L = &t.mu
	return t
}

// running tells whether a command with this id exists, and how many there are.
func (t *table) running(id uint64) (exists bool, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, exists = t.byID[id]
	return exists, len(t.byID)
}

// start runs fork and registers the command that it started.
func (t *table) start(c *command, fork func() (pid int, err error)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	pid, err := fork()
	if err != nil {
		return err
	}
	c.pid = pid
	t.byID[c.id], t.byPID[pid] = c, c
	t.lookLocked()
	return nil
}

// announced is called when Started is on the wire.
func (t *table) announced(c *command) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.told = true
	if c.exit != nil {
		t.exits <- *c.exit
	}
}

// withLive runs do with the command if it has not been reaped; the command's process id and
// terminal are its own while do runs.
func (t *table) withLive(id uint64, do func(*command) error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.byID[id]
	if c == nil || c.exit != nil {
		return nil
	}
	return do(c)
}

// forget frees the id of a command whose Exited is about to be sent. It comes before the send:
// the supervisor may use the id and the place in the table again as soon as it has read Exited.
func (t *table) forget(id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byID, id)
	t.sending = true
}

func (t *table) sent() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sending = false
	t.changed.Broadcast()
}

// waitSent waits until every command has ended and its Exited is on the wire.
func (t *table) waitSent() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.byID) > 0 || t.sending {
		t.changed.Wait()
	}
}

func (t *table) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.lookLocked()
}

// look makes the reaper look for children again and tells how many it has reaped that were killed.
func (t *table) look() (killed int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lookLocked()
	return t.killed
}

func (t *table) lookLocked() {
	t.work, t.none = true, false
	t.changed.Broadcast()
}

// childless tells whether the reaper's last look found no child at all, zombies included.
func (t *table) childless() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.none
}

// reap waits for children until the table is closed and there are none.
func (t *table) reap() {
	for {
		pid, err := waitForZombie()
		switch {
		case err == nil:
			if t.reapOne(pid) {
				// Let the writer run on this thread now. Otherwise it waits until the runtime
				// notices that this goroutine blocks in waitid, or for another thread to wake.
				runtime.Gosched()
			}
		case err == unix.EINTR:
		default: // ECHILD, the only other error of waitid(2) with these arguments
			if !t.waitForWork() {
				return
			}
		}
	}
}

// waitForWork is called when there are no children. It returns false when there will be none.
func (t *table) waitForWork() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.work {
		t.none = true
		select {
		case t.idle <- struct{}{}:
		default: // the token is there already
		}
	}
	for !t.work {
		if t.closed {
			return false
		}
		t.changed.Wait()
	}
	t.work = false
	return true
}

// siginfoPID is where the kernel puts si_pid: after three ints, aligned like the union of
// siginfo_t, which holds pointers.
const siginfoPID = 8 + unsafe.Sizeof(uintptr(0))

// waitForZombie blocks until a child has ended and leaves it a zombie, so that its process id
// stays taken until reapOne holds the lock.
func waitForZombie() (int, error) {
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT|unix.WALL, nil); err != nil {
		return 0, err
	}
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(&info), siginfoPID))), nil
}

// reapOne reaps a zombie and tells whether it queued an Exited.
func (t *table) reapOne(pid int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	var status unix.WaitStatus
	var usage unix.Rusage
	got, err := unix.Wait4(pid, &status, unix.WNOHANG|unix.WALL, &usage)
	if err != nil || got != pid {
		return false // ForkExec reaped it itself: the exec had failed
	}
	if status.Signaled() && status.Signal() == unix.SIGKILL {
		t.killed++
	}
	c := t.byPID[pid]
	if c == nil {
		return false // an orphan
	}
	delete(t.byPID, pid)
	c.exit = exited(c.id, status, &usage)
	if c.master != nil {
		c.master.Close()
	}
	if c.told {
		t.exits <- *c.exit
	}
	return c.told
}

func exited(id uint64, status unix.WaitStatus, usage *unix.Rusage) *wire.Exited {
	e := &wire.Exited{
		ID:     id,
		Code:   status.ExitStatus(),
		Core:   status.CoreDump(),
		User:   usage.Utime.Nano() / 1000,
		System: usage.Stime.Nano() / 1000,
		MaxRSS: usage.Maxrss,
	}
	if status.Signaled() {
		e.Signal = int(status.Signal())
	}
	return e
}
