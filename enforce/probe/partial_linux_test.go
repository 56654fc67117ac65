package probe

import (
	"strings"
	"testing"

	"coworker/enforce"
)

// TestSingleWalls raises one wall by hand and wants the attempts on it, and only these, to change.
func TestSingleWalls(t *testing.T) {
	for _, tc := range []struct {
		name    string
		wrapper []string
		stopped []string
		leaked  []string
	}{
		{
			name:    "network namespace",
			wrapper: []string{"unshare", "--net", "sh", "-c", `ip link set lo up && exec "$0"`},
			stopped: []string{"net.egress/tcp4", "net.egress/tcp6", "net.egress/tcp6-mapped", "net.egress/udp4", "net.egress/udp6",
				"net.egress/udp-dns", "net.egress/fastopen-sendto", "net.egress/fastopen-sendmsg", "net.egress/fastopen-connect",
				"net.egress/namespace", "net.egress/interfaces", "net.egress/routes",
				"net.local/loopback4", "net.local/loopback6", "net.local/loopback-any", "net.local/udp", "net.local/abstract"},
			leaked: []string{"net.local/path", "net.egress/packet", "net.local/netlink-generic", "proc/kill", "fs.read/state-file", "priv/no-new-privs"},
		},
		{
			name:    "pid namespace",
			wrapper: []string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc"},
			stopped: []string{"proc/kill", "proc/tgkill", "proc/pidfd", "proc/kill-all", "proc/proc-environ", "proc/proc-mem",
				"proc/proc-root", "proc/list", "proc/namespace", "proc/read-memory", "life/number-one", "life/parent-outside"},
			leaked: []string{"net.egress/tcp4", "fs.read/state-file", "kernel/mount", "net.local/abstract", "net.local/loopback4"},
		},
		{
			name:    "pid namespace with the proc of the host",
			wrapper: []string{"unshare", "--pid", "--fork", "--kill-child"},
			stopped: []string{"proc/kill", "proc/pidfd"},
			leaked:  []string{"proc/proc-environ", "proc/proc-root", "proc/list"},
		},
		{
			name: "privileges",
			wrapper: []string{"setpriv", "--no-new-privs", "--bounding-set", "-all", "--inh-caps", "-all",
				"--securebits", "+noroot,+noroot_locked", "--clear-groups"},
			stopped: []string{"priv/no-new-privs", "priv/capabilities", "priv/bounding-set", "priv/securebits", "priv/setgroups",
				"priv/setuid-root", "fs.write/mount-attributes", "kernel/acct", "kernel/sethostname", "net.egress/packet"},
			leaked: []string{"priv/child", "priv/uid-map", "priv/user-namespace", "kernel/mount", "fs.read/state-file", "kernel/io-uring",
				"fs.write/core-pattern"}, // uid 0 without any capability
		},
		{
			name:    "read-only mounts",
			wrapper: []string{"unshare", "--mount", "sh", "-c", `mount --bind / / && mount -o remount,bind,ro / && exec "$0"`},
			stopped: []string{"fs.write/root", "fs.write/system", "fs.write/etc", "fs.write/system-file", "fs.write/system-metadata",
				"fs.write/state-file", "fs.write/read-only-trees", "fs.protect/present-write", "fs.protect/present-replace", "fs.protect/move-away",
				"fs.protect/chmod", "fs.read/mount-namespace"},
			leaked: []string{"fs.read/state-file", "fs.read/mounts", "fs.write/core-pattern", "proc/kill", "net.egress/tcp4"},
		},
		{
			name:    "parent-death signal",
			wrapper: []string{"env", "PROBE_TEST_PDEATHSIG=1"},
			stopped: []string{"life/parent-death-signal"},
			leaked:  []string{"life/number-one", "proc/kill"},
		},
		{
			name:    "core limit",
			wrapper: []string{"prlimit", "--core=0:0"},
			stopped: []string{"res/core"},
			leaked:  []string{"life/parent-death-signal"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			probes := h.run(t, 0, tc.wrapper...)
			want(t, probes, enforce.Stopped, tc.stopped)
			want(t, probes, enforce.Leaked, tc.leaked)
		})
	}
}

func want(t *testing.T, probes map[string]enforce.Probe, outcome enforce.Outcome, names []string) {
	t.Helper()
	for _, name := range names {
		if p, ok := probes[name]; !ok || p.Got != outcome {
			t.Errorf("%s: %s (%s), want %s", name, p.Got, p.Detail, outcome)
		}
	}
}

// pins raises the pins and masks of a tree by hand, as a backend does: ancestors as writable
// binds on themselves, protected paths read-only, secrets under an unreadable file.
const pins = `set -e
mask=$1 work=$2 scratch=$3 exe=$4
chmod 000 "$mask"
for dir in "$work" "$scratch"; do
	mount --bind "$dir" "$dir"
	mount --bind "$dir/.git" "$dir/.git"
	for p in .git/config .git/hooks .mcp.json; do
		mount --bind "$dir/$p" "$dir/$p"
		mount -o remount,bind,ro "$dir/$p"
	done
	mount --bind "$mask" "$dir/.env"
	mount -o remount,bind,ro "$dir/.env"
done
mount --bind "$scratch/conf" "$scratch/conf"
mount --bind "$mask" "$scratch/conf/.env"
mount -o remount,bind,ro "$scratch/conf/.env"
exec setpriv --bounding-set -all --inh-caps -all --no-new-privs --securebits +noroot "$exe"`

// TestPins wants every attack on the scratch repository stopped by pins and masks alone, with the
// absent names created.
func TestPins(t *testing.T) {
	h := newHost(t)
	write(t, h.dir, "mask", "")
	h.setup.Spec.Trees[0].MaskDirs = nil
	h.own(t, 0)
	before := h.trees(t)
	// The executable comes last: run appends it.
	probes := h.run(t, 0, "unshare", "--mount", "sh", "-c", pins, "sh", h.path("mask"), h.path("work"), h.path("scratch"))
	absent := map[string]bool{}
	for _, a := range AbsentAttempts() {
		absent[a.Name] = true
	}
	for name, p := range probes {
		if p.Wall != enforce.FSProtect && p.Wall != enforce.FSHide {
			continue
		}
		if wanted := absent[name]; wanted != (p.Got == enforce.Leaked) || !wanted && p.Got != p.Want {
			t.Errorf("%s: %s (%s)", name, p.Got, p.Detail)
		}
	}
	wantSame(t, before, h.trees(t))
	h.wantScratch(t)
}

func TestLimits(t *testing.T) {
	h := newHost(t)
	h.setup.Spec.Limits = enforce.Limits{OpenFiles: 512, FileSize: 1 << 20, Tmp: 1 << 20, Memory: 1 << 30}
	h.setup.Limits = []enforce.Limit{
		{Name: "processes", Value: 1 << 16, Active: true, Mechanism: enforce.Rlimit},
		{Name: "memory", Value: 1 << 30, Active: true, Mechanism: enforce.Cgroup},
	}
	probes := h.run(t, 0, "unshare", "--mount", "prlimit", "--nofile=512:512", "--fsize=2097152:2097152")
	want(t, probes, enforce.Stopped, []string{"res/open_files"})
	want(t, probes, enforce.Leaked, []string{"res/file_size", "res/processes", "res/tmp"})
	for name := range probes {
		if strings.HasPrefix(name, "res/memory") {
			t.Error("a limit that a cgroup keeps cannot be seen from inside")
		}
	}
}
