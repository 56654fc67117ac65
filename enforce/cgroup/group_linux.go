package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

// parentName is the group below which the sessions' groups lie.
const parentName = "coworker"

// Group is the control group of one session, in each hierarchy that can be used. The zero
// value is a session without one: nothing is bounded, and Limits says why.
type Group struct {
	name    string
	limits  []enforce.Limit
	missing string

	mu     sync.Mutex // guards what Remove changes
	dirs   []dir
	events Events        // as they stood when the group was removed
	lent   bool          // there may be folders in more hierarchies
	homes  map[int][]dir // of each process that joined: where it was before
}

// dir is the session's folder in one hierarchy.
type dir struct {
	path  string
	owner *os.File // holds the lock that says that the folder is in use, see claim
	hierarchy
}

// current lists the folders that exist.
func (g *Group) current() []dir {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.dirs
}

// New makes the groups of a session and sets the limits. Without the right to make one it
// returns a Group that bounds nothing and says why.
func New(name string, l enforce.Limits) (*Group, error) { return NewBelow("", name, l) }

// NewBelow is New with a place for the group in v2: below is a group that was delegated to this process, as an absolute path
// below the mount, with no process in it. Empty means the place that New takes.
func NewBelow(below, name string, l enforce.Limits) (*Group, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("find control groups: %w", err)
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return &Group{missing: "this kernel has no control groups"}, nil
	}
	g := &Group{name: name, missing: "no control group can be made here"}
	for _, h := range parse(string(mounts), string(own)) {
		if err := g.add(h, below, name); err != nil {
			g.missing = err.Error()
		}
	}
	if err := g.set(l); err != nil {
		return nil, errors.Join(err, g.Remove())
	}
	return g, nil
}

// add makes the session's folder in one hierarchy, if it is of use and may be made.
func (g *Group) add(h hierarchy, below, name string) error {
	if !h.useful() {
		return nil
	}
	parent, err := makeParent(h, below)
	if err != nil {
		return err
	}
	if h.unified {
		if h.controllers, err = enableControllers(filepath.Dir(parent), parent); err != nil {
			return err
		}
	}
	d, err := claim(parent, name, h)
	if err == nil {
		g.dirs = append(g.dirs, d)
	}
	return err
}

// makeParent makes the folder that holds the groups of the sessions: at the top of the mount for
// root, and for others at the nearest place above their own group where they may, which is where
// systemd has delegated a subtree to their user manager. Never in their own group: v2 allows
// processes in leaves only once controllers are enabled (cgroups(7), "no internal processes").
func makeParent(h hierarchy, below string) (string, error) {
	places := []string{h.mount}
	if h.unified && below != "" {
		places = []string{filepath.Join(h.mount, below)}
	} else if os.Geteuid() != 0 {
		places = nil
		for dir := h.self; dir != "/" && dir != "."; {
			dir = filepath.Dir(dir)
			places = append(places, filepath.Join(h.mount, dir))
		}
		if places == nil {
			places = []string{h.mount}
		}
	}
	var first error
	for _, p := range places {
		parent := filepath.Join(p, parentName)
		err := os.Mkdir(parent, 0o755)
		if err == nil || errors.Is(err, fs.ErrExist) {
			return parent, nil
		}
		if first == nil {
			first = fmt.Errorf("make %s: %w", parent, unwrapPath(err))
		}
	}
	return "", first
}

