//go:build soak

package load

import (
	"syscall"
	"testing"

	"coworker/integration/house/testuser"
)

// descriptors that ten thousand tunnels take in one process: two each in the proxy, and what else it holds.
const descriptors = 32 << 10

// moreDescriptors raises the limit of this process and of those that it starts, and gives what it is now. Inside a
// container root may be refused (capabilities(7), CAP_SYS_RESOURCE).
func moreDescriptors(t *testing.T) int {
	t.Helper()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	now := syscall.Rlimit{Cur: max(was.Max, descriptors), Max: max(was.Max, descriptors)}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &now); err != nil {
		t.Logf("the limit of descriptors stays %d: %v", was.Max, err)
		now = syscall.Rlimit{Cur: was.Max, Max: was.Max}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &now); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was) })
	return int(now.Cur)
}

// TestSoakTunnels holds ten thousand at once, or as many as the limit of descriptors lets the proxy have. RLIMIT_DATA of
// the proxy is 1 GiB, and it gets by with less.
func TestSoakTunnels(t *testing.T) {
	count := min(10_000, (moreDescriptors(t)-500)/2)
	eachUser(t, func(t *testing.T, u testuser.User) { tunnels(t, u, count, 600*mib) })
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
