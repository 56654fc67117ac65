package probe

import (
	"context"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

// attempt is one row of the battery.
type attempt struct {
	name string // after "wall/"
	wall enforce.Wall
	part string
	run  func(*battery) result
	only enforce.BackendName // empty: every backend; native: those with namespaces
	want enforce.Outcome     // empty: Stopped
}

func (a attempt) fits(b enforce.BackendName) bool {
	return a.only == "" || a.only == b || a.only == enforce.Native && b.Namespaces()
}

// battery is what the attempts share: the setup and facts that several of them need.
type battery struct {
	Setup
	ownNet  bool // the network namespace is not the supervisor's
	ownPid  bool
	pid     int
	threads []status // /proc/self/task/*/status
	thrErr  error
	killAll error // of kill(-1, 0), asked before there is a child
	child   child
	proxy   []result     // of conversations, in their order; nil before they were held
	half    enforce.Half // set in a battery that one half of the mechanisms surrounds, see Alone
	control bool         // nothing surrounds it: what can work, works
}

// Run makes every attempt once and reports what happened, in a fixed order. It starts one
// process and ends it, sends nobody else a signal but number 0, and undoes what worked, except
// for the names of AbsentAttempts. Call it on the main thread of the process (lock the main goroutine in an init
// function), because the parent-death signal belongs to a thread, and before anything else reaps
// children. When ctx ends, the attempts that are left are inconclusive.
func Run(ctx context.Context, s Setup) []enforce.Probe {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b := newBattery(s)
	if ctx.Err() == nil {
		b.child.started = b.child.fork(s.Spec.Env)
		defer b.child.end()
		defer scratch(s.Targets.Scratch).clean()
	}
	attempts := table(s)
	probes := make([]enforce.Probe, 0, len(attempts))
	for _, a := range attempts {
		if !a.fits(s.Backend) {
			continue
		}
		r := unclear("the battery was interrupted")
		if ctx.Err() == nil {
			r = a.run(b)
		}
		want := a.want
		if want == "" {
			want = enforce.Stopped
		}
		probes = append(probes, enforce.Probe{
			Name: string(a.wall) + "/" + a.name, Wall: a.wall, Part: a.part,
			Want: want, Got: r.got, Detail: r.detail, Where: where,
		})
	}
	return probes
}

func newBattery(s Setup) *battery {
	b := &battery{Setup: s, pid: os.Getpid()}
	b.ownNet = differs("/proc/self/ns/net", s.Targets.HostNetNS)
	b.ownPid = differs("/proc/self/ns/pid", s.Targets.HostPidNS)
	b.threads, b.thrErr = readThreads()
	b.killAll = unix.Kill(-1, 0)
	return b
}

// differs reports whether a namespace is known to be another one than the supervisor's. What
// cannot be read, or compared, does not count as different.
func differs(link, host string) bool {
	own, err := os.Readlink(link)
	return err == nil && host != "" && own != host
}

// table lists the battery. The child is asked last, so that it gets going in the meantime.
func table(s Setup) []attempt {
	var all []attempt
	for _, part := range [][]attempt{
		fsRead(s), fsWrite(s), present(s), scratchAttacks(s), absent(s), hide(s),
		egress(s), programs(s), proxied(s), local(s), procSignals(), procFiles(), kernelCalls(s), kernelState(),
		priv(), env(), limits(s), life(), positive(s), childFacts(),
	} {
		all = append(all, part...)
	}
	return all
}

// under reports whether p is one of the dirs or lies below one.
func under(p string, dirs ...string) bool {
	for _, d := range dirs {
		if d != "" && (p == d || d == "/" || strings.HasPrefix(p, strings.TrimSuffix(d, "/")+"/")) {
			return true
		}
	}
	return false
}

func errnoName(err error) string {
	errno, ok := err.(unix.Errno)
	if !ok {
		return err.Error()
	}
	if name := unix.ErrnoName(errno); name != "" {
		return name
	}
	return errno.Error()
}
