package native

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"coworker/enforce"
)

// Available tries what a cell needs: a process in new namespaces with the capabilities to mount.
// Reading settings would be a guess; the kernel, an LSM or a container may refuse for reasons
// of their own.
func Available(ctx context.Context) enforce.Availability {
	a := enforce.Availability{Backend: enforce.Native}
	err := tryNamespaces(ctx)
	if err == nil {
		table, readErr := os.ReadFile("/proc/self/mountinfo")
		covered := coveredProc(string(table))
		if readErr == nil && covered == "" {
			a.OK = true
			return a
		}
		a.Cause = fmt.Sprintf("%s is covered here (inside a container or another sandbox), and then the kernel lets nobody in a user namespace mount a new /proc", covered)
		if readErr != nil {
			a.Cause = "no /proc: " + readErr.Error()
		}
		a.Remedy = "run coworker outside of it; `--level partial` uses Landlock and seccomp alone"
		return a
	}
	a.Cause, a.Remedy = explain(err, readSetting)
	return a
}

// tryNamespaces runs /bin/true in the namespaces of a keeper.
func tryNamespaces(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "/bin/true")
	id := os.Geteuid()
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS | syscall.CLONE_NEWNET | syscall.CLONE_NEWCGROUP,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: id, HostID: id, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}},
		AmbientCaps: keeperCapabilities,
		Pdeathsig:   syscall.SIGKILL,
	}
	forkMu.Lock()
	err := cmd.Start()
	forkMu.Unlock()
	if err != nil {
		return err
	}
	return cmd.Wait()
}

// emptyProcFolders are folders that procfs makes for other file systems. A mount there hides nothing
// (proc_create_mount_point and register_sysctl_mount_point in the kernel).
var emptyProcFolders = map[string]bool{
	"sys/fs/binfmt_misc": true, "fs/nfsd": true, "fs/nfs": true, "xen": true, "openprom": true, "bus/usb": true,
}

// coveredProc returns a mount point that hides part of proc, if no proc in this mount table is
// whole. With one that is, a user namespace may mount another (mnt_already_visible in the kernel's
// fs/namespace.c).
func coveredProc(mountInfo string) string {
	entries, err := parseMountInfo(mountInfo)
	if err != nil {
		return "/proc"
	}
	covered := "/proc"
	for _, proc := range entries {
		if proc.fstype != "proc" || proc.root != "/" {
			continue
		}
		over := ""
		for _, e := range entries {
			if rel, below := strings.CutPrefix(e.point, proc.point+"/"); e.parent == proc.id && below && !emptyProcFolders[rel] {
				over = e.point
			}
		}
		if over == "" {
			return ""
		}
		covered = over
	}
	return covered
}

func readSetting(name string) string {
	data, err := os.ReadFile("/proc/sys/" + name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// AppArmorProfile lets one program use user namespaces on hosts where AppArmor restricts them
// (Ubuntu 23.10 and newer, kernel.apparmor_restrict_unprivileged_userns=1). %s is the program.
const AppArmorProfile = `abi <abi/4.0>,
include <tunables/global>
profile coworker %s flags=(unconfined) {
  userns,
}
`

// explain names the setting that stands in the way and the one step that changes it.
func explain(err error, setting func(string) string) (cause, remedy string) {
	if n, convErr := strconv.Atoi(setting("user/max_user_namespaces")); convErr == nil && n == 0 {
		return "user namespaces are switched off (sysctl user.max_user_namespaces is 0)",
			"as root: sysctl -w user.max_user_namespaces=65536"
	}
	if setting("kernel/unprivileged_userns_clone") == "0" && os.Geteuid() != 0 {
		return "user namespaces are switched off for users (sysctl kernel.unprivileged_userns_clone is 0)",
			"as root: sysctl -w kernel.unprivileged_userns_clone=1"
	}
	if setting("kernel/apparmor_restrict_unprivileged_userns") == "1" && os.Geteuid() != 0 {
		self, pathErr := os.Executable()
		if pathErr != nil {
			self = "/path/to/coworker"
		}
		return "AppArmor restricts user namespaces to named programs (sysctl kernel.apparmor_restrict_unprivileged_userns is 1)",
			fmt.Sprintf("as root, write this to /etc/apparmor.d/coworker and run apparmor_parser -r /etc/apparmor.d/coworker:\n%s", fmt.Sprintf(AppArmorProfile, self))
	}
	return fmt.Sprintf("the kernel refuses new namespaces here: %v (usual inside a container)", err),
		"run coworker outside the container, or allow user namespaces for it; `--level partial` uses Landlock and seccomp alone"
}
