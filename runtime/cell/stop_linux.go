package cell

import (
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	stopLimit = 500 * time.Millisecond // how long stopAll waits until every process is seen to be stopped
	pollEvery = time.Millisecond
)

// stopAll stops every process and tells how many there are, or -1 where no /proc shows them.
//
// Parents are stopped before their children, and continueAll goes the other way round: a shell
// that still ran would see its job stopped and take the terminal back. After that the signal is
// repeated until two looks in a row find nothing that could still run, because a process that was
// on its way into the kernel may have continued another one. A thread that the kernel holds (a
// vfork(2) whose child is stopped, a hanging disk) counts as running, so the wait is bounded.
func (s *server) stopAll() (int, error) {
	if s.ownNS && unix.Kill(-1, 0) == unix.ESRCH {
		return 0, nil // the usual case between two calls
	}
	deadline := time.Now().Add(stopLimit)
	err := s.stopByDepth(deadline)
	if errors.Is(err, errNoProc) && s.ownNS {
		return -1, s.signalAll(unix.SIGSTOP)
	}
	if err != nil {
		return 0, err
	}
	for quiet := 0; ; {
		if err := s.signalAll(unix.SIGSTOP); err != nil {
			return 0, err
		}
		found, err := s.others()
		if err != nil {
			return 0, err
		}
		live, running := 0, 0
		for _, p := range found {
			if p.ended() {
				continue
			}
			live++
			if !p.still() {
				running++
			}
		}
		quiet++
		if running > 0 {
			quiet = 0
		}
		if quiet == 2 || time.Now().After(deadline) {
			return live, nil
		}
		if running > 0 {
			time.Sleep(pollEvery)
		}
	}
}

// stopByDepth stops one generation after the other. It notes what was stopped before, by a person
// or a debugger, unless an earlier Stop has done so and no Continue came.
func (s *server) stopByDepth(deadline time.Time) error {
	found, err := s.others()
	if err != nil {
		return err
	}
	if s.stoppedBefore == nil {
		s.stoppedBefore = make(map[int]string)
		for _, p := range found {
			if p.stopped() {
				s.stoppedBefore[p.pid] = p.start
			}
		}
	}
	for _, generation := range generations(found, os.Getpid()) {
		for _, p := range generation {
			if p.ended() || p.stopped() {
				continue
			}
			if err := signalChecked(p, unix.SIGSTOP); err != nil {
				return err
			}
		}
		for _, p := range generation {
			p.awaitStill(deadline)
		}
	}
	return nil
}

// continueAll undoes stopAll: what was stopped before stays stopped.
func (s *server) continueAll() error {
	before := s.stoppedBefore
	s.stoppedBefore = nil
	found, err := s.others()
	if errors.Is(err, errNoProc) && s.ownNS {
		return s.signalAll(unix.SIGCONT)
	}
	if err != nil {
		return err
	}
	byDepth := generations(found, os.Getpid())
	for i := len(byDepth) - 1; i >= 0; i-- {
		for _, p := range byDepth[i] {
			if start, ok := before[p.pid]; ok && start == p.start {
				continue
			}
			if err := signalChecked(p, unix.SIGCONT); err != nil {
				return err
			}
		}
	}
	return nil
}

// generations sorts the processes by their distance from pid. Processes that are not below it,
// because they were put into the namespace from outside or moved while /proc was read, come last.
func generations(all []process, pid int) [][]process {
	children := make(map[int][]process)
	for _, p := range all {
		children[p.parent] = append(children[p.parent], p)
	}
	var out [][]process
	placed := map[int]bool{pid: true}
	for parents := []process{{pid: pid}}; len(parents) > 0; {
		var next []process
		for _, parent := range parents {
			for _, p := range children[parent.pid] {
				if !placed[p.pid] {
					placed[p.pid] = true
					next = append(next, p)
				}
			}
		}
		if len(next) > 0 {
			out = append(out, next)
		}
		parents = next
	}
	var rest []process
	for _, p := range all {
		if !placed[p.pid] {
			rest = append(rest, p)
		}
	}
	if len(rest) > 0 {
		out = append(out, rest)
	}
	return out
}

// stopped tells whether the first thread is stopped or traced.
func (p process) stopped() bool { return p.state == 'T' || p.state == 't' }

// still looks at every thread: a process that is being stopped stops one thread after the other.
func (p process) still() bool {
	dir := "/proc/" + strconv.Itoa(p.pid) + "/task/"
	tasks, err := os.ReadDir(dir)
	if err != nil {
		return true // ended
	}
	for _, task := range tasks {
		stat, err := os.ReadFile(dir + task.Name() + "/stat")
		if err != nil {
			continue
		}
		if t, ok := parseStat(p.pid, stat); ok && !t.ended() && !t.stopped() {
			return false
		}
	}
	return true
}

func (p process) awaitStill(deadline time.Time) {
	for !p.still() && time.Now().Before(deadline) {
		time.Sleep(pollEvery / 10)
	}
}
