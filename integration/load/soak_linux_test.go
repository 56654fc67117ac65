//go:build soak

package load

import (
	"os"
	"syscall"
	"testing"

	"coworker/integration/house/testuser"
)

// descriptors that ten thousand tunnels take in one process: two each in the proxy, and what else it holds.
const descriptors = 32 << 10

// moreDescriptors raises the limit of this process and of those that it starts. It needs root.
func moreDescriptors(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test raises the limit of descriptors: run it as root")
	}
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: descriptors, Max: max(was.Max, descriptors)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was) })
}

// TestSoakTunnels holds ten thousand at once. RLIMIT_DATA of the proxy is 1 GiB, and it gets by with less.
func TestSoakTunnels(t *testing.T) {
	moreDescriptors(t)
	eachUser(t, func(t *testing.T, u testuser.User) { tunnels(t, u, 10_000, 600*mib) })
}

// TestSoakSlowHeads leaves four thousand places of twelve for clients that behave.
func TestSoakSlowHeads(t *testing.T) {
	moreDescriptors(t)
	eachUser(t, func(t *testing.T, u testuser.User) { slowHeads(t, u, 8_000, 600*mib) })
}

// TestSoakResets is a long storm.
func TestSoakResets(t *testing.T) {
	moreDescriptors(t)
	eachUser(t, func(t *testing.T, u testuser.User) { resets(t, u, 50_000) })
}
