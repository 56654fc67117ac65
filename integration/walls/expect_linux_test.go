package walls

import (
	"slices"
	"strings"
	"testing"
)

// expectation is what attempts must come to. inside and outside list the errnos that are right, with these words:
// "ok" the attempt works; "any" it does not matter, the effect on the host decides; "reached" any errno but those of a
// refusal, for calls with arguments that do no harm; "root" as ok, and only root has a control (others may not do it
// anyway); "none" no control, for the reason in why.
type expectation struct {
	names   string // exact, or with a * at the end
	inside  string
	outside string
	effect  effect
	why     string
}

// effect is what the test looks at, beside the answer.
type effect string

const (
	onTree   effect = "tree"   // the host's files change
	onSecret effect = "secret" // the canary is printed
	onHosts  effect = "hosts"  // a listener is reached
	swept    effect = "swept"  // works inside, and is gone from the host when the command has ended
)

const (
	unseen     = "ENOENT"
	unwritable = "EROFS EBUSY EXDEV EPERM EACCES"
	masked     = "EACCES EPERM"
	unreached  = "ENETUNREACH ECONNREFUSED EADDRNOTAVAIL EHOSTUNREACH EPERM" // the last from kernel programs, of root
	noFamily   = "EAFNOSUPPORT EPROTONOSUPPORT ESOCKTNOSUPPORT"
	// maybe is the control of protocols that a kernel may be built without.
	maybe = "ok EAFNOSUPPORT EPROTONOSUPPORT ESOCKTNOSUPPORT EPERM EACCES"
)

