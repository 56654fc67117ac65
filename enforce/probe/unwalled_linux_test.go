package probe

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

// Why an attempt fails although there is no wall. Every other attempt must leak.
const (
	noTarget = "what it looks for does not exist on every machine"
	noKernel = "a kernel may be built without it"
	byIDs    = "the kernel refuses it to everybody who is not root"
	byFiles  = "the file belongs to root"
	clean    = "the test gives the spec, the arguments and the child nothing secret"
)

var alsoStopped = map[string]string{
	"env/arguments": clean, "env/child": clean, "env/spec": clean, "priv/groups": clean,
	"fs.read/host-proc": noTarget, "fs.read/system-secrets": noTarget, "fs.read/kernel-memory": noTarget,
	"fs.read/proc-1-root": "number 1 of the machine has more capabilities than a container's root",
	"fs.read/devices":     noTarget, "fs.read/mounts": noTarget, "fs.write/mounts": noTarget,
	"fs.write/binfmt": noTarget, "fs.write/sysrq": noTarget, "fs.write/sys": noTarget, "fs.write/cgroup": noTarget,
	"fs.write/core-pattern": noTarget, "fs.write/sysctl": noTarget, "fs.write/irq": noTarget,
	"net.local/service-sockets": noTarget,
	"kernel/init-module":        noKernel, "kernel/finit-module": noKernel, "kernel/delete-module": noKernel,
	"kernel/kexec": noKernel, "kernel/kexec-file": noKernel, "kernel/iopl": noKernel, "kernel/ioperm": noKernel,
	"kernel/modify-ldt": noKernel, "kernel/io-uring": noKernel, "kernel/kcmp": noKernel, "kernel/userfaultfd": noKernel,
	"kernel/keyctl": noKernel, "kernel/add-key": noKernel, "kernel/request-key": noKernel,
	"kernel/acct": noKernel, "kernel/quotactl": noKernel, "kernel/bpf": noKernel,
	"net.egress/sctp": noKernel, "net.egress/dccp": noKernel, "net.egress/mptcp": noKernel,
	"net.egress/mptcp-high-bits": noKernel, "net.egress/xdp": noKernel,
	"net.egress/icmp": "net.ipv4.ping_group_range", "net.egress/icmp6": "net.ipv4.ping_group_range",
	"net.local/alg": noKernel, "net.local/bluetooth": noKernel, "net.local/can": noKernel, "net.local/key": noKernel,
	"net.local/qipcrtr": noKernel, "net.local/smc": noKernel, "net.local/tipc": noKernel, "net.local/vsock": noKernel,
	"net.local/vsock-high-bits": noKernel, "net.local/netlink-xfrm": noKernel, "net.local/netlink-audit": noKernel,
	"net.local/netlink-connector": noKernel, "net.local/netlink-netfilter": noKernel,
}

// Without root, more is out of reach: these attempts show a wall only together with others, which
// is why the battery has several for each.
var alsoStoppedUser = map[string]string{
	"fs.write/etc": byFiles, "fs.write/root": byFiles, "fs.write/system": byFiles, "fs.write/system-file": byFiles,
	"fs.write/system-metadata": byFiles, "fs.write/symlink": byFiles, "fs.write/device-node": byIDs,
	"fs.write/mount-attributes": byIDs,
	"kernel/fsmount":            byIDs, "kernel/fsopen": byIDs, "kernel/fspick": byIDs, "kernel/move-mount": byIDs,
	"kernel/mount-setattr": byIDs, "kernel/pivot-root": byIDs, "kernel/reboot": byIDs, "kernel/setdomainname": byIDs,
	"kernel/sethostname": byIDs, "kernel/swapoff": byIDs, "kernel/syslog": byIDs, "kernel/open-by-handle": byIDs,
	"net.egress/packet": byIDs, "net.egress/packet-high-bits": byIDs, "net.egress/raw": byIDs,
	"priv/setgroups": byIDs, "priv/setuid-root": byIDs,
}

// TestWithoutWalls shows that attempts can fail to be stopped, and that they do no harm when they
// are not.
func TestWithoutWalls(t *testing.T) {
	user := maps.Clone(alsoStopped)
	maps.Copy(user, alsoStoppedUser)
	for _, tc := range []struct {
		name string
		uid  int
		also map[string]string
	}{{"root", 0, alsoStopped}, {"user", 4243, user}} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			before, system := h.trees(t), systemState(t)
			probes := h.run(t, tc.uid)
			wantLeaks(t, probes, tc.also)
			wantWorks(t, probes)
			wantSame(t, before, h.trees(t))
			wantSame(t, system, systemState(t))
			h.wantScratch(t)
		})
	}
}

func wantLeaks(t *testing.T, probes map[string]enforce.Probe, also map[string]string) {
	t.Helper()
	leaks := 0
	for name, p := range probes {
		switch {
		case p.Want != enforce.Stopped:
		case p.Got == enforce.Leaked:
			leaks++
		case p.Got == enforce.Stopped && also[name] != "":
		default:
			t.Errorf("%s: %s (%s), want leaked: there is no wall", name, p.Got, p.Detail)
		}
	}
	if leaks < 120 {
		t.Errorf("%d attempts leaked, want nearly all of %d", leaks, len(probes))
	}
	a := enforce.Assess(enforce.Evidence{Probes: slices.Collect(maps.Values(probes)), Mechanisms: everyMechanism()})
	for _, w := range enforce.Walls() {
		if a.Walls[w].Verified {
			t.Errorf("the wall %s counts as verified without any wall", w)
		}
	}
}

