package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"coworker/integration/vm/guest"
)

// switchRoot leaves the kernel's rootfs. pivot_root(2) refuses a root that is
// rootfs, so no sandbox could be built there. Binding rootfs over itself and
// moving the bind to "/" gives an ordinary mount without copying a file.
func switchRoot() error {
	const stage = guest.Dir + "/root"
	if err := os.MkdirAll(stage, 0o755); err != nil {
		return err
	}
	if err := mount(filesystem{"/", stage, "", unix.MS_BIND, ""}); err != nil {
		return err
	}
	if err := unix.Chdir(stage); err != nil {
		return fmt.Errorf("chdir %s: %w", stage, err)
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move %s to /: %w", stage, err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("chroot into the moved root: %w", err)
	}
	// The kernel's rootfs is a tmpfs with that file system's default, 1777.
	return errors.Join(unix.Chdir("/"), os.Chmod("/", 0o755))
}

type filesystem struct {
	source, target, fstype string
	flags                  uintptr
	data                   string
}

func mount(f filesystem) error {
	if err := os.MkdirAll(f.target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(f.source, f.target, f.fstype, f.flags, f.data); err != nil {
		return fmt.Errorf("mount %s (%s) at %s: %w", f.source, f.fstype, f.target, err)
	}
	return nil
}

const noExecMount = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

// mountEarly mounts what talking to the host needs.
func mountEarly() error {
	return errors.Join(
		mount(filesystem{"proc", "/proc", "proc", noExecMount, ""}),
		mount(filesystem{"sysfs", "/sys", "sysfs", noExecMount, ""}),
		mount(filesystem{"devtmpfs", "/dev", "devtmpfs", unix.MS_NOSUID, "mode=755"}),
	)
}

func setUp(plan guest.Plan) error {
	steps := []struct {
		what string
		do   func() error
	}{
		{"file systems", mountRest},
		{"modules", func() error { return loadModules(plan.Modules) }},
		{"control groups", func() error { return mountCgroups(plan.Cgroups) }},
		{"users", makeRunDirs},
		{"loopback", loopbackUp},
		{"host name", func() error { return unix.Sethostname([]byte("guest")) }},
		// systemd makes / shared; a sandbox that forgets MS_SLAVE must leak here too.
		{"propagation", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "") }},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
	}
	return nil
}

func mountRest() error {
	err := errors.Join(
		mount(filesystem{"devpts", "/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "newinstance,gid=5,mode=620,ptmxmode=666"}),
		mount(filesystem{"shm", "/dev/shm", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"}),
		mount(filesystem{"run", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=755"}),
		mount(filesystem{"tmp", "/tmp", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"}),
		mount(filesystem{"securityfs", "/sys/kernel/security", "securityfs", noExecMount, ""}),
		mount(filesystem{"bpf", "/sys/fs/bpf", "bpf", noExecMount, "mode=700"}),
	)
	// devtmpfs makes nodes, udev makes these links.
	for name, target := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2",
	} {
		err = errors.Join(err, os.Symlink(target, "/dev/"+name))
	}
	return err
}

func loadModules(paths []string) error {
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil && err != unix.EEXIST {
			return fmt.Errorf("finit_module %s: %w", path, err)
		}
	}
	return nil
}

const cgroupRoot = "/sys/fs/cgroup"

func mountCgroups(layout guest.Cgroups) error {
	switch layout {
	case guest.Unified, "":
		if err := mount(filesystem{"cgroup2", cgroupRoot, "cgroup2", noExecMount, "nsdelegate"}); err != nil {
			return err
		}
		return enableControllers(cgroupRoot)
	case guest.Hybrid, guest.Legacy:
		return mountCgroupsV1(layout)
	}
	return fmt.Errorf("unknown layout %q", layout)
}

func mountCgroupsV1(layout guest.Cgroups) error {
	controllers, err := controllersV1()
	if err != nil {
		return err
	}
	err = mount(filesystem{"tmpfs", cgroupRoot, "tmpfs", noExecMount, "mode=755"})
	for _, c := range controllers {
		dir := filepath.Join(cgroupRoot, c)
		mountErr := mount(filesystem{"cgroup", dir, "cgroup", noExecMount, c})
		// /proc/cgroups also lists controllers that have no v1 interface any more:
		// memory and cpuset, where CONFIG_MEMCG_V1 and CONFIG_CPUSETS_V1 are off.
		if errors.Is(mountErr, unix.EINVAL) {
			mountErr = os.Remove(dir)
		}
		err = errors.Join(err, mountErr)
	}
	if layout == guest.Hybrid {
		err = errors.Join(err, mount(filesystem{"cgroup2", cgroupRoot + "/unified", "cgroup2", noExecMount, "nsdelegate"}))
	}
	return err
}

// controllersV1 reads /proc/cgroups, cgroups(7): a heading, then name, hierarchy,
// groups and whether the controller is enabled.
func controllersV1() ([]string, error) {
	data, err := os.ReadFile("/proc/cgroups")
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) == 4 && f[3] == "1" {
			names = append(names, f[0])
		}
	}
	return names, nil
}

// enableControllers passes every controller of dir on to its children.
func enableControllers(dir string) error {
	have, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for _, c := range strings.Fields(string(have)) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0); err != nil {
			return fmt.Errorf("controller %s: %w", c, err)
		}
	}
	return nil
}

func makeRunDirs() error {
	dir := fmt.Sprintf("/run/user/%d", guest.WorkerUID)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return errors.Join(os.Chmod(dir, 0o700), os.Chown(dir, guest.WorkerUID, guest.WorkerUID))
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req); err != nil {
		return fmt.Errorf("SIOCSIFFLAGS: %w", err)
	}
	return nil
}