func unwrapPath(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// enableControllers hands the controllers down to the sessions' groups. One that cannot be
// enabled is missing, not an error: hybrid hosts have none in v2.
func enableControllers(mount, parent string) ([]string, error) {
	for _, p := range []string{mount, parent} {
		data, err := os.ReadFile(filepath.Join(p, "cgroup.controllers"))
		if err != nil {
			return nil, fmt.Errorf("read controllers of %s: %w", p, unwrapPath(err))
		}
		for _, c := range strings.Fields(string(data)) {
			if c == "pids" || c == "memory" || c == "cpu" {
				os.WriteFile(filepath.Join(p, "cgroup.subtree_control"), []byte("+"+c), 0)
			}
		}
	}
	data, err := os.ReadFile(filepath.Join(parent, "cgroup.subtree_control"))
	if err != nil {
		return nil, fmt.Errorf("read controllers of %s: %w", parent, unwrapPath(err))
	}
	return strings.Fields(string(data)), nil
}

func (g *Group) with(controller string) (dir, bool) {
	for _, d := range g.current() {
		if d.has(controller) {
			return d, true
		}
	}
	return dir{}, false
}

// set writes the limits and notes which are in force.
func (g *Group) set(l enforce.Limits) error {
	for _, one := range []struct {
		name, controller string
		value            int64
		write            func(dir) error
	}{
		{"processes", "pids", l.Processes, func(d dir) error { return d.write("pids.max", strconv.FormatInt(l.Processes, 10)) }},
		{"memory", "memory", l.Memory, func(d dir) error { return d.setMemory(l.Memory) }},
		{"cpus", "cpu", int64(l.CPUs * 1000), func(d dir) error { return d.setCPU(l.CPUs) }},
	} {
		if one.value <= 0 {
			continue
		}
		limit := enforce.Limit{Name: one.name, Value: one.value}
		d, ok := g.with(one.controller)
		if !ok {
			limit.Detail = g.missing
			if len(g.dirs) > 0 {
				limit.Detail = "the controller " + one.controller + " is not available here"
			}
			g.limits = append(g.limits, limit)
			continue
		}
		if err := one.write(d); err != nil {
			return fmt.Errorf("limit %s to %d: %w", one.name, one.value, err)
		}
		limit.Active, limit.Mechanism = true, enforce.Cgroup
		g.limits = append(g.limits, limit)
	}
	return nil
}

func (d dir) write(file, value string) error {
	// Files of cgroupfs exist; opening without O_CREATE keeps a missing one an error.
	f, err := os.OpenFile(filepath.Join(d.path, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

func (d dir) setMemory(bytes int64) error {
	value := strconv.FormatInt(bytes, 10)
	if !d.unified {
		if err := d.write("memory.limit_in_bytes", value); err != nil {
			return err
		}
		// Memory and swap together; absent without swap accounting.
		return ignoreMissing(d.write("memory.memsw.limit_in_bytes", value))
	}
	if err := d.write("memory.max", value); err != nil {
		return err
	}
	if err := ignoreMissing(d.write("memory.swap.max", "0")); err != nil {
		return err
	}
	// The whole session ends, not a process at random in it (Linux 4.19).
	return ignoreMissing(d.write("memory.oom.group", "1"))
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// cpuPeriod is the kernel's default, in microseconds.
const cpuPeriod = 100_000

func (d dir) setCPU(cpus float64) error {
	quota := strconv.Itoa(int(cpus * cpuPeriod))
	if d.unified {
		return d.write("cpu.max", quota+" "+strconv.Itoa(cpuPeriod))
	}
	return d.write("cpu.cfs_quota_us", quota)
}

// Made says why there is no group at all, or nil.
func (g *Group) Made() error {
	if len(g.current()) == 0 {
		return errors.New(g.missing)
	}
	return nil
}

// Limits tells which limits are in force, and why the others are not.
func (g *Group) Limits() []enforce.Limit { return g.limits }

// Unified gives the group's folder in the hierarchy of v2, where kernel programs can be attached, with or without
// controllers; "" without one.
func (g *Group) Unified() string {
	for _, d := range g.current() {
		if d.unified {
			return d.path
		}
	}
	return ""
}

// Join moves a process with all its threads into the group. Call it before the process opens a
// socket: a socket keeps the group of its birth.
func (g *Group) Join(pid int) error {
	dirs := g.current()
	if len(dirs) == 0 {
		return nil
	}
	home, err := placesOf(pid)
	if err != nil {
		return err
	}
	g.mu.Lock()
	if g.homes == nil {
		g.homes = map[int][]dir{}
	}
	g.homes[pid] = home
	g.mu.Unlock()
	for _, d := range dirs {
		if err := d.write("cgroup.procs", strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("move process %d into %s: %w", pid, d.path, err)
		}
	}
	return nil
}

// Leave moves a process that joined back to where it was. The keeper is born-mover of a session: it
// is in the group while it forks the cell, so that the cell needs no move of its own.
func (g *Group) Leave(pid int) error {
	g.mu.Lock()
	home, ok := g.homes[pid]
	delete(g.homes, pid)
	dirs, lent := g.dirs, g.lent
	g.mu.Unlock()
	if len(dirs) == 0 {
		return nil
	}
	if lent { // whom it was lent to put the process there, or it was born there: it has no place of its own to go back to
		return g.Expel(pid, os.Getpid())
	}
	if !ok {
		return fmt.Errorf("process %d did not join this group", pid)
	}
	return moveTo(pid, home, dirs)
}

// moveTo writes a process into those of the places that lie in the hierarchies of dirs.
func moveTo(pid int, places, dirs []dir) error {
	for _, d := range dirs {
		for _, place := range places {
			if place.mount != d.mount {
				continue
			}
			if err := place.write("cgroup.procs", strconv.Itoa(pid)); err != nil {
				return fmt.Errorf("move process %d back into %s: %w", pid, place.path, err)
			}
		}
	}
	return nil
}

// placesOf finds the groups that a process is in.
func placesOf(pid int) ([]dir, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("find control groups: %w", err)
	}
	groups, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	if errors.Is(err, fs.ErrNotExist) {
		err = unix.ESRCH
	}
	if err != nil {
		return nil, fmt.Errorf("find the groups of process %d: %w", pid, unwrapPath(err))
	}
	var out []dir
	for _, h := range parse(string(mounts), string(groups)) {
		out = append(out, dir{path: filepath.Join(h.mount, h.self), hierarchy: h})
	}
	return out, nil
}

// Expel moves a process that should never have joined to the groups of another one, wherever it is in this group. It is
// for a process id that was used again between a check and the move.
func (g *Group) Expel(pid, to int) error {
	places, err := placesOf(to)
	if err != nil {
		return err
	}
	return moveTo(pid, places, g.current())
}

// freezer finds the hierarchy that can stop the group.
func (g *Group) freezer() (dir, bool) {
	for _, d := range g.current() {
		if !d.unified && d.has("freezer") {
			return d, true
		}
		if _, err := os.Stat(filepath.Join(d.path, "cgroup.freeze")); d.unified && err == nil {
			return d, true
		}
	}
	return dir{}, false
}

// CanFreeze tells whether Freeze works here.
func (g *Group) CanFreeze() bool {
	_, ok := g.freezer()
	return ok
}

// ErrNotQuiet is returned by Freeze when something in the group did not stop in time.
var ErrNotQuiet = errors.New("the group did not come to rest")

// Freeze stops every process of the group, the cell included, and returns when the kernel says
// that none runs. Thaw undoes it, also after an error.
func (g *Group) Freeze(limit time.Duration) error {
	d, ok := g.freezer()
	if !ok {
		return errors.New("no freezer in this group")
	}
	if err := d.freeze(true); err != nil {
		return err
	}
	deadline := time.Now().Add(limit)
	for pause := 20 * time.Microsecond; ; pause = min(2*pause, 5*time.Millisecond) {
		quiet, err := d.frozen()
		if err != nil || quiet {
			return err
		}
		if time.Now().After(deadline) {
			return ErrNotQuiet
		}
		time.Sleep(pause)
	}
}

// Thaw lets the group run again.
func (g *Group) Thaw() error {
	d, ok := g.freezer()
	if !ok {
		return errors.New("no freezer in this group")
	}
	return d.freeze(false)
}

func (d dir) freeze(on bool) error {
	if !d.unified {
		return d.write("freezer.state", map[bool]string{true: "FROZEN", false: "THAWED"}[on])
	}
	return d.write("cgroup.freeze", map[bool]string{true: "1", false: "0"}[on])
}

func (d dir) frozen() (bool, error) {
	if !d.unified {
		data, err := os.ReadFile(filepath.Join(d.path, "freezer.state"))
		return strings.TrimSpace(string(data)) == "FROZEN", err
	}
	data, err := os.ReadFile(filepath.Join(d.path, "cgroup.events"))
	return strings.Contains(string(data), "frozen 1"), err
}

// Events counts the times the group ran into a limit.
type Events struct {
	OOMKills int64 // processes killed for lack of memory
	PidsMax  int64 // forks refused
}

// Events reads the counters. After Remove it tells how they stood then.
func (g *Group) Events() Events {
	g.mu.Lock()
	e := g.events
	g.mu.Unlock()
	if d, ok := g.with("pids"); ok {
		e.PidsMax = d.counter("pids.events", "max")
	}
	if d, ok := g.with("memory"); ok {
		file := "memory.events"
		if !d.unified {
			file = "memory.oom_control"
		}
		e.OOMKills = d.counter(file, "oom_kill")
	}
	return e
}

func (d dir) counter(file, name string) int64 {
	data, err := os.ReadFile(filepath.Join(d.path, file))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
			return n
		}
	}
	return 0
}

// Kill ends every process of the group, also when it is frozen. It does not wait.
func (g *Group) Kill() error {
	var errs []error
	dirs := g.current()
	for _, d := range dirs {
		errs = append(errs, d.kill())
	}
	return errors.Join(append(errs, thawAll(dirs))...)
}

// thawAll lets frozen v1 groups run on: only then do the processes in them die of a signal that was
// sent before (freezer-subsystem.rst). A v2 group needs no thaw to be killed.
func thawAll(dirs []dir) error {
	for _, d := range dirs {
		if !d.unified && d.has("freezer") {
			return ignoreMissing(d.freeze(false))
		}
	}
	return nil
}

// Empty kills what is in the group and waits until nothing is. Walls that hang on the group may be taken down then.
func (g *Group) Empty(limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		n := 0
		for _, d := range g.current() {
			data, err := os.ReadFile(filepath.Join(d.path, "cgroup.procs"))
			if err = ignoreMissing(err); err != nil {
				return fmt.Errorf("count what is in %s: %w", d.path, unwrapPath(err))
			}
			n += len(strings.Fields(string(data)))
		}
		if n == 0 {
			return nil
		}
		if err := g.Kill(); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes in the group do not end within %v", n, limit)
		}
		time.Sleep(pause)
	}
}