// expectations are looked through from the top; the first match counts.
var expectations = []expectation{
	{"outside-*", unseen, "ok", onTree, ""},
	{"home-start-files", "any", "ok", onTree, ""},
	{"home-state", "any", "ok", onTree, ""},
	{"home-sibling", "any", "ok", onTree, ""},
	{"cwd-parent", "any", "ok", onTree, ""},
	{"rename-out", unseen, "ok", onTree, ""},
	{"link-in-and-write", unseen, "ok", onTree, ""},
	{"system-kernel", "EROFS EACCES ENOENT EPERM", "root", "", ""},
	{"system-*", "EROFS EACCES ENOENT EPERM EOPNOTSUPP", "root", "", ""},

	{"protect-other-case", unwritable, "ok", onTree, ""},
	{"protect-aside:*", "EBUSY EXDEV", "ok", onTree, ""},
	{"protect-*", unwritable, "ok", onTree, ""},
	{"absent*", "ok", "ok", swept, ""},

	{"secret-handle", "EPERM", "ok", "", ""},
	{"secret-openat2", "ENOSYS EACCES", "ok", onSecret, ""},
	{"secret-copy", "", "ok", onTree, ""},
	{"secret-replace", unwritable, "ok", onTree, ""},
	{"secret-unlink", unwritable, "ok", onTree, ""},
	{"secret-write", unwritable, "ok", onTree, ""},
	{"secret-chmod", unwritable, "ok", onSecret, ""},
	{"secret-hardlink", unwritable, "ok", onSecret, ""},
	{"secret-move", unwritable, "ok", onSecret, ""},
	{"secret*", masked, "ok", onSecret, ""},
	{"home-secret:*", unseen, "ok", onSecret, ""},
	{"ordinary-*", "ok", "ok", "", ""},
	{"example-env", "ok", "ok", "", ""},
	{"read-outside", unseen, "ok", onSecret, ""},
	{"read-sibling", unseen, "ok", onSecret, ""},
	{"list-*", unseen, "ok", "", ""},
	{"stat-outside", unseen, "ok", "", ""},
	{"read-host-files", "ENOENT EACCES", "ok", "", ""},
	{"read-shadow", "ENOENT EACCES", "root", "", ""},
	{"read-kernel-memory", "ENOENT EACCES EPERM ENOTDIR", "root", "", ""},
	{"old-root", "ENOENT", "none", "", "only a cell could have such a folder"},

	{"proc-many", unseen, "ok", "", ""},
	{"proc-foreign-environ", unseen, "ok", "", ""},
	{"proc-other:*", "ENOENT EACCES EPERM", "ok", "", ""},

	{"unshare-*", "EPERM", "ok EINVAL", "", ""}, // EINVAL: a program with threads reached the check for them
	{"clone-user", "EPERM", "ok", "", ""},
	{"umount-mask", "EPERM", "root EINVAL", "", ""}, // nothing is mounted there outside
	{"umount-proc", "EPERM", "root", "", ""},
	{"remount-root", "EPERM", "root", "", ""},
	{"mount-*", "EPERM", "root", "", ""},
	{"bind-work", "EPERM", "root", "", ""},
	{"open-tree", "EPERM", "root", "", ""},
	{"chroot", "EPERM", "root", "", ""},
	{"device-node", "EPERM", "root", "", ""},
	{"set-user-id*", "EPERM", "ok", "", ""},

	{"call-clone3", "ENOSYS", "reached", "", ""},
	{"call-io-uring-*", "ENOSYS", "reached", "", ""},
	{"call-keyring-id", "ENOSYS", "ok ENOKEY", "", ""},
	{"call-add-user-key", "ENOSYS", "ok", "", ""},
	{"call-add-key", "ENOSYS", "reached", "", ""},
	{"call-request-key", "ENOSYS", "reached", "", ""},
	{"call-perf-event", "EACCES", "reached", "", ""},
	{"call-listener", "EINVAL", "none", "", "outside the answer depends on the privilege to filter; filters are covered by other-filter"},
	{"call-personality", "EINVAL", "ok", "", ""},
	{"call-tiocsti*", "EIO", "reached", "", ""},
	{"call-tioclinux", "ENOTTY", "reached", "", ""},
	{"call-line-discipline", "EINVAL", "reached", "", ""},
	{"call-init-module", "EPERM", "none", "", "kernels built without modules answer ENOSYS"},
	{"call-delete-module", "EPERM", "none", "", "kernels built without modules answer ENOSYS"},
	{"call-kexec", "EPERM", "none", "", "kernels built without it answer ENOSYS"},
	{"call-*", "EPERM", "reached", "", ""},

	{"foreign-x32", "EPERM ENOSYS", "none", "", "kernels built without x32 answer ENOSYS"},
	{"foreign-i386", "EPERM ENOSYS", "ok EPERM ENOSYS", "", ""}, // a kernel may be built without it

	{"signal*", "ESRCH", "ok", "", ""},
	{"pidfd", "ESRCH", "ok", "", ""},
	{"ptrace-seize", "EPERM", "ok", "", ""},
	{"vm-*", "EPERM", "ok", "", ""},
	{"mem-write", "ENOENT EACCES EPERM", "ok", "", ""},
	{"comm-write", "ENOENT EACCES EPERM", "ok", "", ""},
	{"oom-score-write", "ENOENT EACCES EPERM", "ok", "", ""},
	{"prlimit", "ESRCH", "ok", "", ""},
	{"priority", "ESRCH", "ok", "", ""},
	{"affinity", "ESRCH", "ok", "", ""},
	{"shared-memory", "EINVAL EIDRM ENOSYS", "ok", "", ""},
	{"message-queue", "ENOENT ENOSYS", "ok", "", ""},

	{"capabilities", "EPERM", "root", "", ""},
	{"capabilities-bounding", "EPERM", "ok", "", ""},
	{"new-privileges", "EPERM", "ok", "", ""},
	{"no-filter", "EPERM", "ok", "", ""},
	{"capset", "EPERM", "root", "", ""},
	{"setuid-other", "EPERM EINVAL", "root", "", ""},
	{"setuid-program", "EPERM", "ok", "", ""},
	{"setgroups", "EPERM", "root", "", ""},
	{"securebits", "EPERM", "root", "", ""},
	{"other-filter", "EPERM", "ok EINVAL", "", ""},
	{"dump-cell", "EPERM EACCES ENOENT", "ok", "", ""},

	{"socket:work", "ECONNREFUSED EACCES EPERM", "ok", onHosts, ""},
	{"socket-move", unwritable, "ok", onHosts, ""},
	{"socket-abstract", "ECONNREFUSED EPERM", "ok", onHosts, ""},
	{"socket-datagram-abstract", "ECONNREFUSED EPERM", "ok", onHosts, ""},
	{"socket*", unseen, "ok", onHosts, ""},
	{"passed-descriptor", masked, "ok", onSecret, ""},

	{"tcp:*", unreached, "ok", onHosts, ""},
	{"udp:udp-loopback*", "any", "ok", onHosts, ""}, // the cell's own loopback takes it, and nobody listens
	{"udp*", unreached, "ok", onHosts, ""},
	{"fast-open", "EOPNOTSUPP", "ok", onHosts, ""},
	{"fast-open-option", "ENOPROTOOPT", "ok", "", ""},
	{"multicast", unreached, "ok", "", ""},
	{"link-local-scoped", "any", "none", "", "its own loopback may take it; nothing leads out of the namespace"},
	{"bind-far", "EADDRNOTAVAIL EPERM", "ok", "", ""},
	{"make-netlink-route", "ok", "ok", "", ""},
	{"make-netlink-*", "EPROTONOSUPPORT", maybe, "", ""},
	{"make-tcp", "ok", "ok", "", ""},
	{"make-udp6", "ok", "ok", "", ""},
	{"make-unix", "ok", "ok", "", ""},
	{"make-raw*", "EPERM", "root", "", ""},
	{"make-ping*", "EPROTONOSUPPORT", maybe, "", ""},
	{"make-mptcp*", "EPROTONOSUPPORT", maybe, "", ""},
	{"make-*", noFamily, maybe, "", ""},

	{"limit-file-size", "EFBIG", "ok", "", ""},
	{"limit-raise", "EPERM", "root EPERM", "", ""}, // root of a container may lack the right
	{"limit-core", "EPERM", "ok EPERM", "", ""},    // a service manager may have closed it outside too
	{"limit-tmp", "ENOSPC", "none", "", "outside it takes the space of the machine's disk"},
	{"limit-nice", "EACCES EPERM", "root", "", ""},
	{"limit-realtime", "EPERM", "none", "", "a real-time thread outside would stop the machine"},
	{"may-*", "ok", "ok", "", ""},
}

