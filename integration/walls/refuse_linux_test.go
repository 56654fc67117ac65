package walls

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"coworker/integration/house/testuser"
)

// refusal is a command line that must not run, or a machine that it must not run on.
type refusal struct {
	name  string
	flags []string // HOME, OUTSIDE, OWN and WORK are replaced
	dir   string
	setup string // on the host, in the workspace
	code  int
	says  string // part of the error
}

var refusals = []refusal{
	{name: "missing-workspace", flags: []string{"--workspace", "OUTSIDE/none"}, code: 123, says: "OUTSIDE/none"},
	{name: "root-workspace", dir: "/", code: 123, says: "/"},
	{name: "home-workspace", dir: "HOME", code: 123, says: "HOME"},
	{name: "file-workspace", flags: []string{"--workspace", "OUTSIDE/file"}, code: 123, says: "OUTSIDE/file"},
	{name: "link-loop", setup: "ln -s loop2 loop1; ln -s loop1 loop2", flags: []string{"--workspace", "WORK/loop1"}, code: 123, says: "loop1"},
	{name: "own-state", flags: []string{"--write", "OWN/state"}, code: 123, says: "own"},
	{name: "own-folder-around", flags: []string{"--read", "OWN"}, code: 123, says: "own"},
	{name: "workspace-is-own", flags: []string{"--workspace", "OWN"}, code: 123, says: "own"},
	{name: "read-missing", flags: []string{"--read", "OUTSIDE/none"}, code: 123, says: "OUTSIDE/none"},
	{name: "write-missing", flags: []string{"--write", "OUTSIDE/none"}, code: 123, says: "OUTSIDE/none"},
	{name: "hide-workspace", flags: []string{"--hide", "WORK"}, code: 123, says: "WORK"},
	{name: "read-inside-hidden", flags: []string{"--hide", "WORK/private", "--read", "WORK/private/note"}, code: 123, says: "private"},
	{name: "both-modes", flags: []string{"--ro", "-w"}, code: 123, says: "contradict"},
	{name: "unknown-flag", flags: []string{"--no-sandbox"}, code: 123, says: "no-sandbox"},
	{name: "unknown-level", flags: []string{"--level", "none"}, code: 123, says: "none"},
	{name: "direct", flags: []string{"--level", "direct"}, code: 121, says: "direct"},
	{name: "hardened", flags: []string{"--level", "hardened"}, code: 120, says: "hardened"},
	{name: "network-of-the-host", flags: []string{"--net", "host"}, code: 123, says: "want none, allowlist or open"},
	{name: "network-none-and-allow", flags: []string{"--net", "none", "--allow", "example.com"}, code: 123, says: "--net none"},
	{name: "allow-address-of-a-page", flags: []string{"--allow", "https://example.com/"}, code: 123, says: "is no rule"},
	{name: "allow-everything", flags: []string{"--allow", "*"}, code: 123, says: "is no rule"},
	{name: "allow-loopback", flags: []string{"--allow", "127.0.0.1:80"}, code: 123, says: "is no rule"},
	{name: "staged-read-only", flags: []string{"--staged", "--ro"}, code: 123, says: "--ro"},
	{name: "staged-live", flags: []string{"--staged", "--live"}, code: 123, says: "--live"},
	{name: "apply-live", flags: []string{"--apply", "auto"}, code: 123, says: "--apply"},
	{name: "socket-not-built", flags: []string{"--socket", "OUTSIDE/file"}, code: 123, says: "socket"},
	{name: "memory-zero", flags: []string{"--memory", "0"}, code: 123, says: "memory"},
	{name: "memory-negative", flags: []string{"--memory", "-1"}, code: 123, says: "memory"},
	{name: "memory-overflow", flags: []string{"--memory", "99999999999999999999"}, code: 123, says: "memory"},
	{name: "pids-zero", flags: []string{"--pids", "0"}, code: 123, says: "pids"},
	{name: "pids-word", flags: []string{"--pids", "many"}, code: 123, says: "pids"},
	{name: "pids-negative", flags: []string{"--pids", "-5"}, code: 123, says: "pids"},
	{name: "cpu-zero", flags: []string{"--cpu", "0"}, code: 123, says: "cpu"},
	{name: "timeout-word", flags: []string{"--timeout", "soon"}, code: 123, says: "timeout"},
	{name: "env-no-name", flags: []string{"--env", "=a"}, code: 123, says: "env"},
	{name: "user-unknown", flags: []string{"--user", "nobody-of-that-name"}, code: 123, says: "nobody-of-that-name"},
	{name: "empty-flag", flags: []string{"--read", ""}, code: 123, says: "read"},
	{name: "project-loosens", setup: `mkdir -p .coworker; echo 'level = "direct"' > .coworker/config.toml`, code: 123, says: "level"},
	{name: "project-unknown-key", setup: `mkdir -p .coworker; echo 'no_such_key = 1' > .coworker/config.toml`, code: 123, says: "no_such_key"},
	{name: "project-link", setup: `mkdir -p .coworker; rm -f .coworker/config.toml; ln -s ../../../../outside/file .coworker/config.toml`, code: 123, says: "config.toml"},
}

