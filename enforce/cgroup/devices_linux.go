package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// DeviceRules asks the kernel whether the group of a process keeps it from devices in general, and says what it found. With v1
// that is the list of the controller devices, with v2 an eBPF program on the group.
func DeviceRules(pid int) (bool, string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false, "", err
	}
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return false, "", err
	}
	var unified *hierarchy
	for _, h := range parse(string(mounts), string(groups)) {
		if h.has("devices") {
			return deviceList(filepath.Join(h.mount, h.self))
		}
		if h.unified {
			unified = &h
		}
	}
	if unified == nil {
		return false, "no hierarchy holds device rules", nil
	}
	return devicePrograms(filepath.Join(unified.mount, unified.self))
}

// deviceList reads the rules of v1; "a *:* rwm" allows everything (the kernel's cgroup-v1/devices.rst).
func deviceList(group string) (bool, string, error) {
	data, err := os.ReadFile(filepath.Join(group, "devices.list"))
	if err != nil {
		return false, "", err
	}
	list := strings.TrimSpace(string(data))
	for line := range strings.Lines(list) {
		if strings.HasPrefix(line, "a") || strings.HasPrefix(line, "b *:*") || strings.HasPrefix(line, "c *:*") {
			return false, "allowed: " + strings.TrimSpace(line), nil
		}
	}
	return true, fmt.Sprintf("%d devices are allowed", strings.Count(list, "\n")+1), nil
}

// Numbers of bpf(2) for a query of the programs on a group (include/uapi/linux/bpf.h).
const (
	bpfProgQuery    = 16
	bpfCgroupDevice = 6
)

// devicePrograms counts the programs of v2 that judge devices.
func devicePrograms(group string) (bool, string, error) {
	fd, err := unix.Open(group, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, "", fmt.Errorf("open %s: %w", group, err)
	}
	defer unix.Close(fd)
	var ids [16]uint32
	query := struct {
		target, kind, flags, attached uint32
		ids                           uint64
		count, _                      uint32
		_                             [32]byte
	}{target: uint32(fd), kind: bpfCgroupDevice, ids: uint64(uintptr(unsafe.Pointer(&ids))), count: uint32(len(ids))}
	_, _, errno := unix.Syscall(unix.SYS_BPF, bpfProgQuery, uintptr(unsafe.Pointer(&query)), unsafe.Sizeof(query))
	runtime.KeepAlive(&ids)
	if errno != 0 {
		return false, "", fmt.Errorf("ask for the programs on %s: %w", group, errno)
	}
	return query.count > 0, fmt.Sprintf("%d programs judge devices", query.count), nil
}
