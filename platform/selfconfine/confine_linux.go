package selfconfine

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/landlock-lsm/go-landlock/landlock"
	lockcall "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// Need is what a process keeps.
type Need struct {
	Read       []string // files and folders that may be read; a path that is not there is left out
	DataBytes  uint64   // RLIMIT_DATA
	GoBytes    int64    // the garbage collector works harder above it
	Descriptor uint64   // descriptors wanted; the hard limit may be lower
}

// Apply confines the process for good: no core file and no debugger of the same user, no new rights by exec, no file
// grown; and with Landlock no other file read, none written, no program started and no TCP port bound (MPTCP aside). It
// works on all threads. A kernel with less Landlock, or none, is no error: Lacking says what stays open there.
func Apply(n Need) error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("make the process undumpable: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	if err := limits(n); err != nil {
		return err
	}
	debug.SetMemoryLimit(n.GoBytes)
	return files(n.Read)
}

func limits(n Need) error {
	var have unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &have); err != nil {
		return fmt.Errorf("read the limit of descriptors: %w", err)
	}
	most := min(have.Max, n.Descriptor)
	for _, l := range []struct {
		name string
		what int
		to   uint64
	}{
		{"descriptors", unix.RLIMIT_NOFILE, most},
		{"memory", unix.RLIMIT_DATA, n.DataBytes},
		{"core files", unix.RLIMIT_CORE, 0},
		{"file size", unix.RLIMIT_FSIZE, 0},
	} {
		if err := unix.Setrlimit(l.what, &unix.Rlimit{Cur: l.to, Max: l.to}); err != nil {
			return fmt.Errorf("limit %s to %d: %w", l.name, l.to, err)
		}
	}
	return nil
}

// files leaves reading only, as far as the Landlock of the kernel goes.
func files(read []string) error {
	config := landlock.V9
	config.HandledAccessNet = lockcall.AccessNetBindTCP
	var rules []landlock.Rule
	for _, path := range read {
		rights := landlock.AccessFSSet(lockcall.AccessFSReadFile)
		info, err := os.Stat(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil && info.IsDir() {
			rights |= lockcall.AccessFSReadDir
		}
		rules = append(rules, landlock.PathAccess(rights, path).IgnoreIfMissing())
	}
	if err := config.BestEffort().Restrict(rules...); err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	return nil
}
