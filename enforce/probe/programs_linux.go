package probe

import (
	"slices"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

// programs shows for each kernel program on the control group that it refuses by itself. Its answer, EPERM, differs from
// that of the namespace, which has no route (ENETUNREACH) and no such address (EADDRNOTAVAIL), so what the namespace
// stops is a leak here. sock_create, skb and the two for local sockets cannot be told apart from inside: the system-call
// filter answers before the first, and what they refuse does not get as far as them. The session looks at those from
// outside.
func programs(s Setup) []attempt {
	if s.Backend == enforce.Bare {
		return programsBare(s)
	}
	out4, out6 := unlisted(outside4, s.Spec.Literals), unlisted(outside6, s.Spec.Literals)
	var all []attempt
	add := func(hook string, run func() error, family int) {
		if slices.Contains(s.Targets.EBPF, hook) {
			all = append(all, attempt{name: "ebpf-" + hook, wall: enforce.NetEgress, run: func(*battery) result { return judgeProgram(run(), family) }})
		}
	}
	call := func(family, kind int, sa unix.Sockaddr, do func(fd int, sa unix.Sockaddr) error) func() error {
		return func() error {
			fd, err := inet(family, kind, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return do(fd, sa)
		}
	}
	send := func(fd int, sa unix.Sockaddr) error { return unix.Sendto(fd, nil, 0, sa) }
	add("connect4", call(unix.AF_INET, unix.SOCK_STREAM, inet4(out4, 80), unix.Connect), unix.AF_INET)
	add("connect6", call(unix.AF_INET6, unix.SOCK_STREAM, inet6(out6, 80), unix.Connect), unix.AF_INET6)
	add("sendmsg4", call(unix.AF_INET, unix.SOCK_DGRAM, inet4(out4, 80), send), unix.AF_INET)
	add("sendmsg6", call(unix.AF_INET6, unix.SOCK_DGRAM, inet6(out6, 80), send), unix.AF_INET6)
	add("bind4", call(unix.AF_INET, unix.SOCK_STREAM, inet4(out4, 0), unix.Bind), unix.AF_INET)
	add("bind6", call(unix.AF_INET6, unix.SOCK_STREAM, inet6(out6, 0), unix.Bind), unix.AF_INET6)
	return all
}

// programsBare: there no inet socket can be made at all, so the others are not reached. Below ABI 4 the filter refuses
// all of these sockets itself.
func programsBare(s Setup) []attempt {
	if !slices.Contains(s.Targets.EBPF, "sock_create") || s.LandlockABI < 4 {
		return nil
	}
	return []attempt{{name: "ebpf-sock_create", wall: enforce.NetEgress, run: func(*battery) result {
		fd, err := inet(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err == nil {
			unix.Close(fd)
		}
		return judgeProgram(err, unix.AF_INET)
	}}}
}

// judgeProgram: only EPERM is the program's. Without IPv6 there is nothing to refuse.
func judgeProgram(err error, family int) result {
	stops := errnos{unix.EPERM}
	if family == unix.AF_INET6 {
		stops = append(stops, unix.EAFNOSUPPORT)
	}
	return judge(err, stops, append(past, unix.ENETUNREACH, unix.EADDRNOTAVAIL))
}
