// Guestprobe prints, as one JSON object, which features of the running kernel
// the walls can build on. The kernel matrix runs it in every guest to check that
// a kernel is the one it is meant to be. With a name and a value it makes one
// attempt of the product's cases instead. It is no part of the product, which
// does its own probing.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Features is the output. An empty error text means that the feature works.
type Features struct {
	Release     string   `json:"release"`
	UID         int      `json:"uid"`
	LandlockABI int      `json:"landlock_abi"`
	LandlockErr string   `json:"landlock_err,omitempty"`
	LSM         []string `json:"lsm"`
	Controllers []string `json:"controllers"`
	Cgroup      string   `json:"cgroup"`
	UserNSErr   string   `json:"userns_err,omitempty"`
	OverlayErr  string   `json:"overlay_err,omitempty"`
	PivotErr    string   `json:"pivot_err,omitempty"`
	BPFErr      string   `json:"bpf_err,omitempty"`
}

const (
	overlayArg = "in-userns:overlay"
	pivotArg   = "in-userns:pivot"
	nothingArg = "in-userns:nothing"
)

func main() {
	if len(os.Args) == 3 {
		if err := attempt(os.Args[1], os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) == 2 {
		if err := inNamespace(os.Args[1]); err != nil {
			fmt.Print(err)
			os.Exit(1)
		}
		return
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		fmt.Fprintln(os.Stderr, "guestprobe: uname:", err)
		os.Exit(1)
	}
	f := Features{
		Release:     unix.ByteSliceToString(u.Release[:]),
		UID:         os.Getuid(),
		LSM:         splitFile("/sys/kernel/security/lsm"),
		Controllers: splitFile("/sys/fs/cgroup/cgroup.controllers"),
		Cgroup:      strings.Join(splitFile("/proc/self/cgroup"), " "),
		UserNSErr:   reexec(nothingArg),
		OverlayErr:  reexec(overlayArg),
		PivotErr:    reexec(pivotArg),
		BPFErr:      bpfMap(),
	}
	f.LandlockABI, f.LandlockErr = landlockABI()
	if err := json.NewEncoder(os.Stdout).Encode(f); err != nil {
		fmt.Fprintln(os.Stderr, "guestprobe:", err)
		os.Exit(1)
	}
}

// attempt makes one attempt of the product's cases, or holds the socket that one of them connects to.
func attempt(name, arg string) error {
	switch name {
	case "listen":
		return listenAbstract(arg)
	case "serve":
		return serveWeb(arg)
	}
	try, ok := attempts[name]
	if !ok {
		return fmt.Errorf("no attempt %q", name)
	}
	return try(arg)
}

// landlockABI asks for the version, landlock_create_ruleset(2).
func landlockABI() (int, string) {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, unix.ErrnoName(errno)
	}
	return int(abi), ""
}

// bpfMap makes a map, the least that bpf(2) does. The attributes must be valid:
// before 6.9 permission is checked first, since then the attributes are.
func bpfMap() string {
	attr := struct{ mapType, keySize, valueSize, maxEntries uint32 }{unix.BPF_MAP_TYPE_ARRAY, 4, 4, 1}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_MAP_CREATE, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if errno != 0 {
		return unix.ErrnoName(errno)
	}
	if err := unix.Close(int(fd)); err != nil {
		return err.Error()
	}
	return ""
}

// reexec runs one attempt in new user and mount namespaces with an identity map.
func reexec(arg string) string {
	cmd := exec.Command("/proc/self/exe", arg)
	uid, gid := os.Getuid(), os.Getgid()
	// All capabilities of the namespace survive the exec although the uid is not 0.
	// Overlay needs more than CAP_SYS_ADMIN: its work folder has mode 000.
	var caps []uintptr
	for c := range uintptr(unix.CAP_CHECKPOINT_RESTORE + 1) {
		caps = append(caps, c)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}},
		AmbientCaps: caps,
	}
	out, err := cmd.Output()
	if err == nil {
		return ""
	}
	if len(out) > 0 {
		return string(out)
	}
	return err.Error()
}

func inNamespace(arg string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("slave: %w", err)
	}
	if err := unix.Mount("tmpfs", "/tmp", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("tmpfs: %w", err)
	}
	switch arg {
	case nothingArg:
		return nil
	case overlayArg:
		return overlay()
	case pivotArg:
		return pivot()
	}
	return fmt.Errorf("unknown attempt %q", arg)
}

func overlay() error {
	for _, d := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir("/tmp/"+d, 0o700); err != nil {
			return err
		}
	}
	data := "lowerdir=/tmp/lower,upperdir=/tmp/upper,workdir=/tmp/work,userxattr"
	if err := unix.Mount("overlay", "/tmp/merged", "overlay", 0, data); err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	return os.WriteFile("/tmp/merged/file", nil, 0o600)
}

func pivot() error {
	if err := unix.Chdir("/tmp"); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	return unix.Unmount(".", unix.MNT_DETACH)
}

func splitFile(path string) []string {
	data, err := os.ReadFile(path)
	if err != nil {
		return []string{"error: " + err.Error()}
	}
	return strings.FieldsFunc(string(data), func(r rune) bool { return r == ',' || r == ' ' || r == '\n' })
}