// TestRefusals wants a distinct code, a reason that names the value, a hint, and nothing run.
func TestRefusals(t *testing.T) {
	eachUser(t, func(t *testing.T, u testuser.User) {
		for _, tt := range refusals {
			t.Run(tt.name, func(t *testing.T) {
				w := newWorld(t, u)
				fill := strings.NewReplacer("HOME", w.home, "OUTSIDE", w.outside, "OWN", w.own, "WORK", w.work).Replace
				if tt.setup != "" {
					if e := w.onHost(t, tt.setup); e.code != 0 {
						t.Fatal(e.err)
					}
				}
				args := []string{"exec"}
				for _, f := range tt.flags {
					args = append(args, fill(f))
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				cmd := w.command(ctx, append(args, "--", "sh", "-c", "echo it ran")...)
				if tt.dir != "" {
					cmd.Dir = fill(tt.dir)
				}
				e := w.finish(t, nil, cmd)
				if e.out != "" {
					t.Errorf("LEAK: the command ran: %q", e.out)
				}
				if e.code != tt.code {
					t.Errorf("ended with %d, want %d: %s", e.code, tt.code, e.err)
				}
				if !strings.Contains(e.err, "error: ") || !strings.Contains(e.err, fill(tt.says)) {
					t.Errorf("the error does not name %q: %s", fill(tt.says), e.err)
				}
			})
		}
	})
}

// TestOddWorkspaces uses workspaces that are unusual and work.
func TestOddWorkspaces(t *testing.T) {
	eachUser(t, func(t *testing.T, u testuser.User) {
		for name, dir := range map[string]string{
			"newline": "a\nb", "invalid-utf8": "a\xff\xfeb", "spaces": "  a  b ", "quotes": `a'"b`, "long": strings.Repeat("x", 200), "octal": `a\040b`, "tab": "a\tb", "dash": "-rf",
		} {
			t.Run(name, func(t *testing.T) {
				w := emptyWorld(t, u)
				w.work = filepath.Join(w.work, dir)
				if err := os.Mkdir(w.work, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(w.work, ".mcp.json"), nil, 0o644); err != nil {
					t.Fatal(err)
				}
				if err := u.Own(w.work); err != nil {
					t.Fatal(err)
				}
				e := w.exec(t, nil, "sh", "-c", "echo a > a && ! echo a > .mcp.json && echo fine")
				if e.code != 0 || e.out != "fine\n" {
					t.Errorf("ended with %d: %q %s", e.code, e.out, e.err)
				}
			})
		}
		t.Run("unreadable", func(t *testing.T) {
			w := newWorld(t, u)
			if err := os.Chmod(filepath.Join(w.work, "nested"), 0); err != nil {
				t.Fatal(err)
			}
			e := w.exec(t, nil, "sh", "-c", "ls nested; echo fine")
			if err := os.Chmod(filepath.Join(w.work, "nested"), 0o755); err != nil {
				t.Fatal(err)
			}
			if e.code != 0 || !strings.HasSuffix(e.out, "fine\n") {
				t.Errorf("ended with %d: %q %s", e.code, e.out, e.err)
			}
		})
		t.Run("dangling-links", func(t *testing.T) {
			w := emptyWorld(t, u)
			if e := w.onHost(t, "ln -s loop2 loop1; ln -s loop1 loop2; ln -s nowhere .claude; ln -s /etc/passwd .mcp.json; ln -s . self"); e.code != 0 {
				t.Fatal(e.err)
			}
			if e := w.exec(t, nil, "sh", "-c", "echo a > a && echo fine"); e.code != 0 || e.out != "fine\n" {
				t.Errorf("ended with %d: %q %s", e.code, e.out, e.err)
			}
		})
	})
}

// TestNested starts sandboxes inside a session: they must fail, and say so.
func TestNested(t *testing.T) {
	eachUser(t, func(t *testing.T, u testuser.User) {
		w := newWorld(t, u)
		for _, name := range []string{"coworker", "coworker-cell"} {
			data, err := os.ReadFile(filepath.Join(built, name))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(w.work, "scratch", name), data, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for _, tt := range []struct{ name, run string }{
			{"coworker", `HOME=/tmp COWORKER_HOME=/tmp/own scratch/coworker exec -- echo it ran`},
			{"coworker-partial", `HOME=/tmp COWORKER_HOME=/tmp/own scratch/coworker exec --level direct -- echo it ran`},
			{"bwrap", `bwrap --ro-bind / / --unshare-all echo it ran`},
			{"unshare", `unshare -Ur echo it ran`},
			{"unshare-net", `unshare -Urn echo it ran`},
			{"systemd-run", `systemd-run --user --wait echo it ran`},
		} {
			t.Run(tt.name, func(t *testing.T) {
				if _, err := exec.LookPath(strings.Fields(tt.run)[0]); err != nil && tt.name != "coworker" && tt.name != "coworker-partial" {
					t.Logf("not installed: %v", err)
					return
				}
				e := w.exec(t, nil, "bash", "-c", tt.run)
				if e.code == 0 || strings.Contains(e.out, "it ran") {
					t.Errorf("ended with %d and printed %q", e.code, e.out)
				}
			})
		}
	})
}

// TestNoProc takes /proc away from the machine, as seen by one process.
func TestNoProc(t *testing.T) {
	if os.Geteuid() != 0 {
		return // the unprivileged user of a run as root covers it
	}
	eachUser(t, func(t *testing.T, u testuser.User) {
		w := newWorld(t, u)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		cmd := w.command(ctx, "exec", "-w", "--", "sh", "-c", "echo it ran")
		cmd.Path, cmd.Args = lookUnshare(t, u, cmd.Args)
		cmd.SysProcAttr = nil
		if e := w.finish(t, nil, cmd); e.code != 120 && e.code != 123 && e.code != 125 || e.out != "" || !strings.Contains(e.err, "proc") {
			t.Errorf("ended with %d, printed %q: %s", e.code, e.out, e.err)
		}
	})
}

func lookUnshare(t *testing.T, u testuser.User, args []string) (string, []string) {
	path, err := exec.LookPath("unshare")
	if err != nil {
		t.Fatal(err)
	}
	script := `mount -t tmpfs none /proc && exec "$@"`
	out := []string{"unshare", "-m", "sh", "-c", script, "sh"}
	if !u.Root() {
		script = `mount -t tmpfs none /proc && id=$1 && shift && exec setpriv --reuid "$id" --regid "$id" --clear-groups "$@"`
		out = []string{"unshare", "-m", "sh", "-c", script, "sh", itoa(u.UID)}
	}
	return path, append(out, args...)
}

// TestOtherCell shows that coworker starts no cell but its own.
func TestOtherCell(t *testing.T) {
	u := testuser.Unprivileged(t)
	w := newWorld(t, u)
	dir := testuser.Install(t, filepath.Join(built, "coworker"), filepath.Join(built, "coworker-cell"))
	f, err := os.OpenFile(filepath.Join(dir, "coworker-cell"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte{0}); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := w.command(ctx, "exec", "--", "echo", "it ran")
	cmd.Path = filepath.Join(dir, "coworker")
	cmd.Args[0] = cmd.Path
	if e := w.finish(t, nil, cmd); e.code != 120 || e.out != "" || !strings.Contains(e.err, "hint: ") {
		t.Errorf("ended with %d, printed %q: %s", e.code, e.out, e.err)
	}
}

// TestOwner shows that a session that root starts in somebody's folder runs as that somebody.
func TestOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		return // only root becomes somebody else
	}
	root, owner := testuser.All(t)[0], testuser.Unprivileged(t)
	w := emptyWorld(t, root)
	if err := os.Chmod(w.base, 0o711); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"home", "home/code"} {
		if err := os.Chmod(filepath.Join(w.base, dir), 0o711); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(w.work, owner.UID, owner.GID); err != nil {
		t.Fatal(err)
	}
	e := w.exec(t, nil, "sh", "-c", "id -u; id -G; echo a > made")
	if want := itoa(owner.UID) + "\n" + itoa(owner.GID) + "\n"; e.code != 0 || e.out != want {
		t.Fatalf("ended with %d, printed %q, want %q: %s", e.code, e.out, want, e.err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(w.work, "made"), &st); err != nil || int(st.Uid) != owner.UID {
		t.Errorf("the file belongs to uid %d, %v", st.Uid, err)
	}
}