// Remove kills what is left in the group and removes its folders.
func (g *Group) Remove() error {
	last := g.Events()
	g.mu.Lock()
	dirs, lent := g.dirs, g.lent
	g.dirs, g.events = nil, last
	g.mu.Unlock()
	var err error
	if lent {
		err = removeRest(g.name, dirs) // first: a name that only they have counts as left behind
	}
	return errors.Join(err, removeAll(dirs))
}

func removeAll(dirs []dir) error {
	var errs []error
	for _, d := range dirs {
		errs = append(errs, d.remove(dirs))
		if d.owner != nil {
			errs = append(errs, d.owner.Close())
		}
	}
	return errors.Join(errs...)
}

// remove removes one folder; the others of the session are thawed where that is needed.
func (d dir) remove(all []dir) error {
	for i := range 100 {
		err := unix.Rmdir(d.path)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("remove %s: %w", d.path, err)
		}
		if err := errors.Join(d.kill(), thawAll(all)); err != nil {
			return err
		}
		time.Sleep(time.Duration(min(i, 20)) * time.Millisecond)
	}
	return fmt.Errorf("remove %s: processes in it do not end", d.path)
}

// kill ends every process of the group: cgroup.kill since Linux 5.14, one by one before.
func (d dir) kill() error {
	if d.unified {
		err := d.write("cgroup.kill", "1")
		if !errors.Is(err, fs.ErrNotExist) {
			return ignoreMissing(err)
		}
	}
	data, err := os.ReadFile(filepath.Join(d.path, "cgroup.procs"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil // removed meanwhile, so it is empty
	}
	if err != nil {
		return err
	}
	for _, f := range strings.Fields(string(data)) {
		if pid, err := strconv.Atoi(f); err == nil && pid > 1 {
			unix.Kill(pid, unix.SIGKILL)
		}
	}
	return nil
}