func everyMechanism() map[enforce.Wall][]enforce.Mechanism {
	all := map[enforce.Wall][]enforce.Mechanism{}
	for _, w := range enforce.Walls() {
		all[w] = []enforce.Mechanism{enforce.Supervisor}
	}
	return all
}

func wantWorks(t *testing.T, probes map[string]enforce.Probe) {
	t.Helper()
	for name, p := range probes {
		if p.Want == enforce.Works && p.Got != enforce.Works {
			t.Errorf("%s: %s (%s), want works", name, p.Got, p.Detail)
		}
		if p.Where != "inside" || !strings.HasPrefix(name, string(p.Wall)+"/") || p.Detail == "" {
			t.Errorf("probe %+v lacks its place, its wall or its detail", p)
		}
	}
}

func wantSame(t *testing.T, before, after map[string]string) {
	t.Helper()
	for p, line := range before {
		if after[p] != line {
			t.Errorf("%s changed from\n\t%s\nto\n\t%s", p, line, after[p])
		}
	}
	for p := range after {
		if before[p] == "" {
			t.Errorf("%s was left behind", p)
		}
	}
}

// trees lists the person's folders.
func (h *host) trees(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, dir := range []string{"home", "work", "docs"} {
		maps.Copy(all, snapshot(t, h.path(dir)))
	}
	// The canary is cut to its own length, which keeps everything but its times.
	canary := h.setup.Targets.StateFile
	head, tail, _ := strings.Cut(all[canary], " mtime=")
	_, data, found := strings.Cut(tail, " data=")
	if !found {
		t.Fatalf("canary %s: %q has no data", canary, all[canary])
	}
	all[canary] = head + data
	return all
}

// systemState lists what the attempts on the system aim at.
func systemState(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, dir := range []string{"/", "/usr", "/usr/bin", "/usr/lib", "/etc"} {
		names, err := list(dir)
		must(t, err)
		slices.Sort(names)
		all[dir] = strings.Join(names, " ")
	}
	for _, f := range systemFiles {
		maps.Copy(all, snapshot(t, f))
	}
	var uts unix.Utsname
	must(t, unix.Uname(&uts))
	all["uname"] = string(uts.Nodename[:]) + string(uts.Domainname[:])
	return all
}

// wantScratch wants the scratch repository back as it was but for the names of AbsentAttempts.
func (h *host) wantScratch(t *testing.T) {
	t.Helper()
	left := map[string]bool{}
	for p := range snapshot(t, h.path("scratch")) {
		left[strings.TrimPrefix(strings.TrimPrefix(p, h.path("scratch")), "/")] = true
	}
	for _, a := range AbsentAttempts() {
		for _, p := range a.Paths {
			if !left[p] {
				t.Errorf("%s: %s was not left for the sweep", a.Name, p)
			}
			delete(left, p)
		}
	}
	for _, f := range ScratchFiles(secret) {
		if !left[f.Path] {
			t.Errorf("%s is gone from the scratch repository", f.Path)
		}
		delete(left, f.Path)
	}
	for _, dir := range []string{"", ".git", ".git/hooks", "conf"} {
		delete(left, dir)
	}
	if len(left) > 0 {
		t.Errorf("left in the scratch repository: %v", left)
	}
}

// TestRunInterrupted wants every attempt in the list, and none of them stopped.
func TestRunInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	probes := Run(ctx, Setup{Backend: enforce.Native})
	if len(probes) < 100 {
		t.Errorf("%d probes, want the whole battery", len(probes))
	}
	for _, p := range probes {
		if p.OK() {
			t.Errorf("%s is %s although it was not made", p.Name, p.Got)
		}
	}
}

// TestRunWithoutTargets wants no attempt to pass for lack of something to aim at.
func TestRunWithoutTargets(t *testing.T) {
	if os.Getuid() == 0 {
		ownNetwork(t)
	}
	for _, p := range Run(t.Context(), Setup{Backend: enforce.Native}) {
		named := strings.HasPrefix(p.Name, "fs.read/state-") || strings.HasPrefix(p.Name, "fs.protect/") ||
			strings.HasPrefix(p.Name, "net.local/loopback") || strings.HasPrefix(p.Name, "proc/kill") && p.Name != "proc/kill-all"
		if named && p.Got != enforce.Inconclusive {
			t.Errorf("%s without a target: %s (%s), want inconclusive", p.Name, p.Got, p.Detail)
		}
	}
}

// TestBareWithoutScratch wants one line for each wall that needs a scratch repository, and
// nothing made in the working folder.
func TestBareWithoutScratch(t *testing.T) {
	if os.Getuid() == 0 {
		ownNetwork(t)
	}
	t.Chdir(t.TempDir())
	lines := 0
	for _, p := range Run(t.Context(), Setup{Backend: enforce.Bare}) {
		if p.Wall != enforce.FSProtect && p.Wall != enforce.FSHide {
			continue
		}
		lines++
		if p.Got != enforce.Inconclusive {
			t.Errorf("%s: %s (%s), want inconclusive", p.Name, p.Got, p.Detail)
		}
	}
	if names, err := list("."); lines != 2 || err != nil || len(names) > 0 {
		t.Errorf("%d lines about protected and hidden files, want 2; left in the working folder: %v %v", lines, names, err)
	}
}
