package walls

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/creack/pty"

	"coworker/integration/house/testuser"
)

// onCopy are attempts that may work in a staged session: they change the copy. What the person finds decides.
func onCopy(name string) bool {
	return strings.HasPrefix(name, "protect-") || strings.HasPrefix(name, "absent")
}

// TestAttemptsStaged makes every attempt of the attacker in one staged session: protected names that are there and that are
// not, renames, hard links, mounts. TestAttempts has the controls. Nothing of the person's may differ afterwards, to the
// inode, the times and the number of links.
func TestAttemptsStaged(t *testing.T) {
	eachUser(t, func(t *testing.T, u testuser.User) {
		w := newWorld(t, u)
		w.addSetuid(t)
		h := newHosts(t, w)
		names := attemptNames(t)
		e, got, before := w.attack(t, h, names, "--staged", "--apply", "never")
		worked := 0
		for i, o := range got {
			want, _ := expected(o.Name)
			if i >= len(names) {
				want.inside = "EACCES EPERM ENOENT"
			}
			if onCopy(o.Name) {
				if o.Worked {
					worked++
				}
				continue
			}
			if !want.insideIsRight(o) {
				t.Errorf("%s: worked %v, %s (%s), want %s", o.Name, o.Worked, o.Errno, o.Detail, want.inside)
			}
		}
		if worked < 20 {
			t.Errorf("%d attempts on protected names worked on the copy: the test shows little", worked)
		}
		h.untouched(t, w, e)
		after := take(t, w.base, "own")
		for _, name := range before.changed(after) {
			if name != "." { // the report was written there, and removed
				t.Errorf("LEAK: %s: was %q, is %q", name, before[name], after[name])
			}
		}
		if len(e.report.Held) > 0 {
			t.Errorf("something was held although nothing was applied: %+v", e.report.Held)
		}
		if !slices.Contains(e.report.Walls["fs.protect"].Mechanisms, "staged") || e.report.Walls["fs.protect"].Detail != "" {
			t.Errorf("fs.protect is kept by %+v", e.report.Walls["fs.protect"])
		}
	})
}

// TestAttemptsApplied makes the same attempts and applies what they did. The person finds no more than after a live session.
func TestAttemptsApplied(t *testing.T) {
	eachUser(t, func(t *testing.T, u testuser.User) {
		w := newWorld(t, u)
		w.addSetuid(t)
		h := newHosts(t, w)
		e, _, before := w.attack(t, h, attemptNames(t), "--staged", "--apply", "auto")
		if e.report.Staged == nil || e.report.Staged.Applied == 0 || e.report.Staged.Held == 0 {
			t.Fatalf("what was applied: %+v: %.2000s", e.report.Staged, e.err)
		}
		h.untouched(t, w, e)
		after := take(t, w.base, "own")
		for _, name := range before.changed(after) {
			if !honest(name) {
				t.Errorf("LEAK: %s: was %q, is %q", name, before[name], after[name])
			}
		}
		if listed := w.coworker(t, "held", "list", "--json"); strings.Count(listed, `"id"`) < e.report.Staged.Held {
			t.Errorf("held list shows fewer than %d items", e.report.Staged.Held)
		}
	})
}

// stagedGit is real work with git, in a repository with a hook. It ends with what can be compared.
const stagedGit = `set -e
git checkout -q -B try side; git rebase -q main
git worktree add -q ../wt side 2>/dev/null || git worktree add -q wt side
git -c core.hooksPath=.git/hooks commit -q --allow-empty -m hooked
git config alias.st status; git st -s >/dev/null
git mv f1 dir/moved; git commit -q -m moved; git stash list; git tag v1; git gc -q --prune=now; git fsck --strict 2>/dev/null
git clone -q --no-hardlinks . copy; git -C copy log -1 --format=%s; rm -rf copy
mv dir dir2; git add -A; git commit -q -m renamed
git log --format=%s | wc -l; git rev-parse HEAD^{tree}`

// stagedHistory makes a branch with fifty commits beside main, and hooks.
const stagedHistory = `set -e
git init -q -b main .; mkdir dir; for i in $(seq 100); do echo $i > f$i; echo $i > dir/g$i; done; git add -A; git commit -q -m m; git checkout -q -b side
i=0; while [ $i -lt 50 ]; do echo $i >> f2; echo $i > n$i; git add -A; git commit -q -m c$i; i=$((i+1)); done
git checkout -q main; echo more > more; git add -A; git commit -q -m more
printf '#!/bin/sh\necho hook ran > .git/hook-ran\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit`

// TestStagedGit does real work with git in a staged session, and the same outside. Both must come to the same end, and the
// real folder must be as it was.
func TestStagedGit(t *testing.T) {
	const names = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; "
	eachUser(t, func(t *testing.T, u testuser.User) {
		w := emptyWorld(t, u)
		if e := w.onHost(t, names+stagedHistory); e.code != 0 {
			t.Fatalf("history: %s", e.err)
		}
		before := take(t, w.work)
		e := w.exec(t, []string{"--staged", "--apply", "never"}, "bash", "-c", names+stagedGit)
		if e.code != 0 {
			t.Fatalf("inside it ended with %d: %s", e.code, e.err)
		}
		after := take(t, w.work)
		if changed := before.changed(after); len(changed) > 0 {
			t.Errorf("LEAK: changed outside: %q", changed)
		}
		control := w.onHost(t, names+stagedGit)
		if control.code != 0 || control.out != e.out {
			t.Errorf("inside it came to %q, outside to %q (%d, %s)", e.out, control.out, control.code, control.err)
		}
	})
}