// expected finds the expectation of an attempt.
func expected(name string) (expectation, bool) {
	i := slices.IndexFunc(expectations, func(e expectation) bool {
		prefix, wild := strings.CutSuffix(e.names, "*")
		return e.names == name || wild && strings.HasPrefix(name, prefix)
	})
	if i < 0 {
		return expectation{}, false
	}
	return expectations[i], true
}

// insideIsRight says whether the answer inside a cell is one of those expected.
func (e expectation) insideIsRight(o outcome) bool {
	return e.inside == "any" || has(e.inside, "ok") && o.Worked || !o.Worked && (e.inside == "" || o.Errno != "" && has(e.inside, o.Errno))
}

// outsideIsRight says the same of the control.
func (e expectation) outsideIsRight(o outcome, root bool) bool {
	refusals := "EPERM EACCES ENOSYS"
	switch {
	case e.outside == "none":
		return true
	case has(e.outside, "root") && !root:
		return true
	case has(e.outside, "reached"):
		return o.Worked || !root || o.Errno != "" && !has(refusals, o.Errno)
	}
	return (has(e.outside, "ok") || has(e.outside, "root")) && o.Worked || has(e.outside, o.Errno)
}

func has(list, word string) bool { return slices.Contains(strings.Fields(list), word) }

// TestExpectationsDiscern shows that a wrong answer is noticed, and that every line of the table is in use.
func TestExpectationsDiscern(t *testing.T) {
	e := expectation{inside: "EPERM", outside: "ok"}
	for _, tt := range []struct {
		o               outcome
		inside, outside bool
	}{
		{outcome{Worked: true}, false, true},
		{outcome{Errno: "EPERM"}, true, false},
		{outcome{Errno: "ENOENT"}, false, false},
		{outcome{}, false, false},
	} {
		if got := e.insideIsRight(tt.o); got != tt.inside {
			t.Errorf("inside %+v is right: %v, want %v", tt.o, got, tt.inside)
		}
		if got := e.outsideIsRight(tt.o, true); got != tt.outside {
			t.Errorf("outside %+v is right: %v, want %v", tt.o, got, tt.outside)
		}
	}
	used := map[string]bool{}
	for _, name := range attemptNames(t) {
		e, ok := expected(name)
		if !ok {
			t.Errorf("attempt %q has no expectation", name)
		}
		used[e.names] = true
		if e.outside == "none" != (e.why != "") {
			t.Errorf("%q: a control is left out for a reason, and only then", e.names)
		}
	}
	for _, e := range expectations {
		if !used[e.names] {
			t.Errorf("the expectation of %q matches no attempt", e.names)
		}
	}
}
