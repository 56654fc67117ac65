package walls

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"coworker/integration/house/testuser"
)

// toolAttack reaches out with a program that everybody has. The words in capitals are replaced by targets.
type toolAttack struct{ name, command, needs string }

var toolAttacks = []toolAttack{
	{"curl", `curl -sS -m 4 http://FAR4/`, "curl"},
	{"curl-noproxy", `curl -sS -m 4 --noproxy '*' http://FAR4/`, "curl"},
	{"curl-metadata", `curl -sS -m 4 http://METADATA/latest/meta-data/`, "curl"},
	{"curl-ipv6", `curl -sS -g -m 4 'http://FAR6/'`, "curl"},
	{"curl-loopback", `curl -sS -m 4 http://LOOPBACK4/`, "curl"},
	{"curl-localhost", `curl -sS -m 4 http://localhost:LOOPBACKPORT/`, "curl"},
	{"curl-unix", `curl -sS -m 4 --unix-socket DOCKER http://docker/version`, "curl"},
	{"curl-work-unix", `curl -sS -m 4 --unix-socket ./daemon.sock http://docker/version`, "curl"},
	{"wget", `wget -q -T 4 -t 1 -O - http://FAR4/`, "wget"},
	{"bash-tcp", `exec 3<>/dev/tcp/FARHOST/FARPORT`, "bash"},
	{"bash-udp", `echo x > /dev/udp/FARHOST/UDPPORT`, "bash"},
	{"python", `python3 -c 'import socket,sys; socket.create_connection(("FARHOST", FARPORT), 4)'`, "python3"},
	{"python-udp", `python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("FARHOST", UDPPORT))'`, "python3"},
	{"git-http", `git ls-remote http://FAR4/a.git`, "git"},
	{"git-daemon", `git ls-remote git://FAR4/a.git`, "git"},
	{"ssh", `ssh -o BatchMode=yes -o ConnectTimeout=4 -o StrictHostKeyChecking=no -p FARPORT FARHOST true`, "ssh"},
	{"nc", `echo x | nc -w 4 FARHOST FARPORT`, "nc"},
	{"openssl", `openssl s_client -connect FAR4 </dev/null`, "openssl"},
	{"node", `node -e 'require("net").connect(FARPORT, "FARHOST").on("error", () => process.exit(1)).on("connect", () => process.exit(0))'`, "node"},
}

// TestTools reaches out with the tools of every day. Inside each must fail, soon, and reach nobody.
func TestTools(t *testing.T) {
	eachUser(t, func(t *testing.T, u testuser.User) {
		w := newWorld(t, u)
		h := newHosts(t, w)
		var script strings.Builder
		names := map[string]toolAttack{}
		for _, a := range toolAttacks {
			if _, err := exec.LookPath(a.needs); err != nil {
				t.Logf("%s: %s is not installed", a.name, a.needs)
				continue
			}
			if a.needs == "ssh" && u.Name == "" {
				t.Logf("%s: it runs for users with a name only", a.name)
				continue
			}
			a.command = h.fill(a.command)
			names[a.name] = a
			script.WriteString("s=$SECONDS; ( " + a.command + " ) >&2; echo " + a.name + " $? $((SECONDS-s))\n")
		}
		e := w.execIn(t, h.net, nil, "bash", "-c", script.String())
		lines := strings.Split(strings.TrimSpace(e.out), "\n")
		if len(lines) != len(names) {
			t.Fatalf("%d answers, want %d: %s", len(lines), len(names), e.err)
		}
		for _, line := range lines {
			f := strings.Fields(line)
			if f[1] == "0" && f[0] != "bash-udp" && f[0] != "python-udp" {
				t.Errorf("%s inside worked: %s", f[0], e.err)
			}
			if len(f[2]) > 1 || f[2] > "3" {
				t.Errorf("%s inside took %s s to fail", f[0], f[2])
			}
		}
		for name, hits := range h.hits {
			if n := hits.Load(); n > 0 {
				t.Errorf("LEAK: the listener %s was reached %d times", name, n)
			}
		}
		for _, a := range names {
			before := h.total()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			cmd := u.Command(ctx, w.home, "bash", "-c", a.command)
			cmd.Dir = w.work
			out := w.finish(t, h.net, cmd)
			cancel()
			if !h.reached(before) {
				t.Errorf("%s outside reaches nobody: %s", a.name, out.err)
			}
		}
	})
}

