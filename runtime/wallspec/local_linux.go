package wallspec

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"coworker/platform/gitconfig"
	"coworker/platform/paths"
)

// LocalHost gathers the facts about this machine and the calling process. Protected and Secret are left to the
// caller, who knows the tables.
func LocalHost() (Host, error) {
	h := Host{
		Files: LocalFiles(), Environ: os.Environ(), UID: os.Geteuid(), GID: os.Getegid(), InertGit: gitconfig.InertGlobal,
		LookupUser: func(name string) (User, bool) { return found(user.Lookup(name)) },
		LookupUID:  func(uid int) (User, bool) { return found(user.LookupId(strconv.Itoa(uid))) },
	}
	var err error
	if h.Cwd, err = os.Getwd(); err != nil {
		return Host{}, refuse("workspace", "go to a folder that exists", "the current folder is unknown: %v", err)
	}
	home := os.Getenv("HOME")
	if u, ok := h.LookupUID(h.UID); ok && home == "" {
		home = u.Home
	}
	if h.Dirs, err = paths.Resolve(os.Getenv, home); err != nil {
		return Host{}, &Error{Subject: "environment", Reason: err.Error(), Err: err}
	}
	h.ConfigFile = filepath.Join(h.Dirs.Config, "config.toml")
	h.Memory = memoryTotal()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return Host{}, fmt.Errorf("limit of open files: %w", err)
	}
	h.OpenFiles = int64(min(limit.Max, math.MaxInt64))
	h.Cores = runtime.NumCPU()
	return h, nil
}

func found(u *user.User, err error) (User, bool) {
	if err != nil {
		return User{}, false
	}
	uid, errUID := strconv.Atoi(u.Uid)
	gid, errGID := strconv.Atoi(u.Gid)
	if errUID != nil || errGID != nil {
		return User{}, false
	}
	out := User{UID: uid, GID: gid, Name: u.Username, Home: u.HomeDir, Shell: loginShell(u.Username)}
	if g, err := user.LookupGroupId(u.Gid); err == nil {
		out.Group = g.Name
	}
	return out, true
}

// loginShell reads passwd(5), which os/user knows all of but this. Users from elsewhere get the default.
func loginShell(name string) string {
	data, _, err := readFile("/etc/passwd", maxPersonal)
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(data) {
		if f := strings.Split(strings.TrimSpace(string(line)), ":"); len(f) == 7 && f[0] == name {
			return f[6]
		}
	}
	return ""
}

// memoryTotal is the RAM of the machine, or what a container around us may use of it (cgroup v2, then v1); 0 if
// neither can be read. Files of /proc report no size, so they are read without asking for one.
func memoryTotal() int64 {
	total := int64(0)
	if data, err := os.ReadFile("/proc/meminfo"); err == nil {
		for line := range bytes.Lines(data) {
			if f := strings.Fields(string(line)); len(f) >= 2 && f[0] == "MemTotal:" {
				kib, _ := strconv.ParseInt(f[1], 10, 64)
				total = kib << 10
			}
		}
	}
	for _, file := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64); err == nil && n > 0 && (total == 0 || n < total) {
			total = n
		}
	}
	return total
}
