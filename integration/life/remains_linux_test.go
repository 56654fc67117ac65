package life

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"coworker/integration/life/plan"
)

// patience is how long the kernel may take to end what was killed.
const patience = 10 * time.Second

// proxyCommand begins the command line of a proxy.
const proxyCommand = "coworker-proxy\x00"

// eventually polls until f finds nothing.
func eventually(f func() []string) []string {
	deadline := time.Now().Add(patience)
	for {
		left := f()
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// processes finds what belongs to sessions at a place: a process in whose mount table or command line
// the place is, and any cell, keeper or proxy that lost its parent. Supervisors are left out.
func processes(p plan.Place) []string {
	var found []string
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return []string{err.Error()}
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		dir := filepath.Join("/proc", e.Name())
		command, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || strings.Contains(string(command), "driver") {
			continue
		}
		mounts, _ := os.ReadFile(filepath.Join(dir, "mountinfo")) // gone or a zombie: no mounts
		stat, _ := os.ReadFile(filepath.Join(dir, "stat"))
		ours := strings.HasPrefix(string(command), "coworker-cell\x00") || strings.HasPrefix(string(command), proxyCommand)
		orphan := ours && strings.Contains(string(stat), ") S 1 ")
		if strings.Contains(string(mounts), p.Workspace+" ") || strings.Contains(string(command), p.Workspace) || orphan {
			found = append(found, fmt.Sprintf("process %d: %q", pid, command))
		}
	}
	return found
}

// hostMounts finds mounts of a session in the host's namespace.
func hostMounts(p plan.Place) []string {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return []string{err.Error()}
	}
	var found []string
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, filepath.Dir(p.Workspace)) {
			found = append(found, "mount: "+line)
		}
	}
	return found
}

// groups finds control groups that no living supervisor holds.
func groups() []string {
	var found []string
	for _, pattern := range []string{"/sys/fs/cgroup/coworker/*", "/sys/fs/cgroup/*/coworker/*"} {
		dirs, _ := filepath.Glob(pattern) // the pattern is well formed
		for _, d := range dirs {
			f, err := os.Open(d)
			if err != nil {
				continue
			}
			if info, err := f.Stat(); err == nil && info.IsDir() && unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
				found = append(found, "control group "+d)
			}
			f.Close()
		}
	}
	return found
}

// files finds what sessions left in their folders: nothing may be there but what is documented. The
// journal of a killed session stays in running until the next one in that folder tells about it.
func files(p plan.Place) []string {
	var found []string
	for dir, allowed := range map[string]string{
		p.State: " probe held running ", filepath.Join(p.State, "probe"): " ", filepath.Join(p.State, "held"): " ",
		p.Store: " home cache probe ", filepath.Join(p.Store, "probe"): " ",
	} {
		entries, err := os.ReadDir(dir)
		if err != nil && !os.IsNotExist(err) {
			found = append(found, err.Error())
		}
		for _, e := range entries {
			if !strings.Contains(allowed, " "+e.Name()+" ") {
				found = append(found, filepath.Join(dir, e.Name()))
			}
		}
	}
	return append(found, sharedMemory()...)
}

// sharedMemory finds scratch repositories of dead supervisors.
func sharedMemory() []string {
	var found []string
	dirs, _ := filepath.Glob("/dev/shm/coworker-probe-*") // the pattern is well formed
	for _, d := range dirs {
		number, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(d), "coworker-probe-"), "-")
		if pid, err := strconv.Atoi(number); err != nil || syscall.Kill(pid, 0) == syscall.ESRCH {
			found = append(found, d)
		}
	}
	return found
}

// wantNothing checks that sessions at a place left nothing that runs or is mounted.
func wantNothing(t testing.TB, p plan.Place) {
	t.Helper()
	if left := eventually(func() []string { return append(processes(p), hostMounts(p)...) }); len(left) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
}

// wantClean checks also for folders. A supervisor that was killed cannot remove its own; the next
// session does, so one must have run.
func wantClean(t testing.TB, p plan.Place) {
	t.Helper()
	wantNothing(t, p)
	left := eventually(func() []string {
		found := files(p)
		if os.Geteuid() == 0 {
			found = append(found, groups()...)
		}
		return found
	})
	if len(left) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
}
