package cgroup

import (
	"path"
	"slices"
	"strings"
)

// hierarchy is one mounted control group tree, with the group that this process is in.
type hierarchy struct {
	mount       string   // where it is mounted
	self        string   // this process's group, below mount
	unified     bool     // cgroup v2
	controllers []string // what can be set in a child of self
}

func (h hierarchy) has(controller string) bool { return slices.Contains(h.controllers, controller) }

// useful says whether a session's own group wants a folder in it.
func (h hierarchy) useful() bool {
	return h.unified || h.has("pids") || h.has("memory") || h.has("cpu") || h.has("freezer")
}

// parse combines /proc/self/mountinfo and /proc/self/cgroup (cgroups(7), proc_pid_mountinfo(5)).
// It is pure; controllers of v2 are read from files by the caller.
func parse(mountInfo, cgroups string) []hierarchy {
	groups := map[string]string{} // controllers, or "" for v2 → group
	for line := range strings.Lines(cgroups) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 {
			groups[f[1]] = f[2]
		}
	}
	var out []hierarchy
	for line := range strings.Lines(mountInfo) {
		before, after, ok := strings.Cut(line, " - ")
		// Not strings.Fields: a path may hold white space that the kernel does not escape, such as \r.
		b, a := strings.Split(before, " "), strings.Split(strings.TrimSuffix(after, "\n"), " ")
		if !ok || len(b) < 5 || len(a) < 3 {
			continue
		}
		switch a[0] {
		case "cgroup2":
			if self, ok := groups[""]; ok {
				out = append(out, hierarchy{mount: b[4], self: within(b[3], self), unified: true})
			}
		case "cgroup":
			if h, ok := legacy(b[3], b[4], a[2], groups); ok {
				out = append(out, h)
			}
		}
	}
	return out
}

// legacy finds the v1 hierarchy whose controllers, or name, are in the mount's options.
func legacy(root, mount, options string, groups map[string]string) (hierarchy, bool) {
	have := strings.Split(options, ",")
	for names, self := range groups {
		list := strings.Split(names, ",")
		if names != "" && slices.Contains(have, list[0]) {
			return hierarchy{mount: mount, self: within(root, self), controllers: list}, true
		}
	}
	return hierarchy{}, false
}

// within makes a group's path relative to the root of the mount, which in a container is not the
// root of the hierarchy.
func within(root, self string) string {
	if root == "/" {
		return self
	}
	if rest, ok := strings.CutPrefix(self, root); ok && (rest == "" || rest[0] == '/') {
		return path.Join("/", rest)
	}
	return self
}
