package life

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"coworker/enforce"
	"coworker/integration/house/testuser"
	"coworker/integration/life/plan"
	"coworker/runtime/session"
)

// snapshot lists everything below a folder, and the folders above it, with what a session must not touch.
func snapshot(t testing.TB, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	note := func(name string) {
		var st syscall.Stat_t
		if err := syscall.Lstat(name, &st); err != nil {
			t.Fatal(err)
		}
		all[name] = fmt.Sprintf("inode %d mode %o owner %d:%d links %d size %d modified %v", st.Ino, st.Mode, st.Uid, st.Gid, st.Nlink, st.Size, st.Mtim)
	}
	err := filepath.WalkDir(root, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		note(name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	note(filepath.Dir(root))
	return all
}

// plant makes files; a name that ends in / is a folder, a text that begins with -> a link.
func plant(t testing.TB, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		full := filepath.Join(root, name)
		if strings.HasSuffix(name, "/") {
			full += "/."
		}
		err := os.MkdirAll(filepath.Dir(full), 0o755)
		target, link := strings.CutPrefix(text, "->")
		switch {
		case err != nil || strings.HasSuffix(name, "/"):
		case link:
			err = os.Symlink(target, full)
		default:
			err = os.WriteFile(full, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

var repository = map[string]string{
	".git/HEAD": "ref: refs/heads/main\n", ".git/config": "[core]\n\tbare = false\n", ".git/hooks/pre-commit.sample": "#!/bin/sh\n",
	".git/objects/": "", ".git/refs/heads/": "",
	"inner/.git/HEAD": "ref: refs/heads/main\n", "inner/.git/config": "[core]\n", "inner/.git/objects/": "", "inner/.git/refs/": "",
	"src/main.c": "int main;\n", ".env": "SECRET=1\n", "link": "->src/main.c", "dangling": "->nowhere", ".vscode/settings.json": "{}\n",
}

// TestNothingChanges: a session that does nothing leaves the person's tree as it was.
func TestNothingChanges(t *testing.T) {
	everyUser(t, func(t *testing.T) {
		for _, one := range []bool{true, false} {
			p := newPlace(t)
			p.OneCommand = one
			p.Workspace = filepath.Join(p.Workspace, "above", "project") // nothing else changes beside it
			plant(t, p.Workspace, repository)
			before := snapshot(t, p.Workspace)
			s := opened(t, p)
			if _, r := sh(t, s, "ls -lR >/dev/null; cat src/main.c"); r.Code != 0 {
				t.Errorf("%+v", r)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			after := snapshot(t, p.Workspace)
			for name := range after {
				if before[name] != after[name] {
					t.Errorf("%q was %q, is %q", name, before[name], after[name])
				}
			}
			if len(before) != len(after) {
				t.Errorf("%d names before, %d after", len(before), len(after))
			}
		}
	})
}

// TestStrangeNames: protected files are pinned whatever the folders above them are called.
func TestStrangeNames(t *testing.T) {
	everyUser(t, func(t *testing.T) {
		for _, name := range []string{"new\nline", "not\xffutf8", "back\\slash", "oct\\040al", " space ", "tab\t", "quote\"'", "*?[", "\x1b[31m", "car\rriage", "\v\f", "nel\u0085nbsp\u00a0", "-rf", "ünï", strings.Repeat("a", 255)} {
			t.Run(strconv.QuoteToASCII(name[:min(len(name), 10)]), func(t *testing.T) {
				p := newPlace(t)
				files := map[string]string{}
				for n, text := range repository {
					files[filepath.Join(name, n)+strings.Repeat("/", strings.Count(n[len(n)-1:], "/"))] = text
				}
				plant(t, p.Workspace, files)
				s := opened(t, p)
				out, _ := sh(t, s, `cd ./`+quote(name)+` || exit 1
					echo x >>.git/config && echo wrote it
					mv .git .git2 && echo moved away
					cat .env && echo read secret
					echo y >>src/main.c || echo no ordinary file`)
				for _, bad := range []string{"wrote it", "moved away", "read secret", "ordinary"} {
					if strings.Contains(out, bad) {
						t.Errorf("%s", out)
					}
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	})
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// TestPlaces opens sessions in all kinds of folders.
func TestPlaces(t *testing.T) {
	everyUser(t, func(t *testing.T) {
		for _, tt := range []struct {
			name string
			work func(p plan.Place) string
		}{
			{"below the home", func(p plan.Place) string { return filepath.Join(p.Home, "project") }},
			{"below a persistent folder of the home", func(p plan.Place) string { return filepath.Join(p.Home, ".cache", "project") }},
			{"deep below a persistent folder", func(p plan.Place) string { return filepath.Join(p.Home, ".local", "share", "a", "b", "c") }},
			{"deep", func(p plan.Place) string { return p.Workspace + strings.Repeat("/d", 200) }},
			{"with a newline", func(p plan.Place) string { return p.Workspace + "/a\nb" }},
			{"not UTF-8", func(p plan.Place) string { return p.Workspace + "/a\xffb" }},
			{"with commas and colons", func(p plan.Place) string { return p.Workspace + "/a,b:c=d" }},
		} {
			t.Run(tt.name, func(t *testing.T) {
				p := newPlace(t)
				p.Workspace = tt.work(p)
				plant(t, p.Workspace, repository)
				s := opened(t, p)
				out, r := sh(t, s, `pwd >/dev/null && echo x >new && cat new && ! echo x 2>/dev/null >>.git/config && ! cat .env 2>/dev/null`)
				if r.Code != 0 || out != "x\n" {
					t.Errorf("%q %+v", out, r)
				}
				if data, err := os.ReadFile(filepath.Join(p.Workspace, "new")); err != nil || string(data) != "x\n" {
					t.Errorf("outside: %q %v", data, err)
				}
			})
		}
	})
}

// TestUnreadableFolder: what its owner closed stays closed, although the owner could open it again.
func TestUnreadableFolder(t *testing.T) {
	everyUser(t, func(t *testing.T) {
		if os.Geteuid() == 0 {
			return // nothing is unreadable for root
		}
		p := newPlace(t)
		plant(t, p.Workspace, map[string]string{"closed/secret": "x", "open/file": "y"})
		closed := filepath.Join(p.Workspace, "closed")
		if err := os.Chmod(closed, 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Chmod(closed, 0o700) })
		s := opened(t, p)
		if out, r := sh(t, s, "cat open/file; chmod 755 closed; cat closed/secret"); strings.Contains(out, "x") && r.Code == 0 {
			t.Errorf("%q %+v", out, r)
		}
	})
}

// meddler is a backend that does something to the host between the scan and the mounts.
type meddler struct {
	enforce.Backend
	meddle func() error
}

func (m meddler) Start(ctx context.Context, l enforce.Launch) (*enforce.Cell, error) {
	complete := l.Complete
	l.Complete = func() (enforce.Spec, error) {
		spec, err := complete()
		return spec, errors.Join(err, m.meddle())
	}
	return m.Backend.Start(ctx, l)
}

// TestTreeChangesUnderway: a tree that is another one by the time it is mounted is refused.
func TestTreeChangesUnderway(t *testing.T) {
	everyUser(t, func(t *testing.T) {
		for _, tt := range []struct {
			name   string
			meddle func(p plan.Place) error
		}{
			{"replaced by a link", func(p plan.Place) error {
				return errors.Join(os.Rename(p.Workspace, p.Workspace+"2"), os.Symlink("/etc", p.Workspace))
			}},
			{"replaced by a link to itself", func(p plan.Place) error {
				return errors.Join(os.Rename(p.Workspace, p.Workspace+"2"), os.Symlink(p.Workspace+"2", p.Workspace))
			}},
			{"replaced by a folder", func(p plan.Place) error {
				return errors.Join(os.Rename(p.Workspace, p.Workspace+"2"), os.Mkdir(p.Workspace, 0o700))
			}},
			{"replaced by a file", func(p plan.Place) error {
				return errors.Join(os.RemoveAll(p.Workspace), os.WriteFile(p.Workspace, nil, 0o600))
			}},
			{"removed", func(p plan.Place) error { return os.RemoveAll(p.Workspace) }},
			{"folder above replaced by a link", func(p plan.Place) error {
				up := filepath.Dir(p.Workspace)
				return errors.Join(os.Rename(up, up+"2"), os.Symlink(up+"2", up))
			}},
			{"protected file replaced by a link", func(p plan.Place) error {
				f := filepath.Join(p.Workspace, ".git/config")
				return errors.Join(os.Remove(f), os.Symlink("/etc/passwd", f))
			}},
			{"folder of a protected file replaced by a link", func(p plan.Place) error {
				f := filepath.Join(p.Workspace, "inner")
				return errors.Join(os.Rename(f, f+"2"), os.Symlink("inner2", f))
			}},
		} {
			t.Run(tt.name, func(t *testing.T) {
				p := newPlace(t)
				p.Workspace = filepath.Join(p.Workspace, "w")
				plant(t, p.Workspace, repository)
				s, err := open(t, p, func(o *session.Options) {
					o.Backend = meddler{o.Backend, func() error { return tt.meddle(p) }}
				})
				var refused *session.RefusedError
				if !errors.As(err, &refused) {
					t.Errorf("got a session: %v, %v", s != nil, err)
					if s != nil {
						s.Close()
					}
				}
				wantNothing(t, p)
			})
		}
	})
}

// TestTreeIsGone: a tree that is not what the caller resolved is refused before anything starts.
func TestTreeIsGone(t *testing.T) {
	p := newPlace(t)
	for name, change := range map[string]func(o *session.Options){
		"missing":        func(o *session.Options) { o.Spec.Trees[0].Path += "/missing" },
		"another device": func(o *session.Options) { o.Spec.Trees[0].Device++ },
		"another inode":  func(o *session.Options) { o.Spec.Trees[0].Inode++ },
		"a file":         func(o *session.Options) { o.Spec.Trees[0].Path = "/etc/passwd" },
		"the root":       func(o *session.Options) { o.Spec.Trees[0].Path, o.Spec.Trees[0].Writable = "/", false },
		"a network":      func(o *session.Options) { o.Spec.Net = "open" },
	} {
		t.Run(name, func(t *testing.T) {
			if s, err := open(t, p, change); err == nil || s != nil {
				t.Errorf("got a session: %v, %v", s != nil, err)
			}
		})
	}
	wantClean(t, p)
}

// TestHostileHomeStore: links that an earlier session left in the private home lead nowhere.
func TestHostileHomeStore(t *testing.T) {
	everyUser(t, func(t *testing.T) {
		for name, files := range map[string]map[string]string{
			"home is a link":              {"home": "->/etc"},
			"persistent folder is a link": {"home/.cache": "->/etc"},
			"link to itself":              {"home/.cache": "->.cache"},
			"folder above is a link":      {"home/.local": "->/etc"},
			"deep folder is a link":       {"home/.local/share": "->../../../../../etc"},
			"persistent folder is a file": {"home/.cache": "x"},
		} {
			t.Run(name, func(t *testing.T) {
				p := newPlace(t)
				plant(t, p.Store, files)
				s, err := open(t, p)
				var refused *session.RefusedError
				if !errors.As(err, &refused) || !strings.Contains(err.Error(), "private home") || !strings.Contains(err.Error(), "cache reset") {
					t.Errorf("got a session: %v, %v", s != nil, err)
					if s != nil {
						s.Close()
					}
				}
			})
		}
	})
}

// TestHomeStoreChangesUnderway: a session that runs already may plant links while another one starts.
func TestHomeStoreChangesUnderway(t *testing.T) {
	everyUser(t, func(t *testing.T) {
		for _, name := range []string{"home/.cache", "home/.local/share", "home/.local", "home"} {
			p := newPlace(t)
			s, err := open(t, p, func(o *session.Options) {
				o.Backend = meddler{o.Backend, func() error {
					at := filepath.Join(p.Store, name)
					return errors.Join(os.RemoveAll(at), os.Symlink("/etc", at))
				}}
			})
			var refused *session.RefusedError
			if !errors.As(err, &refused) {
				t.Errorf("%s: got a session: %v, %v", name, s != nil, err)
				if s != nil {
					s.Close()
				}
			}
		}
	})
}

// TestManyFiles opens a session in a tree of 200,000 files.
func TestManyFiles(t *testing.T) {
	p := newPlace(t)
	plant(t, p.Workspace, repository)
	for i := range 400 {
		dir := filepath.Join(p.Workspace, "many", strconv.Itoa(i))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for j := range 500 {
			if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(j)), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	begun := time.Now()
	s := opened(t, p)
	if out, r := sh(t, s, "find many -type f | wc -l; touch many/1/new"); r.Code != 0 || strings.TrimSpace(out) != "200000" {
		t.Errorf("%q %+v", out, r)
	}
	t.Logf("opened and walked in %v", time.Since(begun))
}

// runMounted starts a driver in a mount namespace of its own, after a script of root has mounted there.
func runMounted(t *testing.T, u testuser.User, j job, script string) []said {
	t.Helper()
	arg, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	id := strconv.Itoa(u.UID)
	cmd := exec.Command("unshare", "-m", "/bin/sh", "-ec", script+`; exec setpriv --reuid="$1" --regid="$1" --clear-groups "$2" "$3"`,
		"sh", id, filepath.Join(bin, "driver"), string(arg))
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "W=" + j.Workspace, "S=" + j.State, "U=" + id}
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit != nil && len(out) == 0 {
		t.Fatalf("%v: %s", err, exit.Stderr)
	}
	var all []said
	for line := range strings.Lines(string(out)) {
		var s said
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

// TestMountedPlaces needs root to mount.
func TestMountedPlaces(t *testing.T) {
	if os.Geteuid() != 0 {
		return
	}
	const tmpfs = `mount -t tmpfs -o size=64m,mode=0755,uid=$U,gid=$U none "$W"`
	for _, tt := range []struct {
		name, script string
		change       func(j *job)
		event, text  string // of the last line
	}{
		{"tmpfs", tmpfs, func(j *job) { j.Argv = []string{"/bin/sh", "-c", "echo x >f && cat f"} }, "end", ""},
		{"read-only mount, to be read", `mount --bind "$W" "$W"; mount -o remount,bind,ro "$W"`, func(j *job) { j.ReadOnly = true }, "end", ""},
		{"read-only mount, to be written", `mount --bind "$W" "$W"; mount -o remount,bind,ro "$W"`, func(*job) {}, "refused", "EROFS"},
		{"other mounts inside", `mkdir "$W/sub"; mount -t tmpfs -o mode=0755,uid=$U,gid=$U none "$W/sub"; mkdir "$W/sub/x"; chown $U:$U "$W/sub/x"; mount --bind /usr/share "$W/sub/x"`,
			func(j *job) {
				j.Argv = []string{"/bin/sh", "-c", "echo x >sub/f && test -d sub/x/doc && ! touch /usr/share/x"}
			}, "end", ""},
		{"full disk for the state", `mount -t tmpfs -o size=8k,mode=0700,uid=$U,gid=$U none "$S"; head -c 20000 /dev/zero >"$S/full" || :`, func(*job) {}, "refused", "no space left"},
		{"disk fills up", tmpfs, func(j *job) { j.Argv = []string{"/bin/sh", "-c", "cat /dev/zero >full; sleep 60"} }, "failed", "must stay free"},
	} {
		for _, u := range testuser.All(t) {
			t.Run(tt.name+"/"+u.String(), func(t *testing.T) {
				j := job{Place: userPlace(t, u), Argv: []string{"/bin/true"}}
				tt.change(&j)
				all := runMounted(t, u, j, tt.script)
				if len(all) == 0 {
					t.Fatal("the driver said nothing")
				}
				last := all[len(all)-1]
				if last.Event != tt.event || last.Code != 0 || !strings.Contains(last.Text, tt.text) {
					t.Errorf("got %+v, want %s with %q", all, tt.event, tt.text)
				}
				wantNothing(t, j.Place)
			})
		}
	}
}
