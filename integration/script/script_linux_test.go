package script

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"coworker/integration/house/testuser"
	"coworker/integration/product"
)

// binaries is the folder with coworker and coworker-cell, open to all users.
var binaries string

func TestMain(m *testing.M) {
	os.Exit(product.Main(m, func(dir string) error { return product.Release(dir, "test") }, func(dir string) { binaries = dir }))
}

func TestScripts(t *testing.T) {
	for _, u := range testuser.All(t) {
		t.Run(u.String(), func(t *testing.T) {
			root := u.Dir(t)
			if err := os.Chmod(root, 0o755); err != nil {
				t.Fatal(err)
			}
			testscript.Run(t, testscript.Params{
				Dir:         "testdata",
				WorkdirRoot: root,
				Setup:       func(env *testscript.Env) error { return setUp(env, u) },
				Condition: func(cond string) (bool, error) {
					if cond == "root" {
						return u.Root(), nil
					}
					return false, fmt.Errorf("unknown condition %q", cond)
				},
				Cmds: map[string]func(*testscript.TestScript, bool, []string){
					"json": checkJSON,
					"own":  func(ts *testscript.TestScript, _ bool, args []string) { own(ts, u, args) },
				},
				RequireExplicitExec: true,
				RequireUniqueNames:  true,
			})
		})
	}
}

// setUp gives a script a home, a workspace ws, and a PATH whose coworker runs as the user of the test.
func setUp(env *testscript.Env, u testuser.User) error {
	tools := filepath.Join(env.WorkDir, ".tools")
	home := filepath.Join(env.WorkDir, "home")
	for _, dir := range []string{tools, home, filepath.Join(env.WorkDir, "ws")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	as := ""
	if u.UID != os.Geteuid() {
		as = fmt.Sprintf("setpriv --reuid %d --regid %d --clear-groups ", u.UID, u.GID)
	}
	for name, text := range map[string]string{
		"coworker": fmt.Sprintf("#!/bin/sh\nexec %s%s/coworker \"$@\"\n", as, binaries),
		"as-user":  fmt.Sprintf("#!/bin/sh\nexec %s\"$@\"\n", as),
		// Runs a command and says its exit code, which the script language cannot ask for.
		"rc": "#!/bin/sh\n\"$@\"\necho \"rc=$?\" >&2\n",
	} {
		if err := writeProgram(filepath.Join(tools, name), text); err != nil {
			return err
		}
	}
	env.Setenv("PATH", tools+":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
	env.Setenv("HOME", home)
	env.Setenv("BIN", binaries)
	env.Setenv("COWORKER_HOME", "")
	env.Setenv("USER_ID", strconv.Itoa(u.UID))
	env.Setenv("TMPDIR", "")
	return u.Own(env.WorkDir)
}

// writeProgram writes a script while nothing else of this process forks: a child that was born with the file still open
// for writing would keep others from starting it (execve(2), ETXTBSY).
func writeProgram(name, text string) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(name, []byte(text), 0o755)
}

// own gives files that the script made as root to the user of the test.
func own(ts *testscript.TestScript, u testuser.User, args []string) {
	for _, name := range args {
		ts.Check(u.Own(ts.MkAbs(name)))
	}
}

// checkJSON is the command `json FILE PATH VALUE`: the value at a path of keys, as text; the key len is a length.
func checkJSON(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: json FILE PATH VALUE")
	}
	var v any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &v))
	for _, key := range strings.Split(args[1], "/") {
		switch x := v.(type) {
		case map[string]any:
			next, ok := x[key]
			if !ok {
				ts.Fatalf("%s has no key %q", args[0], key)
			}
			v = next
		case []any:
			if key == "len" {
				v = float64(len(x))
				break
			}
			i, err := strconv.Atoi(key)
			ts.Check(err)
			if i >= len(x) {
				ts.Fatalf("%s: %d items, no number %d", args[1], len(x), i)
			}
			v = x[i]
		default:
			ts.Fatalf("%s: %v has no %q", args[1], v, key)
		}
	}
	if got := fmt.Sprint(v); (got == args[2]) == neg {
		ts.Fatalf("%s of %s is %q, want %q (negated: %v)", args[1], args[0], got, args[2], neg)
	}
}
