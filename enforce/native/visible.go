package native

import (
	"path"

	"coworker/enforce"
)

// Paths are the hierarchies of a session's root by what may be done in them: the input of the
// Landlock layer. In the backend bare the same lists apply to the host's own root.
type Paths struct{ ReadOnly, ReadWrite, Devices []string }

// Visible lists what a Spec shows. It is pure.
func Visible(s enforce.Spec) Paths {
	v := Paths{
		ReadOnly:  []string{"/etc", "/dev"},
		ReadWrite: []string{"/proc", "/tmp", "/var/tmp", "/dev/shm", "/run", s.Identity.Home},
		Devices:   []string{"/dev/pts"},
	}
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
