//go:build cgo

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/opencontainers/cgroups"
	_ "github.com/opencontainers/cgroups/devices" // registers the device rules: without it no container starts
	devices "github.com/opencontainers/cgroups/devices/config"
	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	_ "github.com/opencontainers/runc/libcontainer/nsenter" // joins the namespaces, in C, before Go starts

	"coworker/enforce/container"
)

// This is the one file that knows libcontainer, whose maintainers do not promise a stable interface.

// enterContainer is the other half of libcontainer: it starts this program again, inside, to finish the container there.
func enterContainer(args []string) {
	if len(args) > 1 && args[1] == "init" {
		libcontainer.Init()
	}
}

// box is a running container.
type box struct {
	container *libcontainer.Container
	process   *libcontainer.Process
	groups    []string // folders of its control group
	init      int
}

// launcherCapabilities are what it takes to fork the keeper into a user namespace with the ids of another: writing its maps
// (user_namespaces(7); the last one for uid 0, since Linux 5.12). The launcher drops them after that.
var launcherCapabilities = []string{"CAP_SETUID", "CAP_SETGID", "CAP_SETFCAP"}

func newBox(setup container.Setup, files []*os.File) (*box, error) {
	c, err := libcontainer.Create(container.State, path.Base(setup.Group), configFor(setup))
	if err != nil {
		return nil, fmt.Errorf("create the container: %w", err)
	}
	noNewPrivileges := true
	p := &libcontainer.Process{
		Args:            []string{"/proc/self/fd/4", "launch"}, // the number that the program has inside
		Env:             []string{"PATH=/"},                    // must not be empty
		Cwd:             "/",
		Stderr:          os.Stderr,
		ExtraFiles:      files,
		Init:            true,
		NoNewPrivileges: &noNewPrivileges,
		Capabilities:    &configs.Capabilities{Bounding: launcherCapabilities, Permitted: launcherCapabilities, Effective: launcherCapabilities},
		AppArmorProfile: setup.Labels.AppArmor,
		Label:           setup.Labels.SELinux,
	}
	b := &box{container: c, process: p}
	err = c.Run(p)
	if state, stateErr := c.State(); stateErr == nil {
		for _, dir := range state.CgroupPaths {
			b.groups = append(b.groups, dir)
		}
		slices.Sort(b.groups)
		b.groups = slices.Compact(b.groups) // v1 controllers that are mounted together
	}
	if err == nil {
		b.init, err = p.Pid()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("run the container: %w", err), b.remove())
	}
	return b, nil
}

// configFor says what the container is. The user namespace is missing on purpose: libcontainer wants uid 0 mapped in it, and
// the cell's has one id, its owner's. The keeper makes that one, and the cell's pid namespace, as in the backend native.
func configFor(setup container.Setup) *configs.Config {
	namespaces := configs.Namespaces{{Type: configs.NEWNS}, {Type: configs.NEWIPC}, {Type: configs.NEWUTS}, {Type: configs.NEWNET}}
	if setup.HostNet {
		namespaces = namespaces[:3]
	}
	return &configs.Config{
		Rootfs:          container.Root,
		RootPropagation: syscall.MS_SLAVE | syscall.MS_REC,
		// Without a bind of it libcontainer would fill /dev with nodes of its own; and /dev of this root is the host's.
		Mounts:          []*configs.Mount{{Device: "bind", Source: container.Root + "/dev", Destination: "/dev", Flags: syscall.MS_BIND | syscall.MS_REC}},
		Namespaces:      namespaces,
		NoNewPrivileges: true,
		Cgroups: &cgroups.Cgroup{
			Path:      setup.Group,
			Resources: &cgroups.Resources{Devices: deviceRules()},
		},
		ParentDeathSignal: int(syscall.SIGKILL),
	}
}

// deviceRules allow what the cell's /dev holds, and making no node. Minor numbers: the kernel's
// Documentation/admin-guide/devices.txt.
func deviceRules() []*devices.Rule {
	rules := []*devices.Rule{{Type: devices.WildcardDevice, Major: devices.Wildcard, Minor: devices.Wildcard, Permissions: "rwm", Allow: false}}
	for _, d := range []struct{ major, minor int64 }{
		{1, 3}, {1, 5}, {1, 7}, {1, 8}, {1, 9}, // null, zero, full, random, urandom
		{5, 0}, {5, 2}, // tty, ptmx
		{136, devices.Wildcard}, // pts
	} {
		rules = append(rules, &devices.Rule{Type: devices.CharDevice, Major: d.major, Minor: d.minor, Permissions: "rw", Allow: true})
	}
	return rules
}

func (b *box) pid() int { return b.init }

// kill ends everything in the container's control group, and with the launcher what it forked.
func (b *box) kill() {
	syscall.Kill(b.init, syscall.SIGKILL) // its parent-death signals reach the keeper and the cell
}

func (b *box) wait() { b.process.Wait() } // the exit status is the launcher's; its wire told more

// remove removes the folders of the control group, and what still runs in them.
func (b *box) remove() error {
	for _, dir := range b.groups {
		// A group of v1 that the supervisor left frozen does not die.
		if f, err := os.OpenFile(filepath.Join(dir, "freezer.state"), os.O_WRONLY, 0); err == nil {
			f.WriteString("THAWED") // if not, it shows below: the folder stays busy
			f.Close()
		}
	}
	var errs []error
	for _, dir := range b.groups {
		errs = append(errs, removeGroup(dir))
	}
	return errors.Join(errs...)
}

// removeGroup waits for processes that were killed: a control group is busy until they are reaped.
func removeGroup(dir string) error {
	for i := range 200 {
		err := syscall.Rmdir(dir)
		if err == nil || errors.Is(err, syscall.ENOENT) {
			return nil
		}
		if !errors.Is(err, syscall.EBUSY) {
			return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
		}
		data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENODEV) {
			return err
		}
		for _, f := range strings.Fields(string(data)) {
			if pid, err := strconv.Atoi(f); err == nil && pid > 1 {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		time.Sleep(time.Duration(min(i, 20)) * time.Millisecond)
	}
	return fmt.Errorf("rmdir %s: processes in it do not end", dir)
}
