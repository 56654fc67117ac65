package probe

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"coworker/enforce"
)

// openTargets makes everything that the attempts go for, with nothing in between.
func openTargets(t *testing.T) enforce.AloneTargets {
	t.Helper()
	dir, err := os.MkdirTemp("", "alone") // t.TempDir is too long for a socket's name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	a := enforce.AloneTargets{
		Folder: dir, File: dir + "/file", Stream: dir + "/stream", Datagram: dir + "/datagram",
		AbstractName: "probe" + filepath.Base(dir), AbstractData: "data" + filepath.Base(dir),
	}
	closeLater := func(c interface{ Close() error }, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
	}
	if err := os.WriteFile(a.File, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{a.Stream, "@" + a.AbstractName} {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name})
		closeLater(l, err)
	}
	for _, name := range []string{a.Datagram, "@" + a.AbstractData} {
		l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name})
		closeLater(l, err)
	}
	four, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	closeLater(four, err)
	a.Port4 = four.Addr().(*net.TCPAddr).Port
	if six, err := net.ListenTCP("tcp6", &net.TCPAddr{IP: net.IPv6loopback}); err == nil {
		closeLater(six, nil)
		a.Port6 = six.Addr().(*net.TCPAddr).Port
	}
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	closeLater(udp, err)
	a.PortUDP = udp.LocalAddr().(*net.UDPAddr).Port
	return a
}

// Without any wall every attempt must say so: it works, or it was not made because others did.
func TestAloneWithoutWallsProvesNothing(t *testing.T) {
	s := AloneSetup{Half: enforce.Second, Targets: openTargets(t)}
	if idle := Control(s); len(idle) != 0 {
		t.Errorf("without walls these did not work: %v", idle)
	}
	for _, half := range []enforce.Half{enforce.Namespaces, enforce.Second} {
		s.Half = half
		for _, p := range Alone(context.Background(), s) {
			if p.OK() && !(p.Name == "net.local/alone-loopback6" && s.Targets.Port6 == 0) {
				t.Errorf("%s with %s alone: %s (%s)", p.Name, half, p.Got, p.Detail)
			}
			if p.Wall == enforce.NetEgress && p.Detail != "" && !strings.Contains(p.Detail, "not attempted") {
				t.Errorf("%s was attempted on a host without walls: %s", p.Name, p.Detail)
			}
		}
	}
	if _, err := os.Stat(s.Targets.Folder + "/made-second"); err == nil {
		t.Error("a file that was made is still there")
	}
}

// An attempt that fails by itself is no proof of a wall.
func TestIdleAttemptsDoNotCount(t *testing.T) {
	a := openTargets(t)
	if err := os.Remove(a.Stream); err != nil {
		t.Fatal(err)
	}
	s := AloneSetup{Half: enforce.Second, Targets: a}
	idle := Control(s)
	if _, ok := idle["net.local/alone-path"]; !ok || len(idle) != 1 {
		t.Fatalf("idle: %v", idle)
	}
	probes := Idle([]enforce.Probe{{Name: "net.local/alone-path", Want: enforce.Stopped, Got: enforce.Stopped}}, idle)
	if probes[0].OK() {
		t.Error("an attempt without a goal counts as stopped")
	}
}

// Every attempt that Hardened asks for is in the battery, or no session could ever be hardened.
func TestAloneTableIsWhatHardenedAsksFor(t *testing.T) {
	var names []string
	for _, a := range aloneTable(AloneSetup{}) {
		names = append(names, string(a.wall)+"/"+a.name)
	}
	slices.Sort(names)
	want := enforce.AloneProbes()
	if !slices.Equal(names, want) {
		t.Errorf("made %q\nwant %q", names, want)
	}
}