// fill puts targets into a command.
func (h *hosts) fill(command string) string {
	far, loopback, udp := h.targets.Net["far4"], h.targets.Net["loopback4"], h.targets.Net["udp-far4"]
	cut := func(s string) (string, string) { i := strings.LastIndexByte(s, ':'); return s[:i], s[i+1:] }
	farHost, farPort := cut(far)
	_, loopbackPort := cut(loopback)
	_, udpPort := cut(udp)
	return strings.NewReplacer("FARHOST", farHost, "FARPORT", farPort, "UDPPORT", udpPort, "LOOPBACKPORT", loopbackPort, "FAR4", far,
		"FAR6", h.targets.Net["far6"], "METADATA", h.targets.Net["metadata"], "LOOPBACK4", loopback, "DOCKER", h.targets.Sockets["docker"]).Replace(command)
}

// TestNames shows that no name is looked up outside: the answer is a clean refusal, at once, and no query arrives.
func TestNames(t *testing.T) {
	eachUser(t, func(t *testing.T, u testuser.User) {
		w := newWorld(t, u)
		h := newHosts(t, w)
		e := w.execIn(t, h.net, nil, "bash", "-c", `curl -sS -m 4 http://example.com/ >&2; echo curl $?; getent hosts example.com >&2; echo getent $?; `+
			`python3 -c 'import socket; socket.getaddrinfo("example.com", 80)' 2>/dev/null; echo python $?; getent hosts localhost >/dev/null; echo localhost $?`)
		want := "curl 6\ngetent 2\npython 1\nlocalhost 0\n"
		if e.out != want || e.took > 15*time.Second {
			t.Errorf("answers %q after %v, want %q: %s", e.out, e.took, want, e.err)
		}
		if n := h.total(); n != 0 {
			t.Errorf("LEAK: %d queries arrived", n)
		}
	})
}

// poison are variables of the person's shell that would run code inside, say where daemons are, or hold a secret.
var poison = map[string]string{
	"LD_PRELOAD": "/nonexistent.so", "LD_LIBRARY_PATH": "/nonexistent", "LD_AUDIT": "/nonexistent.so", "DYLD_INSERT_LIBRARIES": "/nonexistent",
	"PYTHONSTARTUP": "/nonexistent", "PYTHONPATH": "/nonexistent", "NODE_OPTIONS": "--no-warnings", "PERL5OPT": "-w", "PERL5LIB": "/nonexistent", "RUBYOPT": "-w",
	"BASH_ENV": "/nonexistent", "ENV": "/nonexistent", "PROMPT_COMMAND": "true", "JAVA_TOOL_OPTIONS": "-Da=b", "_JAVA_OPTIONS": "-Da=b", "DOTNET_STARTUP_HOOKS": "/nonexistent",
	"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.hooksPath", "GIT_CONFIG_VALUE_0": "/nonexistent", "GIT_CONFIG_PARAMETERS": "'a.b=c'",
	"GIT_SSH_COMMAND": "false", "GIT_EXTERNAL_DIFF": "false", "GIT_ASKPASS": "false", "GIT_TEMPLATE_DIR": "/nonexistent",
	"OP_SERVICE_ACCOUNT_TOKEN": "secret", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "secret", "GITHUB_TOKEN": "secret", "OPENAI_API_KEY": "secret",
	"NPM_TOKEN": "secret", "DATABASE_URL": "postgres://user:secret@db/x", "MY_PASSWORD": "secret", "SECRET_THING": "secret",
	"HARMLESS_NAME": "ghp_0123456789abcdefghijklmnopqrstuvwxyzAB",
	"SSH_AUTH_SOCK": "/run/agent", "SSH_AGENT_PID": "1", "GPG_AGENT_INFO": "/run/gpg", "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/bus", "DOCKER_HOST": "unix:///run/docker.sock",
	"KUBECONFIG": "/nonexistent", "DISPLAY": ":0", "WAYLAND_DISPLAY": "wayland-0", "XAUTHORITY": "/nonexistent", "TMUX": "/tmp/tmux,1,0", "STY": "1.a",
	"HTTP_PROXY": "http://user:secret@proxy:1", "https_proxy": "http://user:secret@proxy:1",
}

