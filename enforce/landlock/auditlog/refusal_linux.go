package auditlog

import (
	"net"
	"path"
	"strings"

	"coworker/enforce"
)

// maxComm is how long the name of a program can be in the kernel, without its NUL.
const maxComm = 15

// reading are the rights that --read gives; every other file right is one of writing.
var reading = map[string]bool{"fs.execute": true, "fs.read_file": true, "fs.read_dir": true}

// wallOf says which wall stopped an access. What a later kernel adds belongs to the wall of its kind, or to the surface of
// the kernel as a whole.
func wallOf(blockers []string) enforce.Wall {
	wall := enforce.Kernel
	for _, b := range blockers {
		kind, _, _ := strings.Cut(b, ".")
		switch {
		case b == "fs.change_topology":
			return enforce.Priv
		case b == "fs.resolve_unix", b == "scope.abstract_unix_socket":
			return enforce.NetLocal
		case b == "ptrace", b == "scope.signal":
			return enforce.Proc
		case kind == "net":
			return enforce.NetEgress
		case reading[b]:
			wall = enforce.FSRead
		case kind == "fs":
			return enforce.FSWrite
		}
	}
	return wall
}

// refusal turns a record of an access into what a person is told. workspace is the folder that -w is about.
func (r *record) refusal(workspace string) (enforce.Refusal, error) {
	out := enforce.Refusal{
		Time: r.time, Source: enforce.SourceLandlock, Wall: wallOf(r.blockers), Hook: strings.Join(r.blockers, ","),
	}
	name, exact, err := r.path()
	if err != nil {
		return out, err
	}
	switch {
	case name != "":
		out.What = name
	case out.Wall == enforce.Proc:
		out.What, err = r.process()
	case out.Wall == enforce.NetEgress:
		out.What = r.place()
	}
	if err != nil {
		return out, err
	}
	if out.What == "" {
		out.What = "something that the kernel does not name"
	}
	if exact {
		out.Needed = needed(out.Wall, name, workspace)
	}
	return out, nil
}

// path is the file that a record names. Of what is made, removed or moved the kernel names the folder. exact says that the
// path leads to the file: it does not for deleted ones, and for those outside of the root that the program sees.
func (r *record) path() (name string, exact bool, err error) {
	for _, f := range []string{"path", "name"} {
		value, ok := r.get(f)
		if !ok {
			continue
		}
		name, err = untrusted(value)
		exact = f == "path" && path.IsAbs(name) && path.Clean(name) == name && !strings.HasSuffix(name, " (deleted)") && !strings.ContainsRune(name, 0)
		return name, exact, err
	}
	return "", false, nil
}

func (r *record) process() (string, error) {
	pid, _ := r.get("opid")
	name, ok := r.get("ocomm")
	if !ok {
		return "", nil
	}
	comm, err := untrusted(name)
	return strings.TrimSpace("process " + pid + " " + comm), err
}

// place is the address of a refused connect or bind, as far as it is told.
func (r *record) place() string {
	for _, names := range [][2]string{{"daddr", "dest"}, {"saddr", "src"}} {
		addr, _ := r.get(names[0])
		port, hasPort := r.get(names[1])
		ip := net.ParseIP(addr)
		switch {
		case ip != nil && hasPort:
			return net.JoinHostPort(ip.String(), port)
		case ip != nil:
			return ip.String()
		case hasPort:
			return "port " + port
		}
	}
	return ""
}

// needed is the smallest flag that gives the right for this one path.
func needed(wall enforce.Wall, name, workspace string) string {
	inside := workspace != "" && (name == workspace || strings.HasPrefix(name, strings.TrimSuffix(workspace, "/")+"/"))
	switch {
	case wall == enforce.FSRead:
		return "--read " + name
	case wall == enforce.FSWrite && inside:
		return "-w"
	case wall == enforce.FSWrite:
		return "--write " + name
	}
	return ""
}
