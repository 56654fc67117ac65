package probe

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDescribe opens one descriptor of each kind.
func TestDescribe(t *testing.T) {
	open := func(name string, flags int) func() (int, error) {
		return func() (int, error) { return unix.Open(name, flags|unix.O_CLOEXEC, 0o600) }
	}
	socket := func(family, kind int) func() (int, error) {
		return func() (int, error) { return unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0) }
	}
	for _, tc := range []struct {
		name string
		make func() (int, error)
		fine bool
	}{
		{"null", open("/dev/null", unix.O_RDWR), true},
		{"urandom", open("/dev/urandom", unix.O_RDONLY), true},
		{"event poll", func() (int, error) { return unix.EpollCreate1(unix.EPOLL_CLOEXEC) }, true},
		{"event", func() (int, error) { return unix.Eventfd(0, unix.EFD_CLOEXEC) }, true},
		{"sealed memory", func() (int, error) { return unix.MemfdCreate("x", unix.MFD_CLOEXEC) }, true},
		{"unix socket", socket(unix.AF_UNIX, unix.SOCK_SEQPACKET), true},
		{"folder", open("/", unix.O_RDONLY), false},
		{"folder by path only", open("/", unix.O_PATH), false},
		{"file", open("/proc/self/status", unix.O_RDONLY), false},
		{"namespace", open("/proc/self/ns/net", unix.O_RDONLY), false},
		{"inet socket", socket(unix.AF_INET, unix.SOCK_STREAM), false},
		{"netlink socket", socket(unix.AF_NETLINK, unix.SOCK_RAW), false},
		{"terminal", open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY), false},
		{"process", func() (int, error) { return unix.PidfdOpen(os.Getpid(), 0) }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fd, err := tc.make()
			must(t, err)
			defer unix.Close(fd)
			what, err := describe(fd)
			if err != nil || (what == "") != tc.fine {
				t.Errorf("describe = %q, %v, want fine: %v", what, err, tc.fine)
			}
		})
	}
	if _, err := describe(1 << 20); err != unix.EBADF {
		t.Errorf("describe of a closed descriptor: %v, want EBADF", err)
	}
	for name, want := range map[string]bool{"cpu.max": true, "cpu.cfs_quota_us": true, "cgroup.procs": false, "": false} {
		if got := isCPULimit(name); got != want {
			t.Errorf("isCPULimit(%q) = %v", name, got)
		}
	}
}
