package vm

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"coworker/enforce"
	"coworker/integration/vm/guest"
)

// features is the part of guestprobe's output that the tests look at.
type features struct {
	Release     string   `json:"release"`
	UID         int      `json:"uid"`
	LandlockABI int      `json:"landlock_abi"`
	LandlockErr string   `json:"landlock_err"`
	LSM         []string `json:"lsm"`
	Controllers []string `json:"controllers"`
	Cgroup      string   `json:"cgroup"`
	UserNSErr   string   `json:"userns_err"`
	OverlayErr  string   `json:"overlay_err"`
	PivotErr    string   `json:"pivot_err"`
	BPFErr      string   `json:"bpf_err"`
}

const probePath = "/usr/local/bin/guestprobe"

func standardFiles(t *testing.T) []File {
	t.Helper()
	probe := filepath.Join(t.TempDir(), "guestprobe")
	if err := BuildStatic(t.Context(), "coworker/integration/vm/guestprobe", probe); err != nil {
		t.Fatal(err)
	}
	box, err := BusyBox(t.Context(), "bash", "ip", "setpriv")
	if err != nil {
		t.Fatal(err)
	}
	programs, err := HostPrograms("bash", "git", "ip", "setpriv")
	if err != nil {
		t.Fatal(err)
	}
	return slices.Concat(box, programs, productFiles(t), []File{{Path: probePath, Mode: 0o755, Source: probe}, confinementTest(t)})
}

