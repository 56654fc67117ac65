package native

import (
	"path"

	"coworker/enforce"
)

// Paths are the hierarchies of a session's root by what may be done in them: the input of the
// Landlock layer.
type Paths struct{ ReadOnly, ReadWrite, Devices []string }

// Visible lists what a Spec shows. It is pure.
func Visible(s enforce.Spec) Paths {
	v := Paths{
		ReadOnly:  []string{"/etc", "/dev"},
		ReadWrite: []string{"/proc", "/tmp", "/var/tmp", "/dev/shm", "/run", s.Identity.Home},
		Devices:   []string{"/dev/pts"},
	}
	return v.with(s)
}

// with adds what both kinds of root show.
func (v Paths) with(s enforce.Spec) Paths {
	v.ReadOnly = append(v.ReadOnly, systemFolders...)
	v.ReadOnly = append(v.ReadOnly, sysFolders...)
	v.ReadOnly = append(v.ReadOnly, s.Toolchains...)
	for _, name := range deviceNodes {
		v.Devices = append(v.Devices, path.Join("/dev", name))
	}
	for _, t := range s.Trees {
		if t.Writable {
			v.ReadWrite = append(v.ReadWrite, t.Path)
		} else {
			v.ReadOnly = append(v.ReadOnly, t.Path)
		}
	}
	return v
}

// VisibleOutside lists what of Visible is the same file outside: the system, and the trees that are live. It is pure.
func VisibleOutside(s enforce.Spec) Paths {
	live := s
	live.Trees = nil
	for _, t := range s.Trees {
		if t.Stage == "" {
			live.Trees = append(live.Trees, t)
		}
	}
	v := Paths{}.with(live)
	v.Devices = nil
	return v
}

// VisibleBare lists what a Spec shows where the root is the host's own and nothing can be mounted:
// the home is a folder of the store, /etc is what the list allows and the public files that stand
// in for the synthesised ones, no device but the named ones can be opened, and /proc is read-only,
// because for uid 0 the files of /proc/sys ask for no capability. /tmp is the host's. It is pure.
func VisibleBare(s enforce.Spec) Paths {
	v := Paths{
		ReadOnly:  []string{"/proc", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts"},
		ReadWrite: []string{"/tmp", "/var/tmp", "/dev/shm", s.PrivateHome(enforce.Bare)},
		Devices:   []string{"/dev/pts", "/dev/ptmx"},
	}
	for _, name := range s.EtcAllow {
		v.ReadOnly = append(v.ReadOnly, path.Join("/etc", name))
	}
	for _, c := range s.Caches {
		v.ReadOnly = append(v.ReadOnly, c.Lower)
	}
	return v.with(s)
}
