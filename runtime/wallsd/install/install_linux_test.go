package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// scratch is a machine with what a distribution brings, in a folder.
func scratch(t *testing.T) (Machine, *[]string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("what is installed belongs to root, and so must this test")
	}
	root := t.TempDir()
	for _, dir := range []string{"usr/local/lib", "etc/systemd/system", "etc/apparmor.d", "run", "sys/fs/cgroup/pids"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ran := &[]string{}
	active := false
	m := Machine{Root: root, Systemd: true, AppArmor: true, Coworker: "/usr/local/bin/coworker", Helper: []byte("helper")}
	m.Run = func(_ context.Context, name string, args ...string) error {
		line := name + " " + strings.Join(args, " ")
		switch {
		case strings.Contains(line, "is-enabled"), strings.Contains(line, "is-active"):
			if !active {
				return errors.New("inactive")
			}
			return nil
		case strings.Contains(line, "enable --now"):
			active = true
		}
		if strings.Contains(line, "disable --now") {
			active = false
		}
		*ran = append(*ran, strings.ReplaceAll(line, root, ""))
		return nil
	}
	return m, ran
}

// listing is every name below a folder with its mode, owner and bytes.
func listing(t *testing.T, root string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		uid, err := owner(info)
		if err != nil {
			return err
		}
		text := ""
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text = string(data)
		}
		out = append(out, fmt.Sprintf("%s %v %d %q", path, info.Mode(), uid, text))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func texts(steps []Step) string {
	var out []string
	for _, s := range steps {
		out = append(out, s.Text)
	}
	return strings.Join(out, "\n")
}

func setUp(t *testing.T, m Machine) []Step {
	t.Helper()
	steps, err := m.Setup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := Do(t.Context(), steps); err != nil {
		t.Fatal(err)
	}
	return steps
}

// TestSetupAndRemove: set up twice changes nothing the second time, and removed leaves no trace.
func TestSetupAndRemove(t *testing.T) {
	for _, kind := range []struct{ systemd, apparmor bool }{{true, true}, {true, false}, {false, false}} {
		t.Run(fmt.Sprintf("systemd %v, apparmor %v", kind.systemd, kind.apparmor), func(t *testing.T) {
			m, ran := scratch(t)
			m.Systemd, m.AppArmor = kind.systemd, kind.apparmor
			before := listing(t, m.Root)
			plan := setUp(t, m)
			info, err := os.Stat(m.at(Program))
			if err != nil || info.Mode() != 0o755 {
				t.Fatalf("the helper is %v, %v", info, err)
			}
			for _, want := range []struct {
				text string
				in   bool
			}{{Program, true}, {unitSocket, kind.systemd}, {unitHelper, kind.systemd}, {profile, kind.apparmor}, {"systemctl enable --now", kind.systemd}} {
				if strings.Contains(texts(plan), want.text) != want.in {
					t.Errorf("the plan names %s: want %v\n%s", want.text, want.in, texts(plan))
				}
			}
			after := listing(t, m.Root)
			*ran = nil
			if again := setUp(t, m); len(again) != 0 || len(*ran) != 0 || !slices.Equal(listing(t, m.Root), after) {
				t.Errorf("the second time: %s, ran %v", texts(again), *ran)
			}
			m.Coworker, m.Helper = "/elsewhere", nil // neither is known any more
			for range 2 {
				steps, err := m.Remove()
				if err == nil {
					err = Do(t.Context(), steps)
				}
				if err != nil {
					t.Fatal(err)
				}
				if now := listing(t, m.Root); !slices.Equal(now, before) {
					t.Errorf("left behind: %v\nwas: %v", now, before)
				}
			}
			if steps, err := m.Remove(); err != nil || len(steps) != 0 {
				t.Errorf("removed again: %s, %v", texts(steps), err)
			}
		})
	}
}

