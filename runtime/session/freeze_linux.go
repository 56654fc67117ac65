package session

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"coworker/runtime/wire"
)

// freeze stops everything inside and returns what starts it again. With a control group the
// kernel does it exactly; without one the cell sends SIGSTOP to all, and the supervisor looks
// from outside until two looks show only stopped processes. What does not come to rest is killed
// with the session.
func (s *Session) freeze(limit time.Duration) (thaw func() error, err error) {
	if s.ward.CanFreeze() {
		if err := s.ward.Freeze(limit); err != nil {
			return nil, fmt.Errorf("freeze the session: %w", err)
		}
		return s.ward.Thaw, nil
	}
	deadline := time.Now().Add(limit)
	for quiet := 0; quiet < 2; {
		var stopped wire.Stopped
		if err := s.control(wire.TypeStop, wire.TypeStopped, &stopped); err != nil {
			return nil, err
		}
		moving, err := s.moving()
		if err != nil {
			return nil, err
		}
		quiet++
		if len(moving) > 0 {
			quiet = 0
			if time.Now().After(deadline) {
				return nil, fmt.Errorf("process %d inside did not stop within %v", moving[0], limit)
			}
			time.Sleep(200 * time.Microsecond)
		}
	}
	return func() error {
		var done wire.Empty
		return s.control(wire.TypeContinue, wire.TypeContinued, &done)
	}, nil
}

// answerLimit bounds how long a cell may take to stop or continue everything inside.
const answerLimit = 10 * time.Second

// control sends a request that the cell answers with one message. The guard's mutex keeps two
// of them apart.
func (s *Session) control(request, answer wire.Type, v any) error {
	ctx, cancel := context.WithTimeout(context.Background(), answerLimit)
	defer cancel()
	return s.link.request(ctx, request, wire.Empty{}, answer, v)
}

// moving lists the processes inside, the cell aside, that are neither stopped nor dead. It looks
// at the host's /proc: what the cell says about itself does not count.
func (s *Session) moving() ([]int, error) {
	inside, err := descendants(s.cell.Pid)
	if err != nil {
		return nil, err
	}
	var out []int
	for _, p := range inside {
		switch p.state {
		case 'T', 't', 'Z', 'X':
		default:
			out = append(out, p.pid)
		}
	}
	return out, nil
}

type process struct {
	pid, parent int
	state       byte
}

// descendants finds all processes below one. Orphans of a pid namespace become children of its
// PID 1, so nothing inside can leave this tree.
func descendants(pid int) ([]process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	children := map[int][]process{}
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, ok := readStat(n); ok {
			children[p.parent] = append(children[p.parent], p)
		}
	}
	var out []process
	queue := []int{pid}
	for len(queue) > 0 {
		next := children[queue[0]]
		queue = queue[1:]
		for _, c := range next {
			out = append(out, c)
			queue = append(queue, c.pid)
		}
	}
	return out, nil
}

// readStat reads state and parent from /proc/PID/stat; the name in it may contain anything, so
// the fields are counted from the last parenthesis (proc_pid_stat(5)).
func readStat(pid int) (process, bool) {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return process{}, false // it ended meanwhile
	}
	text := string(data)
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(f) < 2 || len(f[0]) != 1 {
		return process{}, false
	}
	parent, err := strconv.Atoi(f[1])
	return process{pid: pid, parent: parent, state: f[0][0]}, err == nil
}

// ownSockets lists the path sockets that exist in the cell's own network namespace: those that
// programs inside made.
func (s *Session) ownSockets() map[string]bool {
	own := map[string]bool{}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/unix", s.cell.Pid))
	if err != nil {
		return own // then every socket counts as the host's, and is masked
	}
	for line := range strings.Lines(string(data)) {
		// Num RefCount Protocol Flags Type St Inode Path; relative paths are relative to an unknown
		// folder, so only their last part can be compared.
		if f := strings.SplitN(strings.TrimSpace(line), " ", 8); len(f) == 8 && strings.HasPrefix(f[7], "/") {
			own[path.Clean(f[7])] = true
		}
	}
	return own
}

func relativeTo(tree, abs string) (string, bool) {
	rest, ok := strings.CutPrefix(path.Clean(abs), tree+"/")
	return rest, ok
}
