package container

import (
	"fmt"
	"os"
	"strings"

	"coworker/enforce"
)

// Available says whether this process may have containers made. inner is what the backend native said: the cell in the
// container is its. Whether the helper is there is for the caller to find out.
func Available(inner enforce.Availability) enforce.Availability {
	a := enforce.Availability{Backend: enforce.Container}
	groups, err := os.ReadFile("/proc/self/cgroup")
	switch {
	case os.Geteuid() != 0:
		a.Cause = "only root sets device rules and labels; without root, libcontainer would need a control group (v2) that root has delegated, and could set neither"
		a.Remedy = "run coworker as root, or leave the key backend out of the settings: the backend native needs no root"
	case !inner.OK:
		a.Cause, a.Remedy = inner.Cause, inner.Remedy
	case err != nil:
		a.Cause, a.Remedy = "this kernel has no control groups, and so no device rules", "use the backend native"
	case !deviceRules(string(groups)):
		a.Cause, a.Remedy = "no hierarchy of control groups here can hold device rules: v1 has no controller devices, and v2 is not mounted alone", "mount cgroup v2 on /sys/fs/cgroup, or use the backend native"
	default:
		a.OK = true
	}
	return a
}

// deviceRules reads /proc/self/cgroup: with v1 rules are the controller devices, with v2 alone they are an eBPF program.
func deviceRules(groups string) bool {
	v1 := false
	for line := range strings.Lines(groups) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 || f[1] == "" {
			continue
		}
		v1 = true
		for c := range strings.SplitSeq(f[1], ",") {
			if c == "devices" {
				return true
			}
		}
	}
	return !v1 && strings.TrimSpace(groups) != ""
}

// Missing says why the host cannot give these labels, or nothing.
func (l Labels) Missing() string {
	if enabled, err := os.ReadFile("/sys/module/apparmor/parameters/enabled"); l.AppArmor != "" && (err != nil || strings.TrimSpace(string(enabled)) != "Y") {
		return "the settings name an AppArmor profile, and AppArmor is not in force on this host"
	}
	if _, err := os.Stat("/sys/fs/selinux/enforce"); l.SELinux != "" && err != nil {
		return "the settings name an SELinux label, and SELinux is not in force on this host"
	}
	return ""
}

// Held says whether a process runs with the labels, and what it runs with.
func (l Labels) Held(pid int) (bool, string, error) {
	want := l.SELinux
	if l.AppArmor != "" {
		want = l.AppArmor + " (enforce)"
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/attr/current", pid))
	if err != nil {
		return false, "", err
	}
	got := strings.TrimRight(string(data), "\x00\n")
	return got == want, got, nil
}
