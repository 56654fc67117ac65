package enforce

import "slices"

// AloneTargets are what the attempts of one half go for: real files, sockets and listeners of the host, made for this one
// purpose, which the session's own user could use if nothing stood in between.
type AloneTargets struct {
	Folder       string `json:"folder"`        // owned by the session's user, mode 0700; holds the two below and File
	File         string `json:"file"`          // readable and writable by that user
	Stream       string `json:"stream"`        // path socket that listens
	Datagram     string `json:"datagram"`      // path socket that takes datagrams
	AbstractName string `json:"abstract_name"` // of a listening abstract socket, without the leading NUL
	AbstractData string `json:"abstract_data"` // of one that takes datagrams
	Port4        int    `json:"port_4"`        // listens on 127.0.0.1
	Port6        int    `json:"port_6"`        // listens on ::1; 0 without IPv6
	PortUDP      int    `json:"port_udp"`      // takes datagrams on 127.0.0.1
}

// critical are the promises that Hardened wants kept by two mechanisms, with the attempts that show each of them.
var critical = []struct {
	promise string
	probes  []string
}{
	{"content reads", []string{"fs.read/alone-file"}},
	{"content writes", []string{"fs.write/alone-file", "fs.write/alone-create"}},
	{"IP egress", []string{
		"net.egress/alone-tcp4", "net.egress/alone-tcp6", "net.egress/alone-tcp6-mapped", "net.egress/alone-udp4", "net.egress/alone-udp6",
		"net.local/alone-loopback4", "net.local/alone-loopback-any", "net.local/alone-loopback6", "net.local/alone-loopback-udp",
	}},
	{"abstract sockets", []string{"net.local/alone-abstract", "net.local/alone-abstract-datagram"}},
	{"path sockets", []string{"net.local/alone-path", "net.local/alone-path-datagram"}},
}

// AloneProbes lists the attempts that Hardened asks for with either half, sorted.
func AloneProbes() []string {
	var names []string
	for _, c := range critical {
		names = append(names, c.probes...)
	}
	slices.Sort(names)
	return names
}

// bounded are the limits without which a session is not Hardened.
var bounded = []string{"processes", "memory", "cpus", "time"}

// lacking says what keeps a session that is Enforced from being Hardened, one line for each.
func lacking(e Evidence) []string {
	var out []string
	absent := 0
	for _, p := range e.Probes {
		if p.Wall == FSProtect && p.Part == PartAbsent && p.Alone == "" {
			if p.Got == Stopped {
				absent++
				continue
			}
			out = append(out, "fs.protect: a protected name that was absent can appear and is swept, not stopped (probe "+p.Name+")")
			break
		}
	}
	if absent == 0 && len(out) == 0 {
		out = append(out, "fs.protect: no probe of an absent name was made")
	}
	out = append(out, lackingHalves(e.Probes)...)
	active := map[string]bool{}
	for _, l := range e.Limits {
		active[l.Name] = active[l.Name] || l.Active
	}
	for _, name := range bounded {
		if !active[name] {
			out = append(out, "res: no limit of "+name+" is in force")
		}
	}
	return out
}

// lackingHalves looks for each attempt of each promise, made with either half.
func lackingHalves(probes []Probe) []string {
	type key struct {
		name string
		half Half
	}
	got := map[key]Probe{}
	for _, p := range probes {
		if p.Alone != "" {
			got[key{p.Name, p.Alone}] = p
		}
	}
	var out []string
	for _, c := range critical {
		for _, half := range []Half{Namespaces, Second} {
			for _, name := range c.probes {
				p, made := got[key{name, half}]
				if made && p.OK() {
					continue
				}
				line := c.promise + ": not shown with " + half.describe() + " alone"
				if made {
					line += " (probe " + p.Name + " got " + string(p.Got) + ": " + p.Detail + ")"
				}
				out = append(out, line)
				break
			}
		}
	}
	return out
}

func (h Half) describe() string {
	if h == Namespaces {
		return "mounts and namespaces"
	}
	return "Landlock and kernel programs"
}
