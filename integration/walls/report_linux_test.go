package walls

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"coworker/integration/house/testuser"
)

// TestReportPlace writes the report into the workspace, where the command may put something else in its place: the
// report is written outside the wall, with the rights of the person.
func TestReportPlace(t *testing.T) {
	eachUser(t, func(t *testing.T, u testuser.User) {
		for _, tt := range []struct{ name, run string }{
			{"link", "rm -f out/report.json; ln -s $OUT/file out/report.json"},
			{"folder-link", "mv out moved; ln -s $OUT out"},
			{"hard-link", "ln -f main.txt out/report.json"},
			{"fifo", "mkfifo out/report.json"},
			{"folder", "mkdir -p out/report.json/a"},
			{"gone", "rm -r out"},
			{"into-git", "mv out moved; ln -s .git/hooks out"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				w := newWorld(t, u)
				if e := w.onHost(t, "mkdir out"); e.code != 0 {
					t.Fatal(e.err)
				}
				outside, hooks := take(t, w.outside), take(t, filepath.Join(w.work, ".git/hooks"))
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				cmd := w.command(ctx, "exec", "-w", "--report", "out/report.json", "--", "sh", "-c", strings.ReplaceAll(tt.run, "$OUT", w.outside))
				e := w.finish(t, nil, cmd)
				if ctx.Err() != nil {
					t.Errorf("coworker hangs: %s", e.err)
				}
				if now := take(t, w.outside); len(outside.changed(now)) > 0 {
					t.Errorf("LEAK: changed outside:\n%s", outside.explain(now))
				}
				if now := take(t, filepath.Join(w.work, ".git/hooks")); len(hooks.changed(now)) > 0 {
					t.Errorf("LEAK: changed in .git/hooks:\n%s", hooks.explain(now))
				}
				if data, err := os.ReadFile(filepath.Join(w.work, "main.txt")); err != nil || string(data) != "ordinary\n" {
					t.Errorf("main.txt holds %q, %v", data, err)
				}
			})
		}
	})
}

// TestStrangeFiles leaves what makes a careless reader hang or fill its memory; the next session must start.
func TestStrangeFiles(t *testing.T) {
	eachUser(t, func(t *testing.T, u testuser.User) {
		w := emptyWorld(t, u)
		e := w.exec(t, nil, "bash", "-c", `mkfifo a.pem .netrc b.key c.env; ln -s /dev/zero d.pem; ln -s /proc/self/fd/0 e.pem; truncate -s 1G f.pem; mkdir -p g/HEAD h.pem
mkfifo .gitmodules .gitignore; mkdir r && cd r && mkfifo HEAD && mkdir objects refs && mkfifo config && cd .. && mkfifo .env && ln -s . loop && echo made`)
		if !strings.HasSuffix(e.out, "made\n") {
			t.Errorf("ended with %d: %s", e.code, e.err)
		}
		if e := w.exec(t, nil, "echo", "fine"); e.out != "fine\n" || e.took > 20*time.Second {
			t.Errorf("the next session ended with %d after %v: %s", e.code, e.took, e.err)
		}
	})
}

// TestManyNames plants so many names that queues overflow.
func TestManyNames(t *testing.T) {
	eachUser(t, func(t *testing.T, u testuser.User) {
		w := emptyWorld(t, u)
		e := w.exec(t, nil, "python3", "-c", `
import os
n = 2000
for i in range(n): os.makedirs('o/%d/%d' % (i % 100, i))
for i in range(40000): open('o/f%d' % i, 'w').close()
for i in range(0, n, 50): open('o/%d/%d/.mcp.json' % (i % 100, i), 'w').write('evil')
os.makedirs('o/a\nb/\udcff\udcfe'); open('o/a\nb/\udcff\udcfe/.envrc', 'w').write('evil')
os.rename('o', 'p')`)
		if e.code != 0 {
			t.Fatalf("ended with %d: %.2000s", e.code, e.err)
		}
		left := 0
		err := filepath.WalkDir(w.work, func(path string, d os.DirEntry, err error) error {
			if err == nil && (d.Name() == ".mcp.json" || d.Name() == ".envrc") {
				left++
			}
			return err
		})
		if err != nil || left != 0 || len(e.report.Held) != 41 {
			t.Errorf("LEAK: %d names are left and %d held, want 0 and 41 (%v)", left, len(e.report.Held), err)
		}
	})
}
