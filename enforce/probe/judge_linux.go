package probe

import (
	"slices"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

// result is what one attempt showed.
type result struct {
	got    enforce.Outcome
	detail string
}

func stopped(detail string) result { return result{enforce.Stopped, detail} }
func leaked(detail string) result  { return result{enforce.Leaked, detail} }
func unclear(detail string) result { return result{enforce.Inconclusive, detail} }

// worst keeps the result that matters: a leak, then what is unclear, then the first.
func worst(results ...result) result {
	for _, got := range []enforce.Outcome{enforce.Leaked, enforce.Broken, enforce.Inconclusive} {
		for _, r := range results {
			if r.got == got {
				return r
			}
		}
	}
	if len(results) == 0 {
		return unclear("nothing was attempted")
	}
	return results[0]
}

// errnos are the ways in which one wall refuses one attempt.
type errnos []unix.Errno

var (
	// refusedCall is how the system-call filter answers: as a kernel without the privilege, or
	// without the call.
	refusedCall = errnos{unix.EPERM, unix.ENOSYS}
	// refusedSocket is how it answers for socket families, types and protocols, and how a kernel
	// answers that has none of them.
	refusedSocket = errnos{unix.EPERM, unix.EACCES, unix.EAFNOSUPPORT, unix.ESOCKTNOSUPPORT, unix.EPROTONOSUPPORT}
)

// judge sorts the error of one attempt: nil is a leak, an errno of the wall is a stop, an errno
// that shows that the attempt got past the wall (a bad pointer was read, a bad descriptor was
// looked up) is a leak, and everything else proves nothing.
func judge(err error, stops, past errnos) result {
	errno, ok := err.(unix.Errno)
	if err == nil || ok && errno == 0 {
		return leaked("it worked")
	}
	switch {
	case !ok:
		return unclear(err.Error())
	case slices.Contains(stops, errno):
		return stopped(errnoName(errno))
	case slices.Contains(past, errno):
		return leaked("the attempt got past the wall: " + errnoName(errno))
	default:
		return unclear("unexpected " + errnoName(errno))
	}
}

// judgeWorks sorts the error of a positive attempt.
func judgeWorks(what string, err error) result {
	if err == nil {
		return result{enforce.Works, what}
	}
	return result{enforce.Broken, what + ": " + errnoName(err)}
}

// at puts the object of the attempt in front of the detail.
func (r result) at(object string) result {
	r.detail = object + ": " + r.detail
	return r
}

// hidden is how reading a path that is not listed fails. In native the path does not exist in
// the cell's root; Landlock answers EACCES for what exists. In bare only Landlock can refuse, and
// a missing file proves nothing.
func (b *battery) hidden() errnos {
	if b.half != "" {
		return b.alone(unix.ENOENT)
	}
	if b.Backend == enforce.Bare {
		return b.landlock()
	}
	return errnos{unix.ENOENT, unix.EACCES}
}

// unwritable is how writing fails: read-only mounts answer EROFS, Landlock EACCES.
func (b *battery) unwritable() errnos {
	if b.half != "" {
		return b.alone(unix.ENOENT, unix.EROFS)
	}
	if b.Backend == enforce.Bare {
		return b.landlock()
	}
	return errnos{unix.EROFS, unix.EACCES}
}

func (b *battery) landlock() errnos {
	if b.LandlockABI < 1 {
		return nil
	}
	return errnos{unix.EACCES}
}

// unreachable is how a connection to an address of the outside fails. ENETUNREACH counts only in
// an own network namespace: a laptop without a network answers the same.
func (b *battery) unreachable() errnos {
	if b.half != "" {
		return b.alone(unix.ENETUNREACH, unix.EADDRNOTAVAIL)
	}
	if b.Backend == enforce.Bare {
		stops := errnos{unix.EPERM} // the kernel programs on the control group
		if b.LandlockABI >= 4 {     // LANDLOCK_ACCESS_NET_CONNECT_TCP, Linux 6.7
			stops = append(stops, unix.EACCES)
		}
		return stops
	}
	stops := b.programs()
	if b.ownNet {
		stops = append(stops, unix.ENETUNREACH, unix.EADDRNOTAVAIL)
	}
	return stops
}

// programs is how kernel programs on the control group refuse, if there are any. They are asked before there is a route,
// and nothing else answers connect(2), bind(2) and sendto(2) like that.
func (b *battery) programs() errnos {
	if len(b.Targets.EBPF) == 0 {
		return nil
	}
	return errnos{unix.EPERM}
}

// localRefused is how a connection to a loopback address of the host fails: in the cell's own
// namespace nobody listens there.
func (b *battery) localRefused() errnos {
	if b.half != "" {
		return b.alone(unix.ECONNREFUSED)
	}
	if b.Backend == enforce.Bare {
		return b.unreachable()
	}
	if !b.ownNet {
		return nil
	}
	return errnos{unix.ECONNREFUSED}
}

// scoped is how a signal or an abstract socket of the host is refused. Landlock scopes (ABI 6,
// Linux 6.12) answer EPERM; the namespace makes the object disappear.
func (b *battery) scoped(own bool, gone unix.Errno) errnos {
	if b.half != "" {
		return b.alone(gone)
	}
	var stops errnos
	if b.LandlockABI >= 6 {
		stops = append(stops, unix.EPERM)
	}
	if own && b.Backend != enforce.Bare {
		stops = append(stops, gone)
	}
	return stops
}
