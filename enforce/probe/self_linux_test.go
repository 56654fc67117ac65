package probe

import (
	"testing"

	"coworker/enforce"
)

// TestFilterAlone puts the committed filters on the battery: every attempt on the system-call
// surface is refused with an errno that the battery knows, and nothing that must work breaks.
func TestFilterAlone(t *testing.T) {
	for _, uid := range []int{0, 4243} {
		h := newHost(t)
		probes := h.run(t, uid, "env", "PROBE_TEST_SECCOMP=native")
		for name, p := range probes {
			if p.Wall == enforce.Kernel && !p.OK() {
				t.Errorf("uid %d: %s: %s (%s), want %s", uid, name, p.Got, p.Detail, p.Want)
			}
		}
		wantWorks(t, probes)
		want(t, probes, enforce.Stopped, []string{
			"net.egress/mptcp", "net.egress/mptcp-high-bits", "net.egress/raw", "net.egress/packet", "net.egress/packet-high-bits",
			"net.egress/fastopen-sendto", "net.egress/fastopen-sendmsg", "net.egress/fastopen-high-bits", "net.egress/fastopen-connect",
			"net.local/vsock", "net.local/vsock-high-bits", "net.local/netlink-generic", "net.local/netlink-audit",
			"net.local/netlink-uevent", "net.local/alg", "fs.write/device-node", "fs.write/mount-attributes", "priv/user-namespace",
			"priv/no-new-privs",
		})
		want(t, probes, enforce.Leaked, []string{
			"net.egress/tcp4", "net.egress/udp4", "net.local/loopback4", "net.local/abstract", "proc/kill", "fs.read/state-file",
			"fs.protect/unlink", "life/parent-death-signal",
		})
	}
}

// TestDebugFilter wants the attempts that a debugger makes left out, and no other.
func TestDebugFilter(t *testing.T) {
	h := newHost(t)
	all := h.run(t, 4243, "env", "PROBE_TEST_SECCOMP=native")
	h = newHost(t)
	h.setup.Spec.Debug = true
	probes := h.run(t, 4243, "env", "PROBE_TEST_SECCOMP=debug")
	for name := range all {
		_, made := probes[name]
		tracing := name == "kernel/ptrace" || name == "kernel/process-vm-readv" || name == "kernel/process-vm-writev"
		if made == tracing {
			t.Errorf("%s is made with debug: %v, want %v", name, made, !tracing)
		}
	}
	for name, p := range probes {
		if p.Wall == enforce.Kernel && !p.OK() {
			t.Errorf("%s: %s (%s), want %s", name, p.Got, p.Detail, p.Want)
		}
	}
}

// TestLandlockAlone is the backend bare without its filter: what Landlock stops, and the ways
// round it that are known.
func TestLandlockAlone(t *testing.T) {
	for _, uid := range []int{0, 4243} {
		h := newHost(t)
		h.setup.Backend = enforce.Bare
		probes := h.run(t, uid, "env", "PROBE_TEST_LANDLOCK=1")
		want(t, probes, enforce.Stopped, []string{
			"fs.read/state-file", "fs.read/state-folder", "fs.read/symlink", "fs.read/dotdot", "fs.read/proc-self-root", "fs.read/system-secrets",
			"fs.read/home-secrets", "fs.write/root", "fs.write/system", "fs.write/system-file", "fs.write/state-file",
			"fs.write/read-only-trees", "net.egress/tcp4", "net.egress/tcp6", "net.egress/fastopen-connect",
			"net.local/loopback4", "net.local/loopback6", "net.local/abstract", "proc/kill", "proc/pidfd",
		})
		if uid != 0 { // CAP_PERFMON reads it without asking Landlock (may_access_mm, Linux 6.15)
			want(t, probes, enforce.Stopped, []string{"proc/proc-environ"})
		}
		// Landlock knows neither carve-outs, nor UDP, nor path sockets (ABI 7), nor fast open.
		want(t, probes, enforce.Leaked, []string{
			"fs.protect/unlink", "fs.protect/move-parent", "fs.hide/scratch-read", "net.egress/udp4", "net.egress/mptcp",
			"net.egress/fastopen-sendto", "net.local/path", "net.local/udp", "proc/list",
		})
	}
}

// TestBare puts up everything that the backend bare has. It stays partial, and says so.
func TestBare(t *testing.T) {
	h := newHost(t)
	h.setup.Backend = enforce.Bare
	probes := h.run(t, 4243, "env", "PROBE_TEST_LANDLOCK=1", "PROBE_TEST_SECCOMP=bare")
	for name, p := range probes {
		if (p.Wall == enforce.NetEgress || p.Wall == enforce.NetLocal || p.Wall == enforce.Kernel) && !p.OK() {
			t.Errorf("%s: %s (%s), want %s", name, p.Got, p.Detail, p.Want)
		}
	}
	want(t, probes, enforce.Leaked, []string{"fs.protect/unlink", "fs.hide/scratch-read", "proc/list"})
}

// TestDumpable wants the cell's own files still readable when it is not dumpable.
func TestDumpable(t *testing.T) {
	h := newHost(t)
	probes := h.run(t, 4243, "env", "PROBE_TEST_DUMPABLE=1")
	want(t, probes, enforce.Stopped, []string{"priv/dumpable"})
	for name, p := range probes {
		if p.Wall == enforce.Priv && p.Got == enforce.Inconclusive || p.Want == enforce.Works && p.Got != enforce.Works {
			t.Errorf("%s: %s (%s)", name, p.Got, p.Detail)
		}
	}
}