// TestEnvironment shows that nothing of the person's environment gets in but what is harmless or was named.
func TestEnvironment(t *testing.T) {
	eachBackend(t, func(t *testing.T, u testuser.User) {
		w := emptyWorld(t, u)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		cmd := w.command(ctx, "exec", "--env", "NAMED=given", "--env", "PASSED", "--env", "NOT_THERE", "--env-secret", "GITLAB_TOKEN", "--", "env", "-0")
		for name, value := range poison {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		cmd.Env = append(cmd.Env, "PASSED=through", "GITLAB_TOKEN=named-secret", "PASSED_NOT=x")
		e := w.finish(t, nil, cmd)
		if e.code != 0 {
			t.Fatalf("env ended with %d: %s", e.code, e.err)
		}
		got := strings.Split(strings.TrimSuffix(e.out, "\x00"), "\x00")
		for name, value := range poison {
			if slices.Contains(got, name+"="+value) {
				t.Errorf("LEAK: %s came in", name)
			}
		}
		for _, name := range []string{canaryVariable, "PASSED_NOT", "NOT_THERE", "COWORKER_HOME"} {
			if slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, name+"=") }) {
				t.Errorf("LEAK: %s came in", name)
			}
		}
		for _, want := range []string{"NAMED=given", "PASSED=through", "GITLAB_TOKEN=named-secret"} {
			if !slices.Contains(got, want) {
				t.Errorf("%s is missing in %q", want, got)
			}
		}
		for _, name := range []string{"PATH", "HOME", "USER"} {
			if !slices.ContainsFunc(got, func(s string) bool {
				return strings.HasPrefix(s, name+"=/") || strings.HasPrefix(s, name+"=") && name == "USER"
			}) {
				t.Errorf("%s is missing in %q", name, got)
			}
		}
	})
}

// TestNothingChanges compares the person's tree before and after a run that changes nothing.
func TestNothingChanges(t *testing.T) {
	eachBackend(t, func(t *testing.T, u testuser.User) {
		w := newWorld(t, u)
		before := take(t, w.base, "own", "report.json")
		for _, flags := range [][]string{nil, {"--ro"}, {"--hide", "private"}, {"--write", ".mcp.json"}, {"--read", w.outside}} {
			if e := w.exec(t, flags, "sh", "-c", "find . > /dev/null; GIT_OPTIONAL_LOCKS=0 git status > /dev/null 2>&1; true"); e.code != 0 {
				t.Errorf("%q: ended with %d: %s", flags, e.code, e.err)
			}
			after := take(t, w.base, "own", "report.json")
			delete(before, ".") // the report was written there
			delete(after, ".")
			if diff := before.changed(after); len(diff) > 0 {
				t.Errorf("%q changed:\n%s", flags, before.explain(after))
			}
		}
	})
}

// TestReadOnly shows that without -w, and with --ro, nothing in the workspace can be written; and what --read, --write
// and --hide mean when they meet.
func TestReadOnly(t *testing.T) {
	eachUser(t, func(t *testing.T, u testuser.User) {
		w := newWorld(t, u)
		for _, tt := range []struct {
			name  string
			flags []string
			run   string
			code  int
		}{
			{"ro", []string{"--ro"}, "echo a > scratch/a", 1},
			{"ro-create-top", []string{"--ro"}, "echo a > a", 1},
			{"write", nil, "echo a > scratch/a", 0},
			{"write-one-folder", []string{"--ro", "--write", filepath.Join(w.work, "scratch")}, "echo a > scratch/a && ! echo a > a", 0},
			{"read-beside", []string{"--read", w.outside}, "cat " + w.outside + "/file >/dev/null && ! echo a > " + w.outside + "/a", 0},
			{"write-beside", []string{"--write", filepath.Join(w.outside, "open")}, "echo a > " + w.outside + "/open/a && ! cat " + w.outside + "/file", 0},
			{"single-file", []string{"--read", filepath.Join(w.outside, "file")}, "cat " + w.outside + "/file >/dev/null && ! ls " + w.outside + "/open", 0},
			{"hide-wins", []string{"--write", filepath.Join(w.work, "private"), "--hide", filepath.Join(w.work, "private")}, "cat private/note || echo a > private/a", 1},
			{"lifted", []string{"--write", filepath.Join(w.work, ".mcp.json")}, "echo '{\"a\":1}' > .mcp.json", 0},
			{"lifted-only-that", []string{"--write", filepath.Join(w.work, ".mcp.json")}, "echo a > .vscode/tasks.json", 1},
			{"named-secret", []string{"--read", filepath.Join(w.work, ".env")}, "grep -q canary .env", 0},
			{"named-secret-only-that", []string{"--read", filepath.Join(w.work, ".env")}, "cat .env.local", 1},
		} {
			t.Run(tt.name, func(t *testing.T) {
				e := w.exec(t, tt.flags, "sh", "-c", tt.run)
				if e.code != tt.code && !(tt.code == 1 && e.code == 2) {
					t.Errorf("%q with %q ended with %d, want %d: %s", tt.run, tt.flags, e.code, tt.code, e.err)
				}
			})
		}
		if data, err := os.ReadFile(filepath.Join(w.work, ".mcp.json")); err != nil || !strings.Contains(string(data), "1") {
			t.Errorf("what --write lifted was not written: %q, %v", data, err)
		}
	})
}
