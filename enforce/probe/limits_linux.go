package probe

import (
	"fmt"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

var rlimits = map[string]int{
	"processes": unix.RLIMIT_NPROC, "open_files": unix.RLIMIT_NOFILE, "file_size": unix.RLIMIT_FSIZE,
}

// limits compares what can be read from inside: rlimits and the size of a tmpfs. Limits that a
// cgroup keeps are seen from outside only.
func limits(s Setup) []attempt {
	all := []attempt{{name: "core", wall: enforce.Res, part: "core", run: func(*battery) result {
		return checkRlimit(unix.RLIMIT_CORE, 0)
	}}}
	for _, l := range s.Limits {
		if !l.Active {
			continue
		}
		resource, known := rlimits[l.Name]
		switch {
		case known && l.Mechanism == enforce.Rlimit:
			all = append(all, attempt{name: l.Name, wall: enforce.Res, part: l.Name,
				run: func(*battery) result { return checkRlimit(resource, uint64(l.Value)) }})
		case l.Mechanism == enforce.TmpfsSize:
			all = append(all, attempt{name: l.Name, wall: enforce.Res, part: l.Name,
				run: func(*battery) result { return checkTmpfs("/tmp", l.Value) }})
		}
	}
	return all
}

// checkRlimit wants both limits no higher than asked for: what may raise the soft one may not
// raise the hard one (getrlimit(2)).
func checkRlimit(resource int, want uint64) result {
	var r unix.Rlimit
	if err := unix.Getrlimit(resource, &r); err != nil {
		return unclear(errnoName(err))
	}
	detail := fmt.Sprintf("soft %d, hard %d, want at most %d", r.Cur, r.Max, want)
	if r.Cur > want || r.Max > want {
		return leaked(detail)
	}
	return stopped(detail)
}

func checkTmpfs(dir string, want int64) result {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return unclear(dir + ": " + errnoName(err))
	}
	size := int64(st.Blocks) * int64(st.Bsize)
	detail := fmt.Sprintf("%s has %d bytes, want at most %d", dir, size, want)
	// A tmpfs rounds its size up to whole pages.
	if st.Type != unix.TMPFS_MAGIC || st.Blocks == 0 || size > want+int64(st.Bsize) {
		return leaked(detail)
	}
	return stopped(detail)
}