// TestUpgrade: another program replaces the old one, and the old one is stopped.
func TestUpgrade(t *testing.T) {
	m, ran := scratch(t)
	setUp(t, m)
	*ran = nil
	m.Helper = []byte("newer")
	plan := setUp(t, m)
	data, err := os.ReadFile(m.at(Program))
	if err != nil || string(data) != "newer" || !slices.Equal(*ran, []string{"systemctl stop coworker-wallsd.service"}) {
		t.Errorf("program %q, %v, ran %q, plan\n%s", data, err, *ran, texts(plan))
	}
}

// TestForeign: what somebody else made is neither replaced nor removed, and no program is put where others can change it.
func TestForeign(t *testing.T) {
	tests := []struct {
		name string
		make func(t *testing.T, m Machine) error
		want string
	}{
		{"unit", func(_ *testing.T, m Machine) error { return os.WriteFile(m.at(unitHelper), []byte("[Unit]\n"), 0o644) }, "not written by"},
		{"profile", func(_ *testing.T, m Machine) error { return os.WriteFile(m.at(profile), []byte("x"), 0o644) }, "not written by"},
		{"link", func(_ *testing.T, m Machine) error { return os.Symlink("/etc/passwd", m.at(unitSocket)) }, "not written by"},
		{"open folder", func(_ *testing.T, m Machine) error { return os.Chmod(m.at("/usr/local/lib"), 0o777) }, "can be changed by others"},
		{"folder of another", func(_ *testing.T, m Machine) error { return os.Chown(m.at("/usr/local/lib"), 4243, 0) }, "can be changed by others"},
		{"no folder", func(_ *testing.T, m Machine) error { return os.Remove(m.at("/usr/local/lib")) }, "no such file"},
		{"own folder of another", func(_ *testing.T, m Machine) error {
			dir := m.at(filepath.Dir(Program))
			return errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, 4243, 0))
		}, "can be changed by others"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, _ := scratch(t)
			if err := tt.make(t, m); err != nil {
				t.Fatal(err)
			}
			before := listing(t, m.Root)
			if steps, err := m.Setup(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("plan %s, %v; want %q", texts(steps), err, tt.want)
			}
			steps, err := m.Remove()
			if err == nil {
				err = Do(t.Context(), steps)
			}
			if now := listing(t, m.Root); err != nil || tt.name != "own folder of another" && !slices.Equal(now, before) {
				t.Errorf("remove: %v, now %v", err, now)
			}
		})
	}
}

// TestProfilePath: a path cannot end the line of the profile and begin another.
func TestProfilePath(t *testing.T) {
	for _, path := range []string{"/a b", "/a\nprofile x /** {}", "/a*", "/a{b}", "relative", "/a\"", "/a,"} {
		if text, err := (Machine{Coworker: path}).profileText(); err == nil {
			t.Errorf("%q became\n%s", path, text)
		}
	}
}

// TestUnits: systemd takes the units as they are, and finds little exposed.
func TestUnits(t *testing.T) {
	dir := t.TempDir()
	service := strings.Replace(serviceText, "/usr/local/lib/coworker/coworker-wallsd", "/bin/true", 1) // verify wants it to exist
	if service == serviceText || !strings.Contains(serviceText, "ExecStart="+Program+" --delegated\n") {
		t.Fatalf("the unit does not start %s", Program)
	}
	for name, text := range map[string]string{"coworker-wallsd.service": service, "coworker-wallsd.socket": socketText} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command("systemd-analyze", "verify", "--man=no", filepath.Join(dir, "coworker-wallsd.service"), filepath.Join(dir, "coworker-wallsd.socket")).CombinedOutput()
	if err != nil || len(out) != 0 {
		t.Errorf("verify: %v\n%s", err, out)
	}
	out, err = exec.Command("systemd-analyze", "security", "--offline=yes", "--no-pager", filepath.Join(dir, "coworker-wallsd.service")).CombinedOutput()
	m := regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`).FindSubmatch(out)
	if err != nil || m == nil {
		t.Fatalf("security: %v\n%s", err, out)
	}
	// Root with eight capabilities, the host's network namespace and the control groups; each has its reason in the unit.
	const most = 3.3
	if got, err := strconv.ParseFloat(string(m[1]), 64); err != nil || got > most {
		t.Errorf("exposure %s, want at most %v\n%s", m[1], most, out)
	}
}
