package vm

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"coworker/integration/vm/guest"
)

// programHooks is what each kernel takes of enforce/egress, and what it lacks.
var programHooks = map[string]struct{ have, lack string }{
	"5.10": {"bind4 bind6 connect4 connect6 exec sendmsg4 sendmsg6 skb sock_create", "connect_unix sendmsg_unix"},
	"6.1":  {"bind4 bind6 connect4 connect6 exec sendmsg4 sendmsg6 skb sock_create", "connect_unix sendmsg_unix"},
	"6.12": {"bind4 bind6 connect4 connect6 connect_unix exec sendmsg4 sendmsg6 sendmsg_unix skb sock_create", ""},
}

// withoutCookie are kernels that do not tell the cookie of a network namespace to a process.
var withoutCookie = []string{"5.10"}

// testPrograms runs the tests of enforce/egress in each kernel.
func testPrograms(t *testing.T, kernels []Kernel) {
	const path = "/usr/local/bin/egress.test"
	file := filepath.Join(t.TempDir(), "egress.test")
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", file, "coworker/enforce/egress")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	files := append(standardFiles(t), File{Path: path, Mode: 0o755, Source: file})
	for _, k := range kernels {
		t.Run(k.Name, func(t *testing.T) {
			tests := "Attempts|Told|Detached|GroupRemoved|Packets|Exec|Refuses|Parse|Places" // the others measure and count
			if slices.Contains(withoutCookie, k.Name) {
				tests = "Hooks|Detached|GroupRemoved|NothingLeft|AttachRefuses|Parse|Places|WithoutCookie"
			}
			got := boot(t, k, Guest{Files: files, Timeout: 2 * DefaultLife, Cases: []Case{
				{Name: "hooks", User: guest.Root, Argv: []string{path, "-test.run", "TestHooks", "-test.v"}},
				{Name: "tests", User: guest.Root, Argv: []string{path, "-test.run", tests, "-test.v", "-test.timeout", "3m"}, Timeout: DefaultLife},
			}})
			want, hooks := programHooks[k.Name], got["hooks"]
			out := string(hooks.Stdout) + string(hooks.Stderr)
			if !strings.Contains(out, "hooks: "+want.have+"; missing: ") {
				t.Errorf("hooks: want %q: %s", want.have, out)
			}
			for _, name := range strings.Fields(want.lack) {
				if !strings.Contains(out, name+": ") {
					t.Errorf("%s is not said to be missing: %s", name, out)
				}
			}
			if r := got["tests"]; r.Exit != 0 {
				t.Errorf("exit code %d: timed out %v: %.9000s%.4000s", r.Exit, r.TimedOut, r.Stdout, r.Stderr)
			}
		})
	}
}
