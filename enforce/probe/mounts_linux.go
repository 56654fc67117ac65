package probe

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
)

// mount is one line of mountinfo, see proc_pid_mountinfo(5).
type mount struct {
	point    string
	fstype   string
	readOnly bool // of the mount, not of the file system
}

// maxMountInfo bounds mountinfo in bytes; with more mounts than this the probes are inconclusive.
const maxMountInfo = 8 << 20

func readMounts() ([]mount, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxMountInfo+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxMountInfo {
		return nil, fmt.Errorf("mountinfo is longer than %d bytes", maxMountInfo)
	}
	return parseMounts(data)
}

func parseMounts(data []byte) ([]mount, error) {
	var mounts []mount
	for line := range bytes.Lines(data) {
		before, after, ok := strings.Cut(strings.TrimSuffix(string(line), "\n"), " - ")
		// Not strings.Fields: a path may hold white space that the kernel does not escape, such as \r.
		left, right := strings.Split(before, " "), strings.Split(after, " ")
		if !ok || len(left) < 6 || len(right) < 1 {
			return nil, fmt.Errorf("mountinfo line %q: want at least ten fields", line)
		}
		readOnly := left[5] == "ro" || strings.HasPrefix(left[5], "ro,")
		mounts = append(mounts, mount{point: unescape(left[4]), fstype: right[0], readOnly: readOnly})
	}
	if len(mounts) == 0 {
		return nil, fmt.Errorf("mountinfo is empty")
	}
	return mounts, nil
}

// unescape undoes the octal escapes of mountinfo (space, tab, newline, backslash).
func unescape(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

// systemDirs may be mounted from the host, read-only.
var systemDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix", "/gnu", "/etc",
	"/sys/devices/system", "/sys/kernel/mm/transparent_hugepage"}

// virtual file systems hold nothing of the host's disks. sysfs and cgroup are not among them.
var virtual = map[string]bool{"tmpfs": true, "ramfs": true, "proc": true, "devpts": true, "mqueue": true}

// foreignMounts looks for a mount that shows more of the host than the spec lists.
func foreignMounts(b *battery) result {
	mounts, err := readMounts()
	if err != nil {
		return unclear(err.Error())
	}
	for _, m := range mounts {
		if m.point == "/" && !virtual[m.fstype] && m.fstype != "overlay" {
			return leaked("the root is a " + m.fstype + " of the host")
		}
		if !virtual[m.fstype] && !b.mayShow(m.point) {
			return leaked(fmt.Sprintf("a %s is mounted at %s, which is not listed", m.fstype, m.point))
		}
	}
	return stopped(fmt.Sprintf("%d mounts, all listed", len(mounts)))
}

func (b *battery) mayShow(point string) bool {
	dirs := append(b.writableDirs(), systemDirs...)
	dirs = append(dirs, b.Spec.Toolchains...)
	for _, t := range b.Spec.Trees {
		dirs = append(dirs, t.Path)
	}
	if under(point, dirs...) || point == "/" {
		return true
	}
	return path.Dir(point) == "/dev" && ownDevices[path.Base(point)]
}

// writableDirs are the places where a mount may be writable.
func (b *battery) writableDirs() []string {
	var dirs []string
	for _, d := range []string{b.Targets.Scratch, b.Spec.Identity.Home} {
		if d != "" && d != "/" {
			dirs = append(dirs, d)
		}
	}
	for _, t := range b.Spec.Trees {
		if t.Writable {
			dirs = append(dirs, t.Path)
		}
	}
	return dirs
}

// writableMounts looks for a mount that is writable and should not be. Kernel file systems count
// too: as uid 0, writing /proc/sys needs no capability.
func writableMounts(b *battery) result {
	mounts, err := readMounts()
	if err != nil {
		return unclear(err.Error())
	}
	private := append(b.writableDirs(), "/tmp", "/var/tmp", "/run", "/dev", "/proc")
	for _, m := range mounts {
		if !m.readOnly && !under(m.point, private...) {
			return leaked(fmt.Sprintf("the %s at %s is writable", m.fstype, m.point))
		}
	}
	return stopped(fmt.Sprintf("%d mounts", len(mounts)))
}
