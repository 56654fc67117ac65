package vm

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// withGuard is the kernel command line of a machine whose security modules include bpf.
var withGuard = []string{"lsm=landlock,lockdown,yama,bpf"}

// notAlone are attempts that do not work in the control either, for want of a driver, a right or an empty folder; the
// record shows that the hook was first.
var notAlone = map[string]bool{"rmdir .git/hooks": true, "execute hidden": true, "vsock": true}

// testGuard runs the battery of guestguard on every kernel: each attempt is refused inside and recorded, works before and
// beside the session, and honest work goes on. verify proves the same with the whole product.
func testGuard(t *testing.T, kernels []Kernel) {
	program := filepath.Join(t.TempDir(), "guestguard")
	if err := BuildStatic(t.Context(), "coworker/integration/vm/guestguard", program); err != nil {
		t.Fatal(err)
	}
	files := append(standardFiles(t), File{Path: "/usr/local/bin/guestguard", Mode: 0o755, Source: program})
	const limit = 3 * time.Minute
	for _, k := range kernels {
		t.Run(k.Name, func(t *testing.T) {
			got := boot(t, k, Guest{Files: files, Modules: []string{"overlay"}, Cmdline: withGuard, Timeout: 2 * DefaultLife, Cases: []Case{
				{Name: "guard", Argv: []string{"guestguard"}, Timeout: limit},
				{Name: "verify", Argv: []string{"coworker", "sandbox", "verify", "--level", "hardened", "--json"}, Timeout: limit},
				{Name: "exec", Argv: []string{"bash", "-c", guardedExec}, Timeout: limit},
			}})
			checkGuard(t, got["guard"])
			landlock := k.Name != "5.10"
			checkGuardedVerify(t, got["verify"], landlock)
			checkGuardedExec(t, got["exec"], landlock)
		})
	}
}

// guardedExec works in a repository behind the walls: what is honest goes on, what is not is refused and reported.
const guardedExec = `mkdir -p ~/repo && cd ~/repo && git init -q . 2>/dev/null; git config user.name w; git config user.email w@localhost
coworker exec -w --level hardened --report ~/report -- bash -c '
echo one >a; git add a && git commit -qm one && git checkout -qb other && echo committed
git init -q nested 2>&1 || echo sealed
mkdir .claude; echo x >sub.json; mkdir sub; mv sub.json sub/.mcp.json; echo x >.git/commondir
mkdir x x/hooks; mv x .vscode; ls -d .claude sub/.mcp.json .git/commondir .vscode'
cat ~/report`

func checkGuard(t *testing.T, r Result) {
	t.Helper()
	if r.Exit != 0 {
		t.Fatalf("%v", r)
	}
	text := string(r.Stdout)
	lines := trialLines(r)
	attempts := 0
	for name, said := range lines {
		attempt, inside := strings.CutPrefix(name, "inside ")
		if !inside {
			continue
		}
		attempts++
		if strings.HasSuffix(attempt, " ok") {
			if said != "worked" {
				t.Errorf("%s inside: %s", attempt, said)
			}
			continue
		}
		if !strings.HasSuffix(said, "permission denied") && !strings.HasSuffix(said, "operation not permitted") {
			t.Errorf("%s inside: %q", attempt, said)
		}
		for _, where := range []string{"control ", "outside "} {
			if lines[where+attempt] != "worked" && !notAlone[attempt] {
				t.Errorf("%s%s: %q", where, attempt, lines[where+attempt])
			}
		}
	}
	if attempts < 60 {
		t.Errorf("%d attempts", attempts)
	}
	for _, hook := range []string{
		"fs.protect inode_create", "fs.protect inode_mkdir", "fs.protect inode_mknod", "fs.protect inode_symlink", "fs.protect inode_link",
		"fs.protect inode_unlink", "fs.protect inode_rmdir", "fs.protect inode_rename", "fs.protect inode_setattr", "fs.protect inode_setxattr",
		"fs.protect path_truncate", "fs.protect file_open", "fs.hide file_open", "fs.hide inode_setattr", "fs.hide path_truncate", "fs.hide inode_unlink",
		"net.local socket_create", "net.egress socket_create", "net.local unix_stream_connect", "net.local unix_may_send",
	} {
		if !strings.Contains(text, "refusal: "+hook+" ") {
			t.Errorf("no refusal by %s is recorded", hook)
		}
	}
	for _, want := range []string{"check: <nil>", "check after close: file already closed", "check after a link fell: guard:", "heard or counted: 5000"} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "cost ") || strings.HasPrefix(line, "load:") || strings.HasPrefix(line, "trees:") {
			t.Log(strings.TrimSpace(line))
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// checkGuardedVerify wants every attempt stopped. Without Landlock some are leaked to the second half alone, and the level is
// not reached.
func checkGuardedVerify(t *testing.T, r Result, landlock bool) {
	t.Helper()
	report, err := ParseReport(r.Stdout)
	if err != nil {
		t.Fatalf("%v: %v", err, r)
	}
	if kept := report.Walls["fs.protect"]; !kept.Verified || kept.Detail != "" || !strings.Contains(string(r.Stdout), `"bpf-lsm"`) {
		t.Errorf("fs.protect: %+v", kept)
	}
	for _, p := range report.Probes {
		if p.Part == "absent" && p.Got != "stopped" {
			t.Errorf("%s: %s (%s)", p.Name, p.Got, p.Detail)
		}
		if !p.OK() && (landlock || p.Alone == "") {
			t.Errorf("%s: %s (%s)", p.Name, p.Got, p.Detail)
		}
	}
}

func checkGuardedExec(t *testing.T, r Result, landlock bool) {
	t.Helper()
	text := string(r.Stdout) + string(r.Stderr)
	if !landlock {
		if !strings.Contains(text, "content reads: not shown with Landlock and kernel programs alone") {
			t.Errorf("a session without Landlock is not refused: %s", text)
		}
		return
	}
	for _, want := range []string{"committed\n", "sealed\n", `"level": "hardened"`, `"bpf-lsm"`, "--write /root/repo/.claude", "repo/sub/.mcp.json"} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q: %s", want, text)
		}
	}
	for _, name := range []string{".claude", "sub/.mcp.json", ".git/commondir", ".vscode"} {
		if !strings.Contains(text, "cannot access '"+name+"'") && !strings.Contains(text, name+": No such file") {
			t.Errorf("%s is there: %s", name, text)
		}
	}
}
