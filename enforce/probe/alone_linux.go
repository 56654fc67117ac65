package probe

import (
	"context"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

// AloneSetup says what the attempts with one half of the mechanisms run against.
type AloneSetup struct {
	Half     enforce.Half
	Targets  enforce.AloneTargets
	Literals []string // of the Spec: addresses that are led to the proxy, and no attempt's goal
}

// Alone makes the attempts that Hardened rests on, in a process that only one half of the mechanisms surrounds. What an
// answer proves depends on the half: a missing file tells of the mounts, EACCES of Landlock; an answer of the other half,
// or of a network that is not there, proves nothing.
func Alone(ctx context.Context, s AloneSetup) []enforce.Probe {
	b := &battery{half: s.Half}
	b.Setup.Backend = enforce.Native
	var probes []enforce.Probe
	open := false
	for _, a := range aloneTable(s) {
		r := unclear("the battery was interrupted")
		switch {
		case ctx.Err() != nil:
		case a.wall == enforce.NetEgress && open:
			r = unclear("not attempted: the loopback was open already, and a packet would leave this machine")
		default:
			r = a.run(b)
			open = open || a.wall == enforce.NetLocal && r.got != enforce.Stopped
		}
		probes = append(probes, enforce.Probe{
			Name: string(a.wall) + "/" + a.name, Wall: a.wall, Want: enforce.Stopped, Got: r.got, Detail: r.detail, Where: where, Alone: s.Half,
		})
	}
	return probes
}

// Control makes those attempts that can work in a process that nothing surrounds, and names the ones that did not: they
// would be stopped by something that is no wall (permissions, a host without IPv6), so they prove nothing.
func Control(s AloneSetup) map[string]string {
	b := &battery{half: s.Half, control: true}
	idle := map[string]string{}
	for _, a := range aloneTable(s) {
		if a.part != controlled {
			continue
		}
		if r := a.run(b); r.got != enforce.Leaked {
			idle[string(a.wall)+"/"+a.name] = r.detail
		}
	}
	return idle
}

// Idle takes the proof out of attempts that do not work without walls either.
func Idle(probes []enforce.Probe, idle map[string]string) []enforce.Probe {
	for i := range probes {
		if why, ok := idle[probes[i].Name]; ok && probes[i].OK() {
			probes[i].Got, probes[i].Detail = enforce.Inconclusive, "it does not work without walls either: "+why
		}
	}
	return probes
}

// controlled marks attempts that work where nothing surrounds the process.
const controlled = "controlled"

func aloneTable(s AloneSetup) []attempt {
	t := s.Targets
	out4, out6 := unlisted(outside4, s.Literals), unlisted(outside6, s.Literals)
	row := func(name string, wall enforce.Wall, part string, run func(*battery) result) attempt {
		return attempt{name: "alone-" + name, wall: wall, part: part, run: run}
	}
	files := []attempt{
		row("file", enforce.FSRead, controlled, func(b *battery) result { return b.open(t.File, unix.O_RDONLY, b.hidden()) }),
		row("file", enforce.FSWrite, controlled, func(b *battery) result { return b.open(t.File, unix.O_WRONLY, b.unwritable()) }),
		row("create", enforce.FSWrite, controlled, func(b *battery) result { return b.create(path.Join(t.Folder, "made-"+string(b.half))) }),
	}
	to := func(name string, family, kind int, sa unix.Sockaddr) attempt {
		return row(name, enforce.NetEgress, "", func(b *battery) result { return b.send(family, kind, 0, sa) })
	}
	away := []attempt{
		to("tcp4", unix.AF_INET, unix.SOCK_STREAM, inet4(out4, 80)),
		to("tcp6", unix.AF_INET6, unix.SOCK_STREAM, inet6(out6, 80)),
		to("tcp6-mapped", unix.AF_INET6, unix.SOCK_STREAM, inet6(out4, 80)),
		to("udp4", unix.AF_INET, unix.SOCK_DGRAM, inet4(out4, 80)),
		to("udp6", unix.AF_INET6, unix.SOCK_DGRAM, inet6(out6, 80)),
	}
	near := func(name string, family, port int, sa unix.Sockaddr) attempt {
		return row(name, enforce.NetLocal, controlled, func(b *battery) result { return b.loopback(family, port, sa) })
	}
	local := []attempt{
		near("loopback4", unix.AF_INET, t.Port4, &unix.SockaddrInet4{Port: t.Port4, Addr: [4]byte{127, 0, 0, 1}}),
		near("loopback-any", unix.AF_INET, t.Port4, &unix.SockaddrInet4{Port: t.Port4}),
		near("loopback6", unix.AF_INET6, t.Port6, &unix.SockaddrInet6{Port: t.Port6, Addr: [16]byte{15: 1}}),
		row("loopback-udp", enforce.NetLocal, controlled, func(b *battery) result {
			b.Targets.UDPPort = t.PortUDP
			return b.loopbackUDP()
		}),
		row("abstract", enforce.NetLocal, controlled, func(b *battery) result {
			b.Targets.AbstractSocket = t.AbstractName
			return b.abstract()
		}),
		row("abstract-datagram", enforce.NetLocal, controlled, func(b *battery) result {
			return b.datagram("@"+t.AbstractData, b.scoped(true, unix.ECONNREFUSED))
		}),
		row("path", enforce.NetLocal, controlled, func(b *battery) result { return b.pathSocket(t.Stream) }),
		row("path-datagram", enforce.NetLocal, controlled, func(b *battery) result { return b.datagram(t.Datagram, b.hidden()) }),
	}
	if t.Port6 == 0 {
		local[2].run = func(*battery) result { return stopped("this host has no ::1") }
		local[2].part = ""
	}
	return slices.Concat(files, local, away) // what stays on this machine first
}

// create makes a file in a folder of the host and takes it away again if that worked.
func (b *battery) create(name string) result {
	r := b.open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, b.unwritable())
	if r.got == enforce.Leaked {
		os.Remove(name)
	}
	return r
}

// datagram sends to a local socket without a connection.
func (b *battery) datagram(name string, stops errnos) result {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return unclear("socket: " + errnoName(err))
	}
	defer unix.Close(fd)
	return judge(unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrUnix{Name: name}), stops, errnos{unix.EAGAIN, unix.EPROTOTYPE})
}

// alone is how the half that is on refuses: gone are the answers of mounts and namespaces, where the thing is not there.
func (b *battery) alone(gone ...unix.Errno) errnos {
	if b.half == enforce.Namespaces {
		return gone
	}
	return errnos{unix.EACCES, unix.EPERM}
}