func boot(t *testing.T, k Kernel, g Guest) map[string]Result {
	t.Helper()
	image, err := Ensure(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	results, err := Boot(t.Context(), image, g)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %d cases in %.1fs", image.Release, len(results), time.Since(start).Seconds())
	byName := map[string]Result{}
	for _, r := range results {
		byName[r.Name] = r
	}
	return byName
}

func shell(name, user, script string) Case {
	return Case{Name: name, User: user, Argv: []string{"/bin/sh", "-c", script}}
}

func TestMatrix(t *testing.T) {
	files := standardFiles(t)
	rows, err := Levels()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range Kernels() {
		t.Run(k.Name, func(t *testing.T) {
			got := boot(t, k, Guest{
				Files:   files,
				Timeout: 2 * DefaultLife, // some seventy cases
				Modules: slices.Concat([]string{"overlay", "veth"}, redirectModules),
				Cases: slices.Concat([]Case{
					{Name: "probe root", User: guest.Root, Argv: []string{probePath}},
					{Name: "probe worker", User: guest.Worker, Argv: []string{probePath}, Delegate: true},
					shell("userns off", guest.Root, "echo 0 >/proc/sys/user/max_user_namespaces"),
					{Name: "probe no userns", User: guest.Worker, Argv: []string{probePath}},
					shell("userns on", guest.Root, "echo 1000 >/proc/sys/user/max_user_namespaces"),
					shell("identity", guest.Worker, "id -u; id -un; pwd; echo $HOME; touch file && rm file; touch /x"),
					{Name: "git", User: guest.Worker, Argv: []string{"bash", "-ec", `
						git init -q repo; cd repo; git config user.name w; git config user.email w@localhost
						echo hello >file; git add file; git commit -qm first; git log --format=%s; echo "${BASH_VERSINFO[0]}"`}},
					shell("loopback", guest.Root, "ping -c1 -W2 127.0.0.1"),
					shell("modules", guest.Root, "cut -d' ' -f1 /proc/modules"),
				}, productCases(k, rows)),
			})
			checkProbes(t, k, got)
			checkSystem(t, got)
			checkProduct(t, k, rows, got)
		})
	}
}

func checkProbes(t *testing.T, k Kernel, got map[string]Result) {
	t.Helper()
	root, worker, closed := decode(t, got["probe root"]), decode(t, got["probe worker"]), decode(t, got["probe no userns"])
	wantErr, wantOverlay := "", ""
	if k.LandlockABI == 0 {
		wantErr = "ENOSYS"
	}
	if k.Name == "5.10" { // FS_USERNS_MOUNT of overlay is from 5.11.
		wantOverlay = "overlay: operation not permitted"
	}
	for user, f := range map[string]features{"root": root, "worker": worker} {
		if !strings.HasPrefix(f.Release, k.Name+".") {
			t.Errorf("%s: release %s, want %s", user, f.Release, k.Name)
		}
		if f.LandlockABI != k.LandlockABI || f.LandlockErr != wantErr {
			t.Errorf("%s: Landlock ABI %d %s, want %d %s", user, f.LandlockABI, f.LandlockErr, k.LandlockABI, wantErr)
		}
		if slices.Contains(f.LSM, "landlock") != (k.LandlockABI > 0) {
			t.Errorf("%s: LSM list %q does not fit Landlock ABI %d", user, f.LSM, k.LandlockABI)
		}
		for _, c := range []string{"cpu", "memory", "pids"} {
			if !slices.Contains(f.Controllers, c) {
				t.Errorf("%s: controllers %q lack %s", user, f.Controllers, c)
			}
		}
		if f.UserNSErr != "" || f.PivotErr != "" || f.OverlayErr != wantOverlay {
			t.Errorf("%s: user namespace %q, pivot_root %q, overlay %q", user, f.UserNSErr, f.PivotErr, f.OverlayErr)
		}
	}
	if root.UID != 0 || root.BPFErr != "" {
		t.Errorf("root: uid %d, bpf %q", root.UID, root.BPFErr)
	}
	if worker.UID != guest.WorkerUID || worker.BPFErr != "EPERM" || worker.Cgroup != "0::/case-1" {
		t.Errorf("worker: uid %d, bpf %q, cgroup %q", worker.UID, worker.BPFErr, worker.Cgroup)
	}
	if closed.UserNSErr == "" {
		t.Error("user namespaces are switched off, and one was made")
	}
	t.Logf("%+v\nworker: %+v\nwithout user namespaces: %q", root, worker, closed.UserNSErr)
}

func decode(t *testing.T, r Result) features {
	t.Helper()
	var f features
	if err := json.Unmarshal(r.Stdout, &f); err != nil {
		t.Errorf("%v: %v", r, err)
	}
	return f
}

func checkSystem(t *testing.T, got map[string]Result) {
	t.Helper()
	for name, want := range map[string]string{
		"userns off": "", "userns on": "",
		"identity": "4243\nworker\n/home/worker\n/home/worker\n",
		"git":      "first\n5\n",
	} {
		if r := got[name]; string(r.Stdout) != want {
			t.Errorf("%s: %q, want %q; stderr %q %s", name, r.Stdout, want, r.Stderr, r.Err)
		}
	}
	if r := got["identity"]; r.Exit != 1 {
		t.Errorf("an ordinary user writes to /: %v", r)
	}
	if r := got["loopback"]; r.Exit != 0 {
		t.Errorf("loopback: %s%s", r.Stdout, r.Stderr)
	}
	modules := strings.Fields(string(got["modules"].Stdout))
	for _, m := range slices.Concat([]string{"overlay", "veth"}, redirectModules) {
		if !slices.Contains(modules, m) {
			t.Errorf("modules %q lack %s", modules, m)
		}
	}
}

// withoutLandlock returns the rows of a kernel that has Landlock and was booted without it.
func withoutLandlock(t *testing.T) (native, bare Expectation) {
	t.Helper()
	native, err := Expected("6.1", guest.Root, enforce.Native, enforce.NetNone)
	if err != nil {
		t.Fatal(err)
	}
	native.Mechanisms = maps.Clone(native.Mechanisms)
	for _, wall := range []enforce.Wall{enforce.FSRead, enforce.FSWrite} {
		native.Mechanisms[wall] = []enforce.Mechanism{enforce.MountNS}
	}
	return native, Expectation{Kernel: "6.1", User: guest.Root, Backend: enforce.Bare, Net: enforce.NetNone, Level: Refused}
}

// TestCases holds what a result says about commands that do not end well.
func TestCases(t *testing.T) {
	box, err := BusyBox(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	slow := shell("slow", guest.Worker, "sleep 60")
	slow.Timeout = 300 * time.Millisecond
	stdin := shell("stdin", guest.Worker, "read a; echo $a $WORD; pwd")
	stdin.Stdin, stdin.Env, stdin.Dir = "input\n", []string{"WORD=word"}, "/tmp"
	native, bare := withoutLandlock(t)
	got := boot(t, Kernels()[1], Guest{
		Files:   append(box, productFiles(t)...),
		Cgroups: guest.Hybrid,
		Cmdline: []string{"lsm=lockdown,yama"},
		Cases: []Case{
			verifyCase(native), verifyCase(bare),
			shell("status", "", "echo out; echo err >&2; exit 7"),
			shell("signal", guest.Worker, "kill -9 $$"),
			slow,
			shell("leftover", guest.Worker, "sleep 77 >/dev/null 2>&1 & sleep 78 >/dev/null 2>&1 &"),
			shell("holds pipe", guest.Worker, "sleep 79 & echo early"),
			shell("flood", guest.Worker, "head -c 1000000 /dev/zero"),
			shell("not text", guest.Worker, `printf '\377\000{"done":1}\n'`),
			{Name: "absent", Argv: []string{"/no/such/program"}},
			{Name: "no user", User: "mallory", Argv: []string{"/bin/true"}},
			stdin,
			shell("alone", guest.Root, "ps -o comm | grep -c sleep"),
			shell("lsm", guest.Root, "cat /sys/kernel/security/lsm; echo; ls /sys/fs/cgroup; echo [$(cat /sys/fs/cgroup/unified/cgroup.controllers)]"),
		},
	})
	checks := map[string]func(Result) bool{
		"status":     func(r Result) bool { return r.Exit == 7 && string(r.Stdout) == "out\n" && string(r.Stderr) == "err\n" },
		"signal":     func(r Result) bool { return r.Exit == -1 && r.Signal == "SIGKILL" && !r.TimedOut },
		"slow":       func(r Result) bool { return r.TimedOut && r.Duration < 30*time.Second },
		"leftover":   func(r Result) bool { return r.Exit == 0 && slices.Equal(r.Leftover, []string{"sleep", "sleep"}) },
		"holds pipe": func(r Result) bool { return string(r.Stdout) == "early\n" && len(r.Leftover) == 1 && r.Err != "" },
		"flood":      func(r Result) bool { return r.Cut && len(r.Stdout) == guest.MaxOutput },
		"not text":   func(r Result) bool { return string(r.Stdout) == "\xff\x00{\"done\":1}\n" },
		"absent":     func(r Result) bool { return r.Exit == -1 && strings.Contains(r.Err, "no such file") },
		"no user":    func(r Result) bool { return r.Exit == -1 && strings.Contains(r.Err, "mallory") },
		"stdin":      func(r Result) bool { return string(r.Stdout) == "input word\n/tmp\n" },
		"alone":      func(r Result) bool { return string(r.Stdout) == "0\n" },
		"lsm": func(r Result) bool {
			return strings.HasPrefix(string(r.Stdout), "lockdown,capability,yama\n") &&
				strings.HasSuffix(string(r.Stdout), "\nunified\n[]\n")
		},
	}
	for _, row := range []Expectation{native, bare} {
		for _, diff := range Check(row, got[row.verifyName()]) {
			t.Errorf("hybrid control groups, Landlock off at boot, %s: %s", row.Backend, diff)
		}
	}
	if r := got[bare.verifyName()]; !strings.Contains(string(r.Stderr), "hint: add landlock to lsm= on the kernel command line") {
		t.Errorf("the remedy is not named: %v", r)
	}
	for name, ok := range checks {
		if r, found := got[name]; !found || !ok(r) {
			t.Errorf("found %t: %v", found, r)
		}
	}
}

// TestBrokenGuests shows that each kind of failure is told apart, with the
// console attached.
func TestBrokenGuests(t *testing.T) {
	image, err := Ensure(t.Context(), Kernels()[1])
	if err != nil {
		t.Fatal(err)
	}
	box, err := BusyBox(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	panics := shell("panic", guest.Root, "echo c >/proc/sysrq-trigger")
	poweroff := shell("off", guest.Root, "poweroff -f")
	sleeps := shell("sleep", guest.Root, "sleep 500")
	sleeps.Timeout = time.Hour
	for name, c := range map[string]struct {
		guest Guest
		want  error
		text  string
	}{
		"panic":    {Guest{Files: box, Cases: []Case{shell("first", "", "true"), panics}}, ErrPanic, "sysrq triggered crash"},
		"deadline": {Guest{Files: box, Cases: []Case{sleeps}, Timeout: 2 * time.Second}, ErrTimeout, guest.DeadlineText},
		"off":      {Guest{Files: box, Cases: []Case{poweroff}}, ErrIncomplete, ""},
		"setup":    {Guest{Cgroups: "v3"}, ErrSetup, `unknown layout "v3"`},
	} {
		t.Run(name, func(t *testing.T) {
			results, err := Boot(t.Context(), image, c.guest)
			var failed *BootError
			if !errors.Is(err, c.want) || !errors.As(err, &failed) || !strings.Contains(err.Error(), c.text) {
				t.Fatalf("%v, want %v with %q", err, c.want, c.text)
			}
			if name == "panic" && (len(results) != 1 || results[0].Name != "first") {
				t.Errorf("results before the panic are lost: %v", results)
			}
		})
	}
	t.Run("cancel", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := Boot(ctx, image, Guest{Files: box, Cases: []Case{sleeps}}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the caller's own deadline", err)
		}
	})
}
