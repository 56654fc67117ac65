package probe

import (
	"fmt"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

// minTmp is the smallest private /tmp that a backend makes.
const minTmp = 1 << 20

// limits compares what can be read from inside with what the spec asks for, whatever the cell
// says that it set: rlimits and the size of a tmpfs. Limits that a cgroup keeps are seen from
// outside only; the number of processes is one of them unless the cell says otherwise.
func limits(s Setup) []attempt {
	var all []attempt
	add := func(part string, run func(*battery) result) {
		all = append(all, attempt{name: part, wall: enforce.Res, part: part, run: run})
	}
	rlimit := func(part string, resource int, want int64) {
		if want > 0 || resource == unix.RLIMIT_CORE {
			add(part, func(*battery) result { return checkRlimit(resource, uint64(want)) })
		}
	}
	want := s.Spec.Limits
	rlimit("core", unix.RLIMIT_CORE, 0)
	rlimit("open_files", unix.RLIMIT_NOFILE, want.OpenFiles)
	rlimit("file_size", unix.RLIMIT_FSIZE, want.FileSize)
	for _, l := range s.Limits {
		if l.Name == "processes" && l.Active && l.Mechanism == enforce.Rlimit {
			rlimit(l.Name, unix.RLIMIT_NPROC, l.Value)
		}
	}
	if want.Tmp > 0 && s.Backend != enforce.Bare {
		add("tmp", func(*battery) result { return checkTmpfs("/tmp", max(want.Tmp, minTmp)) })
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