// TestStagedQuirks holds what the documentation says about an overlay, and that ordinary calls work on it.
func TestStagedQuirks(t *testing.T) {
	eachUser(t, func(t *testing.T, u testuser.User) {
		w := newWorld(t, u)
		for _, q := range []struct{ name, script, says string }{
			{"rename of a lower folder", `python3 -c 'import os; os.rename("nested","aside")' 2>&1 | tail -1`, "Errno 18"},
			{"mv copies", `mv nested/deep/er/vendored aside2 && ls -A aside2`, ".git"},
			{"rename of a new folder", `mkdir -p n/m; mv n n2 && ls n2`, "m"},
			{"rename of a lower file", `mv main.txt other.txt && cat other.txt`, "ordinary"},
			{"hard link", `ln other.txt linked && echo more >> linked && tail -1 other.txt`, "more"},
			{"shared mapping", `python3 -c 'import mmap; f=open("public.pem","r+b"); m=mmap.mmap(f.fileno(),0); m[0:5]=b"XXXXX"; m.flush()'; head -c 5 public.pem`, "XXXXX"},
			{"program", `printf '#!/bin/sh\necho started\n' > prog; chmod +x prog; ./prog`, "started"},
			{"temporary file", `python3 -c 'import os; fd=os.open(".",os.O_TMPFILE|os.O_RDWR); os.write(fd,b"nameless"); print(os.pread(fd,8,0))'`, "nameless"},
			{"own socket", `python3 -c 'import socket; s=socket.socket(socket.AF_UNIX); s.bind("own.sock"); s.listen(); c=socket.socket(socket.AF_UNIX); c.connect("own.sock"); print("talked")'`, "talked"},
			{"no device", `test ! -c main.txt && mknod dev c 1 3 2>&1 | grep -c -i 'not permitted'`, "1"},
			{"attribute", `python3 -c 'import os; os.setxattr("prog","user.a",b"b"); print(os.getxattr("prog","user.a"))'`, "b'b'"},
			{"overlay's own attribute", `python3 -c 'import os; os.setxattr("nested","user.overlay.redirect",b"/private")' 2>/dev/null; ls nested`, "deep"},
			{"case only", `mv prog Prog && ls -d Prog`, "Prog"},
		} {
			e := w.exec(t, []string{"--staged", "--apply", "never"}, "bash", "-c", "exec 2>&1; mv main.txt x; mv x main.txt; "+prepare(q.name)+q.script)
			if !strings.Contains(e.out, q.says) {
				t.Errorf("%s: said %q, want %q in it (%d: %s)", q.name, e.out, q.says, e.code, e.err)
			}
		}
	})
}

// prepare makes what later rows rest on: each row is a session of its own.
func prepare(name string) string {
	switch name {
	case "hard link":
		return "mv main.txt other.txt; "
	case "attribute", "case only":
		return "touch prog; "
	}
	return ""
}

// TestStagedQuestion answers the question at the end of a staged command on a terminal.
func TestStagedQuestion(t *testing.T) {
	const question = "[k]eep: "
	eachUser(t, func(t *testing.T, u testuser.User) {
		for _, tc := range []struct {
			name, argv   string
			answers      []string
			says         string
			code         int
			applied, bad bool
		}{
			{"apply", "echo new > new", []string{"l\n", "a\n"}, "1 changes applied", 0, true, false},
			{"discard", "echo new > new", []string{"what\n", "d\n"}, "", 0, false, false},
			{"keep", "echo new > new", []string{"k\n"}, "kept: nothing in the real folder changed", 0, false, false},
			{"end of input", "echo new > new", []string{"\x04"}, "kept: nothing", 0, false, false},
			{"interrupt", "echo new > new", []string{"\x03"}, "kept: nothing", 0, false, false},
			{"exit code", "echo new > new; exit 3", []string{"a\n"}, "1 changes applied", 3, true, false},
			{"strange name", "echo new > new; printf x > \"$(printf 'a\\033[2Jb')\"", []string{"a\n"}, "2 changes applied", 0, true, true},
		} {
			t.Run(tc.name, func(t *testing.T) {
				w := emptyWorld(t, u)
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				cmd := w.command(ctx, "exec", "--staged", "--", "sh", "-c", tc.argv)
				master, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 33, Cols: 199})
				if err != nil {
					t.Fatal(err)
				}
				defer master.Close()
				s := &screen{master: master, seen: make(chan struct{}, 1)}
				var reading sync.WaitGroup
				reading.Go(s.read)
				for _, answer := range tc.answers {
					if !s.wait(ctx, question) {
						t.Fatalf("no question came: %q", s.text())
					}
					if _, err := io.WriteString(master, answer); err != nil {
						t.Fatal(err)
					}
				}
				cmd.Wait()
				reading.Wait()
				if code := cmd.ProcessState.ExitCode(); code != tc.code || !strings.Contains(s.text(), tc.says) {
					t.Errorf("ended with %d, want %d and %q: %q", code, tc.code, tc.says, s.text())
				}
				if tc.bad && strings.Contains(s.text(), "\x1b[2J") {
					t.Errorf("LEAK: a name controls the terminal: %q", s.text())
				}
				if _, err := os.Lstat(filepath.Join(w.work, "new")); (err == nil) != tc.applied {
					t.Errorf("applied %v, want %v: %q", err == nil, tc.applied, s.text())
				}
			})
		}
	})
}
