package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// call runs one command line against made-up folders.
func call(t *testing.T, args ...string) (out, errText string, code int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	err := Run(context.Background(), append([]string{"coworker"}, args...), Streams{Out: &stdout, Err: &stderr})
	code = Report(&stderr, err)
	return stdout.String(), stderr.String(), code
}

func TestUnbuiltFlagsAreRefused(t *testing.T) {
	t.Setenv("COWORKER_HOME", t.TempDir())
	values := map[string]string{"allow": "example.com", "socket": "/run/x"}
	var names []string
	for _, f := range unbuiltFlags() {
		name := f.Names()[0]
		names = append(names, name)
		args := []string{"exec", "--" + name}
		if v := values[name]; v != "" {
			args = append(args, v)
		}
		_, text, code := call(t, append(args, "--", "true")...)
		if code != exitConfiguration || !strings.Contains(text, "error: --"+name+" is not part of this build\nhint: ") {
			t.Errorf("--%s: exit code %d, %q", name, code, text)
		}
	}
	if want := []string{"socket"}; !slices.Equal(names, want) {
		t.Errorf("refused flags %v, want %v", names, want)
	}
	for _, mode := range []string{"host", ""} {
		if _, _, code := call(t, "exec", "--net", mode, "--", "true"); code != exitConfiguration {
			t.Errorf("--net %q: exit code %d", mode, code)
		}
	}
}

// TestContractFlags holds the flags of exec to the list of the contract.
func TestContractFlags(t *testing.T) {
	want := strings.Fields("w ro workspace read write hide allow net ask staged live level env env-secret publish profile debug user socket apply learn timeout memory pids cpu tty report")
	var got []string
	for _, f := range append(execFlagTable(), unbuiltFlags()...) {
		got = append(got, f.Names()...)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("flags of exec\n got %v\nwant %v", got, want)
	}
}

// TestEveryHelpIsUseful walks all commands: each says what it does and how it ends, and no word after -- can reach
// the parser's own help.
func TestEveryHelpIsUseful(t *testing.T) {
	app := newApp(newEnvironment(Streams{}))
	var walk func(path string, c *cli.Command)
	walk = func(path string, c *cli.Command) {
		path += " " + c.Name
		if !c.HideHelpCommand || c.OnUsageError == nil {
			t.Errorf("%s: the parser's own help or complaints are on", path)
		}
		for _, sub := range c.Subcommands {
			walk(path, sub)
		}
		if c.Hidden || len(c.Subcommands) > 0 {
			return
		}
		out, _, code := call(t, append(strings.Fields(path)[1:], "--help")...)
		if code != 0 || !strings.Contains(out, "exit codes: ") || !strings.HasPrefix(out, path[1:]+": ") {
			t.Errorf("%s --help: exit code %d\n%s", path, code, out)
		}
		if lines := strings.Count(out, "\n"); lines > 45 {
			t.Errorf("%s --help has %d lines", path, lines)
		}
	}
	for _, c := range app.Commands {
		walk(" coworker", c)
	}
}

func TestWordsAfterDashesAreTheCommands(t *testing.T) {
	var got []string
	app := newApp(newEnvironment(Streams{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}}))
	for _, c := range app.Commands {
		if c.Name == "exec" {
			c.Action = func(c *cli.Context) error {
				f, err := parseExec(c)
				got = f.command
				return err
			}
		}
	}
	for _, argv := range [][]string{{"help"}, {"h"}, {"-h"}, {"--", "--"}, {"w"}, {"--generate-bash-completion"}, {"exec", "-w", "--allow", "x"}, {"a,b", "", "--env=1,2"}} {
		if err := app.Run(append([]string{"coworker", "exec", "-w", "--"}, argv...)); err != nil {
			t.Errorf("%q: %v", argv, err)
		}
		if !slices.Equal(got, argv) {
			t.Errorf("exec -- %q runs %q", argv, got)
		}
	}
}

func TestRepeatedFlagsAreNotSplit(t *testing.T) {
	var f execFlags
	app := newApp(newEnvironment(Streams{}))
	for _, c := range app.Commands {
		if c.Name == "exec" {
			c.Action = func(c *cli.Context) (err error) {
				f, err = parseExec(c)
				return err
			}
		}
	}
	err := app.Run([]string{"coworker", "exec", "--env", "A=1,2", "--env", "B", "--read", "x,y", "--read=z", "--", "true"})
	if err != nil || !slices.Equal(f.env, []string{"A=1,2", "B"}) || !slices.Equal(f.read, []string{"x,y", "z"}) {
		t.Errorf("env %q, read %q, error %v", f.env, f.read, err)
	}
}

func TestParsePorts(t *testing.T) {
	for text, want := range map[string]port{"80": {80, 80}, "8080:3000": {8080, 3000}, "65535:1": {65535, 1}} {
		if got, err := parsePorts([]string{text}); err != nil || got[0] != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"0", "65536", "-1", "a", "1:2:3", "1:", ":1", "127.0.0.1:80", " 80", "+80"} {
		if got, err := parsePorts([]string{text}); ExitCode(err) != exitConfiguration {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// TestReportKeys: the contract has these keys, and lists are never null.
func TestReportKeys(t *testing.T) {
	file := filepath.Join(t.TempDir(), "r.json")
	d, err := newEnvironment(Streams{}).openDestination(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := newReport().write(d); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(data, &keys); err != nil {
		t.Fatal(err)
	}
	want := strings.Fields("exit_code level walls attestation denials watching egress dropped_env tracked_secrets named_secrets held started duration_ms")
	for _, k := range want {
		if v, ok := keys[k]; !ok || string(v) == "null" && k != "started" {
			t.Errorf("key %s: %s", k, v)
		}
		delete(keys, k)
	}
	if len(keys) != 0 {
		t.Errorf("keys that the contract does not have: %v", keys)
	}
}

func TestNearest(t *testing.T) {
	valid := []string{"exec", "sandbox", "audit", "w", "ro"}
	for word, want := range map[string]string{"exce": "exec", "sandbx": "sandbox", "audti": "audit", "zzz": "", "": "", "x": ""} {
		if got := nearest(word, valid); got != want {
			t.Errorf("nearest(%q) = %q, want %q", word, got, want)
		}
	}
}
