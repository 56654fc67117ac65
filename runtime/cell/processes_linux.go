package cell

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// errNoProc says that there is no /proc of this pid namespace.
var errNoProc = errors.New("no /proc of the own pid namespace")

// process is what /proc/PID/stat tells, see proc_pid_stat(5).
type process struct {
	pid, parent, group, session int
	state                       byte
	start                       string // in clock ticks since boot; with pid it names one process for ever
}

// ended tells whether only the entry is left, waiting to be reaped.
func (p process) ended() bool { return p.state == 'Z' || p.state == 'X' }

// processes lists every process that /proc shows, this one included.
func processes() ([]process, error) {
	// A /proc of another pid namespace shows other numbers; its self link does too.
	self, err := os.Readlink("/proc/self")
	if err != nil || self != strconv.Itoa(os.Getpid()) {
		return nil, errNoProc
	}
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("cell: list processes: %w", err)
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("cell: list processes: %w", err)
	}
	var all []process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue // not a process
		}
		if p, ok := readProcess(pid); ok {
			all = append(all, p)
		}
	}
	return all, nil
}

// readProcess is false for a process that ended meanwhile.
func readProcess(pid int) (process, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	return parseStat(pid, stat)
}

// parseStat reads the fields after the name, which may itself hold spaces and parentheses.
func parseStat(pid int, stat []byte) (process, bool) {
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return process{}, false
	}
	fields := bytes.Fields(stat[end+1:])
	if len(fields) < 20 || len(fields[0]) != 1 {
		return process{}, false
	}
	p := process{pid: pid, state: fields[0][0], start: string(fields[19])}
	for i, to := range []*int{&p.parent, &p.group, &p.session} {
		n, err := strconv.Atoi(string(fields[i+1]))
		if err != nil {
			return process{}, false
		}
		*to = n
	}
	return p, true
}

// below keeps the descendants of pid.
func below(all []process, pid int) []process {
	children := make(map[int][]process)
	for _, p := range all {
		children[p.parent] = append(children[p.parent], p)
	}
	seen := map[int]bool{pid: true} // a reused number must not close a circle
	found := append([]process(nil), children[pid]...)
	for i := 0; i < len(found); i++ {
		if !seen[found[i].pid] {
			seen[found[i].pid] = true
			found = append(found, children[found[i].pid]...)
		}
	}
	return found
}

// others lists the session's processes without the cell.
func (s *server) others() ([]process, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	self := os.Getpid()
	if !s.ownNS {
		return below(all, self), nil
	}
	var found []process
	for _, p := range all {
		if p.pid != self {
			found = append(found, p)
		}
	}
	return found, nil
}

// signalAll sends a signal to every process of the session but the cell. In a pid namespace of
// its own one call does it, and the kernel lets no fork slip through (kill(2) with -1 holds the
// task list, and fork(2) restarts when a signal is pending).
func (s *server) signalAll(sig syscall.Signal) error {
	if s.ownNS {
		if err := unix.Kill(-1, sig); err != nil && err != unix.ESRCH {
			return fmt.Errorf("cell: kill(-1, %s): %w", unix.SignalName(sig), err)
		}
		return nil
	}
	found, err := s.others()
	if err != nil {
		return err
	}
	for _, p := range found {
		if err := signalChecked(p, sig); err != nil {
			return err
		}
	}
	return nil
}

// signalChecked signals a process through a pidfd that is known to be of the process that was
// listed: its parent may have reaped it meanwhile, and a stranger may have its number.
func signalChecked(p process, sig syscall.Signal) error {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err == unix.ESRCH || err == unix.EINVAL {
		return nil // ended; EINVAL for the leader of a process that lives on in other threads until 6.9
	}
	if err != nil {
		return fmt.Errorf("cell: pidfd_open %d: %w", p.pid, err)
	}
	defer unix.Close(fd)
	if now, ok := readProcess(p.pid); !ok || now.start != p.start {
		return nil
	}
	err = unix.PidfdSendSignal(fd, sig, nil, 0)
	if err == unix.EPERM {
		return nil // as kill(-1) does: another user put it here from outside, and it stays in every count
	}
	if err != nil && err != unix.ESRCH {
		return fmt.Errorf("cell: signal %s to process %d: %w", unix.SignalName(sig), p.pid, err)
	}
	return nil
}

// killAll kills every process of the session and waits until the last one is reaped. It tells how
// many children of the cell the kill ended, orphans that became its children included.
func (s *server) killAll() (int, error) {
	before := s.table.look()
	deadline := time.NewTimer(killLimit)
	defer deadline.Stop()
	for {
		if err := s.signalAll(unix.SIGKILL); err != nil {
			return 0, err
		}
		if s.nobodyLeft() {
			return s.table.look() - before, nil
		}
		again := time.NewTimer(pollEvery)
		select {
		case <-s.table.idle:
		case <-again.C:
		case <-deadline.C:
			return 0, fmt.Errorf("cell: processes still exist %v after kill(-1, SIGKILL)", killLimit)
		}
		again.Stop()
	}
}

// nobodyLeft asks the kernel where it can: kill(2) with -1 finds zombies too. Elsewhere no child
// means no descendant, since orphans come to a subreaper.
func (s *server) nobodyLeft() bool {
	if s.ownNS {
		return unix.Kill(-1, 0) == unix.ESRCH && s.table.childless()
	}
	return s.table.childless()
}
