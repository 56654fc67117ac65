package life

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"coworker/enforce"
	"coworker/integration/house/testuser"
)

// inEmptyNetwork starts f on a thread in a network namespace that has nothing but a loopback device: a
// session without its network wall then has nowhere to send to. Children inherit the namespace.
func inEmptyNetwork(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = loopbackUp()
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

// runFault gives what a driver with the switch for walls says.
func runFault(t *testing.T, u testuser.User, j job) []said {
	t.Helper()
	program := filepath.Join(bin, "walls", "driver")
	asked := j.Place
	j.Place = userPlace(t, u)
	j.Staged, j.Level, j.Backend = asked.Staged, asked.Level, asked.Backend
	j.Argv = []string{"/bin/true"}
	var s *supervisor
	if os.Geteuid() == 0 {
		inEmptyNetwork(t, func() { s = startDriver(t, u, program, j) })
	} else {
		s = startDriver(t, u, program, j)
	}
	all := s.wait(t)
	wantNothing(t, j.Place)
	if s.text.Len() > 0 {
		t.Logf("driver: %s", s.text.String())
	}
	return all
}

// TestEachWallIsMissed leaves out one wall at a time. The battery must name it, with a probe.
func TestEachWallIsMissed(t *testing.T) {
	for _, u := range testuser.All(t) {
		t.Run(u.String(), func(t *testing.T) { missEachWall(t, u, "") })
		if u.Root() {
			t.Run(string(enforce.Container), func(t *testing.T) { missEachWall(t, u, enforce.Container) })
		}
	}
}

func missEachWall(t *testing.T, u testuser.User, backend enforce.BackendName) {
	t.Helper()
	j := job{}
	j.Backend = backend
	if all := runFault(t, u, j); len(all) != 2 || all[0].Event != "open" || all[0].Level != "enforced" {
		t.Fatalf("with every wall: %+v", all)
	}
	for _, w := range enforce.Required() {
		if os.Geteuid() != 0 && slices.Contains([]enforce.Wall{enforce.NetEgress, enforce.NetLocal}, w) {
			continue // only root can make a network that leads nowhere
		}
		t.Run(string(w), func(t *testing.T) {
			j.Fault = w
			all := runFault(t, u, j)
			if len(all) != 1 || all[0].Event != "refused" || all[0].Level != "partial" {
				t.Fatalf("without %s: %+v", w, all)
			}
			named := slices.ContainsFunc(all[0].Missing, func(m string) bool {
				return strings.HasPrefix(m, fmt.Sprintf("%s: probe %s/", w, w))
			})
			if !named {
				t.Errorf("no probe of %s in %q", w, all[0].Missing)
			}
		})
	}
}

// TestLimitsAreMissed leaves out the limits. Only those that were asked for by name are required.
func TestLimitsAreMissed(t *testing.T) {
	for _, u := range testuser.All(t) {
		t.Run(u.String(), func(t *testing.T) {
			if all := runFault(t, u, job{Fault: enforce.Res}); len(all) != 2 {
				t.Errorf("nothing was asked for by name: %+v", all)
			}
			for _, name := range []string{"processes", "memory", "open_files", "file_size", "tmp"} {
				all := runFault(t, u, job{Fault: enforce.Res, Named: []string{name}})
				if len(all) != 1 || all[0].Event != "refused" || !strings.Contains(strings.Join(all[0].Missing, "\n"), "limit "+name+" ") {
					t.Errorf("without %s: %+v", name, all)
				}
			}
			if all := runFault(t, u, job{Named: []string{"open_files", "file_size", "tmp", "disk"}}); len(all) != 2 {
				t.Errorf("with limits by name: %+v", all)
			}
		})
	}
}

// TestReleaseHasNoSwitch looks for the switch in the released binaries, and shows in the test builds
// that looking finds it.
func TestReleaseHasNoSwitch(t *testing.T) {
	for _, name := range []string{"coworker-cell", "driver"} {
		if found := switchIn(t, filepath.Join(bin, name)); found {
			t.Errorf("%s has the switch", name)
		}
		if found := switchIn(t, filepath.Join(bin, "walls", name)); !found {
			t.Errorf("the test build of %s is not told from a release", name)
		}
	}
	release := "../../bin"
	for _, name := range []string{"coworker", "coworker-cell", "coworker-proxy"} {
		data, err := os.ReadFile(filepath.Join(release, name))
		if err != nil {
			t.Fatalf("%v (make build comes first)", err)
		}
		// Stripped of symbols; Go's table of functions stays.
		if bytes.Contains(data, []byte(switchName)) {
			t.Errorf("%s has the switch", name)
		}
	}
}

const switchName = "coworker/enforce/enforcetest.Off"

// switchIn looks in the symbols and in the table of functions that every Go binary carries.
func switchIn(t *testing.T, name string) bool {
	t.Helper()
	file, err := elf.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	symbols, err := file.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	inSymbols := slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return s.Name == switchName })
	if inTable := bytes.Contains(data, []byte(switchName)); inSymbols != inTable {
		t.Errorf("%s: symbols %v, table of functions %v", name, inSymbols, inTable)
	}
	return inSymbols
}
