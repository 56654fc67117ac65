package guard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"coworker/enforce"
)

// Session is what the guard keeps for one control group. Until Trees it decides about sockets only.
type Session struct {
	guard  *Guard
	id     uint32
	group  uint64
	value  sessionValue
	trees  []enforce.Tree
	kept   []*os.File // roots: an inode that is open keeps its address
	marks  []markKey
	edges  []edge
	inbox  chan enforce.Refusal
	closed atomic.Bool
	missed atomic.Int64 // what did not fit into inbox
	done   chan struct{}
}

// sessionValue is struct session of the programs.
type sessionValue struct {
	ID      uint32
	Flags   uint32
	Net     uint32
	_       uint32
	Unheard uint64
}

const (
	flagSealed = 1 << iota
	flagHidesFolders
	flagOwnNet
)

type markKey struct {
	Ino     uint64
	Dev     uint32
	Session uint32
}

type mark struct {
	Inode uint64
	State uint32
	Tree  uint16
	Base  uint8
	Kinds uint8
}

const (
	kindRoot = 1 << iota
	kindHide
	kindKeep
	kindPin
)

const (
	inboxSize = 256
	maxLevels = 4
	// leavesState is where the programs look whether a name is that of a hidden file.
	leavesState = 1 << 31
)

// Add starts to guard the tasks of a control group: the absolute path of a v2 group, and a process that is in the cell's
// namespaces. A process in the network namespace of the caller shares the host's sockets, and they stay in reach.
func (g *Guard) Add(group string, pid int) (*Session, error) {
	id, level, err := groupID(group)
	if err != nil {
		return nil, err
	}
	net, own, err := netOf(pid)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last++
	s := &Session{guard: g, id: g.last, group: id, inbox: make(chan enforce.Refusal, inboxSize), done: make(chan struct{})}
	s.value = sessionValue{ID: s.id, Net: net}
	if own {
		s.value.Flags |= flagOwnNet
	}
	if !slices.Contains(g.levels, level) {
		if len(g.levels) == maxLevels {
			return nil, fmt.Errorf("guard: control groups of sessions at more than %d depths", maxLevels)
		}
		g.levels = append(g.levels, level)
	}
	if err := g.set(0); err != nil {
		return nil, err
	}
	if err := g.objects.Groups.Update(id, s.value, ebpf.UpdateNoExist); err != nil {
		return nil, fmt.Errorf("guard: group %q: %w", group, err)
	}
	g.sessions[s.id] = s
	return s, nil
}

// groupID is the id of a v2 control group (the file handle of its folder, kernfs) and its depth.
func groupID(group string) (id uint64, level uint32, err error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(group, &fs); err != nil {
		return 0, 0, fmt.Errorf("guard: group %q: %w", group, err)
	}
	if fs.Type != unix.CGROUP2_SUPER_MAGIC {
		return 0, 0, fmt.Errorf("guard: %q is no control group of version 2", group)
	}
	handle, mount, err := unix.NameToHandleAt(unix.AT_FDCWD, group, 0)
	if err != nil {
		return 0, 0, fmt.Errorf("guard: id of group %q: %w", group, err)
	}
	if handle.Size() != 8 {
		return 0, 0, fmt.Errorf("guard: id of group %q has %d bytes", group, handle.Size())
	}
	root, below, err := mountOf(mount)
	if err != nil {
		return 0, 0, err
	}
	depth := 0
	for name := range strings.SplitSeq(root+"/"+strings.TrimPrefix(group, below), "/") {
		if name != "" {
			depth++
		}
	}
	if depth == 0 {
		return 0, 0, fmt.Errorf("guard: %q is the root of all control groups", group)
	}
	return binary.NativeEndian.Uint64(handle.Bytes()), uint32(depth), nil
}

// netOf gives the inode of a process's network namespace, and whether it is another than the caller's.
func netOf(pid int) (inum uint32, own bool, err error) {
	var theirs, ours unix.Stat_t
	err = errors.Join(unix.Stat(fmt.Sprintf("/proc/%d/ns/net", pid), &theirs), unix.Stat("/proc/thread-self/ns/net", &ours))
	if err != nil {
		return 0, false, fmt.Errorf("guard: network namespace of process %d: %w", pid, err)
	}
	return uint32(theirs.Ino), theirs.Ino != ours.Ino, nil
}

// Next waits for the next refusal. It returns an error after Close.
func (s *Session) Next() (enforce.Refusal, error) {
	select {
	case r := <-s.inbox:
		return r, nil
	default:
	}
	select {
	case r := <-s.inbox:
		return r, nil
	case <-s.done:
		return enforce.Refusal{}, os.ErrClosed
	}
}

// Unheard counts refusals that Next did not get, because there were too many at once.
func (s *Session) Unheard() int64 {
	var v sessionValue
	if s.guard.objects.Groups.Lookup(s.group, &v) != nil {
		v.Unheard = 0 // closed
	}
	return s.missed.Load() + int64(v.Unheard)
}

// Hooks lists the hooks that have their program for this session, and those that have none, "hook: why".
func (s *Session) Hooks() (attached, missing []string) {
	attached, missing = s.guard.Hooks()
	if s.value.Flags&flagOwnNet != 0 {
		return attached, missing
	}
	attached = slices.DeleteFunc(attached, func(h string) bool { return strings.HasPrefix(h, "unix_") })
	why := ": the session is in the host's network namespace"
	return attached, byName(append(missing, "unix_may_send"+why, "unix_stream_connect"+why))
}

// Check asks the kernel whether every program is still on its hook, and whether they still know this session.
func (s *Session) Check() error {
	if s.closed.Load() {
		return os.ErrClosed
	}
	if err := s.guard.check(); err != nil {
		return err
	}
	var v sessionValue
	if err := s.guard.objects.Groups.Lookup(s.group, &v); err != nil {
		return fmt.Errorf("guard: the programs do not know the session any more: %w", err)
	}
	if v.Unheard = 0; v != s.value {
		return errors.New("guard: somebody changed what the programs know of the session")
	}
	var set settings
	if err := s.guard.objects.Setting.Lookup(uint32(0), &set); err != nil || set.Levels[0] == 0 {
		return errors.Join(errors.New("guard: the programs are switched off"), err)
	}
	for _, k := range s.marks {
		var m mark
		if err := s.guard.objects.Marks.Lookup(k, &m); err != nil {
			return fmt.Errorf("guard: a file that the programs knew is forgotten: %w", err)
		}
	}
	return nil
}

// Close forgets the session. Its group should be empty by then.
func (s *Session) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	g := s.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.sessions, s.id)
	close(s.done)
	errs := []error{g.objects.Groups.Delete(s.group)}
	errs = append(errs, s.forget())
	return errors.Join(errs...)
}

// forget takes away what Trees made.
func (s *Session) forget() error {
	var errs []error
	for _, k := range s.marks {
		errs = append(errs, s.guard.objects.Marks.Delete(k))
	}
	for _, e := range s.edges {
		errs = append(errs, s.guard.objects.Edges.Delete(e))
	}
	for _, f := range s.kept {
		errs = append(errs, f.Close())
	}
	s.marks, s.edges, s.kept = nil, nil, nil
	return errors.Join(errs...)
}
