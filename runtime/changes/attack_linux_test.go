package changes

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"coworker/enforce"
	"coworker/platform/workfs"
)

func (b *bench) verdicts() map[string]Change {
	b.t.Helper()
	set, err := b.st.Changes(b.t.Context())
	must(b.t, err)
	out := map[string]Change{}
	for _, c := range set.Changes {
		if have, ok := out[c.Rel]; !ok || have.Verdict == Clean {
			out[c.Rel] = c
		}
	}
	return out
}

// TestVerdicts is the table of what apply does with one change.
func TestVerdicts(t *testing.T) {
	const key = "-----BEGIN RSA PRIVATE KEY-----\n"
	for _, tt := range []struct {
		name    string
		host    map[string]string
		upper   map[string]string
		gone    []string
		since   map[string]string // written on the host after the session began
		path    string
		want    Verdict
		kind    Kind
		content string // of path after apply with every conflict left; "-" if it is not there
	}{
		{"added", nil, map[string]string{"a": "x"}, nil, nil, "a", Clean, Added, "x"},
		{"modified", map[string]string{"a": "1"}, map[string]string{"a": "x"}, nil, nil, "a", Clean, Modified, "x"},
		{"deleted", map[string]string{"a": "1"}, nil, []string{"a"}, nil, "a", Clean, Deleted, "-"},
		{"edited since", map[string]string{"a": "1"}, map[string]string{"a": "x"}, nil, map[string]string{"a": "mine"}, "a", Conflict, Modified, "mine"},
		{"made since", nil, map[string]string{"a": "x"}, nil, map[string]string{"a": "mine"}, "a", Conflict, Modified, "mine"},
		{"deleted but edited", map[string]string{"a": "1"}, nil, []string{"a"}, map[string]string{"a": "mine"}, "a", Conflict, Deleted, "mine"},
		{"new secret by name", nil, map[string]string{".env": "A=1"}, nil, nil, ".env", Held, Added, "-"},
		{"new secret by content", nil, map[string]string{"x.pem": key}, nil, nil, "x.pem", Held, Added, "-"},
		{"certificate", nil, map[string]string{"x.pem": "-----BEGIN CERTIFICATE-----"}, nil, nil, "x.pem", Clean, Added, "-----BEGIN CERTIFICATE-----"},
		{"secret replaced", map[string]string{".env": "A=1"}, map[string]string{".env": "B"}, nil, nil, ".env", Held, Modified, "A=1"},
		{"secret deleted", map[string]string{".env": "A=1"}, nil, []string{".env"}, nil, ".env", LeftOut, Deleted, "A=1"},
		{"hook new", map[string]string{".git/HEAD": "r"}, map[string]string{".git/hooks/pre-commit": "evil"}, nil, nil, ".git/hooks/pre-commit", Held, Added, "-"},
		{"hook sample new", map[string]string{".git/HEAD": "r"}, map[string]string{".git/hooks/x.sample": "s"}, nil, nil, ".git/hooks/x.sample", Clean, Added, "s"},
		{"hook deleted", map[string]string{".git/hooks/h": "1"}, nil, []string{".git/hooks/h"}, nil, ".git/hooks/h", LeftOut, Deleted, "1"},
		{"hooks folder deleted", map[string]string{".git/hooks/h": "1"}, nil, []string{".git/hooks"}, nil, ".git/hooks/h", LeftOut, Deleted, "1"},
		{"config deleted", map[string]string{".git/config": "[core]"}, nil, []string{".git/config"}, nil, ".git/config", LeftOut, Deleted, "[core]"},
		{"config inert", map[string]string{".git/config": "[core]\n\tbare = false\n"}, map[string]string{".git/config": "[core]\n\tbare = false\n[user]\n\tname = A\n"}, nil, nil, ".git/config", Clean, Modified, "[core]\n\tbare = false\n[user]\n\tname = A\n"},
		{"config executes", map[string]string{".git/config": "[core]\n\tbare = false\n"}, map[string]string{".git/config": "[core]\n\tfsmonitor = evil\n\tbare = false\n"}, nil, nil, ".git/config", Held, Modified, "[core]\n\tbare = false\n"},
		{"config broken", map[string]string{".git/config": "[core]"}, map[string]string{".git/config": "[core"}, nil, nil, ".git/config", Held, Modified, "[core]"},
		{"protected folder made", nil, map[string]string{".claude/settings.json": "{}"}, nil, nil, ".claude", Held, Made, "-"},
		{"protected folder written", map[string]string{".claude/a": "1"}, map[string]string{".claude/b": "2"}, nil, nil, ".claude/b", Held, Added, "-"},
		{"other spelling", nil, map[string]string{".ClAuDe/x": "1"}, nil, nil, ".ClAuDe", Held, Made, "-"},
		{"gitfile out of the tree", nil, map[string]string{"sub/.git": "gitdir: /elsewhere"}, nil, nil, "sub/.git", Held, Added, "-"},
		{"todo that executes", map[string]string{".git/HEAD": "r"}, map[string]string{".git/rebase-merge/git-rebase-todo": "exec evil\n"}, nil, nil, ".git/rebase-merge/git-rebase-todo", Held, Added, "-"},
		{"todo that picks", map[string]string{".git/HEAD": "r"}, map[string]string{".git/rebase-merge/git-rebase-todo": "pick 12345 x\n"}, nil, nil, ".git/rebase-merge/git-rebase-todo", Clean, Added, "pick 12345 x\n"},
		{"bare repository with a hook", nil, map[string]string{"r/HEAD": "ref", "r/objects/x": "1", "r/refs/x": "1", "r/hooks/post-update": "evil"}, nil, nil, "r/hooks/post-update", Held, Added, "-"},
		{
			"folder that becomes a repository", map[string]string{"r/config": "[core]\n\tfsmonitor = evil\n"},
			map[string]string{"r/HEAD": "ref", "r/objects/x": "1", "r/refs/x": "1"}, nil, nil, "r/HEAD", Held, Added, "-",
		},
		{"repository completed by a kept name", map[string]string{"r/HEAD": "ref"}, map[string]string{"r/objects/x": "1", "r/refs/x": "1", "r/config": "[core]\n\tfsmonitor = evil\n"}, []string{"r/HEAD"}, map[string]string{"r/HEAD": "mine"}, "r/config", Held, Added, "\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, t.TempDir(), func(host string) {
				for rel, text := range tt.host {
					write(t, host, rel, text)
				}
			})
			for rel, text := range tt.upper {
				b.put(rel, text)
			}
			for _, rel := range tt.gone {
				b.whiteout(rel)
			}
			for rel, text := range tt.since {
				write(t, b.host, rel, text)
			}
			got, ok := b.verdicts()[tt.path]
			if !ok || got.Verdict != tt.want || got.Kind != tt.kind {
				t.Errorf("got %v %q %q (%s), want %q %q", ok, got.Verdict, got.Kind, got.Reason, tt.want, tt.kind)
			}
			b.apply(Options{})
			_, err := os.Lstat(filepath.Join(b.host, tt.path))
			switch now := read(t, filepath.Join(b.host, tt.path)); {
			case tt.content == "-" && err == nil:
				t.Errorf("%s is there", tt.path)
			case tt.content == "\n": // inert rest of a configuration
				if strings.Contains(now, "evil") {
					t.Errorf("applied: %q", now)
				}
			case tt.content != "-" && now != tt.content:
				t.Errorf("holds %q, want %q", now, tt.content)
			}
		})
	}
}

// TestHostileUpper: nothing but files, folders and links leaves the upper folder, and nothing with another user's rights.
func TestHostileUpper(t *testing.T) {
	b := newBench(t, t.TempDir(), func(host string) { write(t, host, "setuid", "s"); write(t, host, "nul\n", "1") })
	t.Cleanup(func() { clean(b.host, "blind") })
	outside := filepath.Join(t.TempDir(), "victim")
	must(t, os.WriteFile(outside, []byte("keep"), 0o600))
	must(t,
		syscall.Mkfifo(b.upper("fifo"), 0o644),
		os.Symlink(outside, b.upper("link")),
		os.Symlink(filepath.Dir(outside), b.upper("folderlink")),
	)
	b.put("setuid", "s")
	b.put("tool", "t")
	b.put("\xff\xfe", "bytes")
	b.put("nul\n", "newline")
	b.put("dark", "dark")
	must(t, os.Chmod(b.upper("setuid"), 0o755|fs.ModeSetuid), os.Chmod(b.upper("tool"), 0o755|fs.ModeSetgid), os.Chmod(b.upper("dark"), 0))
	must(t, os.Mkdir(b.upper("blind"), 0o755), os.WriteFile(b.upper("blind/x"), []byte("x"), 0o644), os.Chmod(b.upper("blind"), 0o300))
	must(t, syscall.Setxattr(b.upper("tool"), "user.big", bytes.Repeat([]byte("x"), 3000), 0))
	must(t, syscall.Setxattr(b.upper("tool"), "user.overlay.origin", []byte("secret"), 0))
	if os.Geteuid() == 0 {
		must(t, syscall.Mknod(b.upper("disk"), syscall.S_IFBLK|0o666, 8<<8))
		must(t, syscall.Setxattr(b.upper("tool"), "security.evil", []byte("1"), 0))
	}
	res := b.apply(Options{})
	left := map[string]bool{}
	for _, c := range res.LeftOut {
		left[c.Rel] = true
	}
	if !left["fifo"] || os.Geteuid() == 0 && !left["disk"] {
		t.Errorf("left out: %v", left)
	}
	for rel, want := range map[string]string{"setuid": "s", "tool": "t", "\xff\xfe": "bytes", "nul\n": "newline", "blind/x": "x"} {
		if got := read(t, filepath.Join(b.host, rel)); got != want {
			t.Errorf("%q holds %q, want %q", rel, got, want)
		}
	}
	for _, rel := range []string{"setuid", "tool"} {
		info, err := os.Lstat(filepath.Join(b.host, rel))
		must(t, err)
		if info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 || info.Mode().Perm() != 0o755 {
			t.Errorf("%s has mode %v", rel, info.Mode())
		}
	}
	if info, err := os.Lstat(filepath.Join(b.host, "dark")); err != nil || info.Mode().Perm() != 0 || info.Size() != 4 {
		t.Errorf("%v %v", info, err)
	}
	if target, err := os.Readlink(filepath.Join(b.host, "link")); err != nil || target != outside {
		t.Errorf("%q %v", target, err)
	}
	list := make([]byte, 1000)
	n, err := syscall.Listxattr(filepath.Join(b.host, "tool"), list)
	if err != nil || strings.Contains(string(list[:n]), "overlay") || strings.Contains(string(list[:n]), "evil") || !strings.Contains(string(list[:n]), "user.big") {
		t.Errorf("%q %v", list[:max(n, 0)], err)
	}
	if read(t, outside) != "keep" {
		t.Error("a link was followed")
	}
}

// TestHostSwaps: a folder of the host that became a link is not followed, at whatever step it happens.
func TestHostSwaps(t *testing.T) {
	for point := range 8 {
		b := newBench(t, t.TempDir(), func(host string) { write(t, host, "d/f", "base"); write(t, host, "d/g", "base") })
		outside := t.TempDir()
		write(t, outside, "f", "theirs")
		write(t, outside, "g", "theirs")
		write(t, outside, "new", "theirs")
		b.put("d/f", "session")
		b.put("d/new", "session")
		b.whiteout("d/g")
		n := point
		b.st.trip = func(string) {
			if n--; n == -1 {
				must(t, os.Rename(filepath.Join(b.host, "d"), filepath.Join(b.host, "away")), os.Symlink(outside, filepath.Join(b.host, "d")))
			}
		}
		_, err := b.st.Apply(t.Context(), Options{Hold: b.hold})
		b.st.trip = nil
		if err != nil {
			t.Errorf("point %d: %v", point, err)
		}
		for _, rel := range []string{"f", "g", "new"} {
			if got := read(t, filepath.Join(outside, rel)); got != "theirs" {
				t.Errorf("point %d: %s outside holds %q", point, rel, got)
			}
		}
		if _, err := b.st.Undo(t.Context(), Options{}); err != nil && !errors.Is(err, ErrNothing) {
			t.Errorf("point %d: undo: %v", point, err)
		}
		for _, rel := range []string{"f", "g", "new"} {
			if got := read(t, filepath.Join(outside, rel)); got != "theirs" {
				t.Errorf("point %d: after undo %s outside holds %q", point, rel, got)
			}
		}
	}
}

// TestSavedMeanwhile: what the person saves at any moment of an apply, or of an undo, is not lost.
func TestSavedMeanwhile(t *testing.T) {
	for point := range 10 {
		b := newBench(t, t.TempDir(), func(host string) { write(t, host, "f", "base"); write(t, host, "g", "base") })
		b.put("f", "session")
		b.whiteout("g")
		save := func() {
			for _, rel := range []string{"f", "g"} { // as editors do: a new file over the old name
				write(t, b.host, ".tmp", "person")
				must(t, os.Rename(filepath.Join(b.host, ".tmp"), filepath.Join(b.host, rel)))
			}
		}
		n := point
		b.st.trip = func(string) {
			if n--; n == -1 {
				save()
			}
		}
		b.apply(Options{})
		if n < 0 {
			saved(t, b, point, "apply")
		}
		_, err := b.st.Undo(t.Context(), Options{})
		b.st.trip = nil
		if err != nil && !errors.Is(err, ErrNothing) {
			t.Fatal(err)
		}
		if n < 0 {
			saved(t, b, point, "undo")
		}
	}
}

func saved(t *testing.T, b *bench, point int, when string) {
	t.Helper()
	for _, rel := range []string{"f", "g"} {
		if got := read(t, filepath.Join(b.host, rel)); got != "person" {
			t.Errorf("point %d: after %s %s holds %q", point, when, rel, got)
		}
	}
}

// TestDeepAndMany: a hostile tree is bounded, an honest large one is quick.
func TestDeepAndMany(t *testing.T) {
	b := newBench(t, t.TempDir(), func(string) {})
	deep, err := os.OpenRoot(b.upper(""))
	must(t, err)
	for range 600 {
		must(t, deep.Mkdir("d", 0o755))
		next, err := deep.OpenRoot("d")
		must(t, err, deep.Close())
		deep = next
	}
	must(t, deep.Close())
	many := 4000
	must(t, os.Mkdir(b.upper("many"), 0o755))
	for i := range many {
		must(t, os.WriteFile(fmt.Sprintf("%s/%d", b.upper("many"), i), nil, 0o644))
	}
	start := time.Now()
	res := b.apply(Options{})
	t.Logf("%d files in %v", many, time.Since(start))
	if len(res.LeftOut) != 1 || !strings.Contains(res.LeftOut[0].Reason, "deeper") || len(res.Done) < many {
		t.Errorf("%d done, %d left out", len(res.Done), len(res.LeftOut))
	}
	start = time.Now()
	b.undo()
	t.Logf("taken back in %v", time.Since(start))
	if list, err := os.ReadDir(b.host); err != nil || len(list) != 0 {
		t.Errorf("%v %v", list, err)
	}
}

// TestLargeFile: a large file that did not change is not copied, and a sparse one stays sparse.
func TestLargeFile(t *testing.T) {
	const size = 10 << 30
	sparse := func(path string) {
		f, err := os.Create(path)
		must(t, err)
		_, err = f.WriteAt([]byte("end"), size-3)
		must(t, err, f.Close())
	}
	b := newBench(t, t.TempDir(), func(host string) { sparse(filepath.Join(host, "big")); write(t, host, "x", "1") })
	sparse(b.upper("new"))
	start := time.Now()
	sparse(b.upper("big")) // as a chmod inside copies it up
	must(t, os.Chmod(b.upper("big"), 0o600))
	before, err := os.Stat(filepath.Join(b.host, "big"))
	must(t, err, os.Chtimes(b.upper("big"), before.ModTime(), before.ModTime()))
	b.apply(Options{})
	after, err := os.Stat(filepath.Join(b.host, "big"))
	must(t, err)
	if !os.SameFile(before, after) || after.Mode().Perm() != 0o600 {
		t.Errorf("copied, or mode %v", after.Mode())
	}
	made, err := os.Stat(filepath.Join(b.host, "new"))
	must(t, err)
	if made.Size() != size || made.Sys().(*syscall.Stat_t).Blocks > 1000 || time.Since(start) > time.Minute {
		t.Errorf("%d bytes in %d blocks, %v", made.Size(), made.Sys().(*syscall.Stat_t).Blocks, time.Since(start))
	}
}

// TestBaselineSpeed: what is paid before every session.
func TestBaselineSpeed(t *testing.T) {
	const files = 5000
	dir := t.TempDir()
	for i := range files {
		if i%100 == 0 {
			must(t, os.Mkdir(fmt.Sprintf("%s/%d", dir, i/100), 0o755))
		}
		must(t, os.WriteFile(fmt.Sprintf("%s/%d/%d", dir, i/100, i), nil, 0o644))
	}
	store, err := OpenStore(t.TempDir())
	must(t, err)
	st, err := store.Create(t.Context(), Request{Session: "s", Workspace: dir, UID: os.Geteuid(), GID: os.Getegid(), Trees: []enforce.Tree{{Path: dir, Writable: true}}})
	must(t, err)
	defer st.Close()
	root, err := workfs.OpenRoot(dir)
	must(t, err)
	defer root.Close()
	time.Sleep(2 * granule) // a tree that nobody writes at this moment
	start := time.Now()
	must(t, st.Baseline(t.Context(), 0, root))
	took := time.Since(start)
	info, err := os.Stat(filepath.Join(st.Folder(0), baseName))
	must(t, err)
	t.Logf("%d files: %v, %d bytes", files, took, info.Size())
	start = time.Now()
	set, err := st.Changes(t.Context())
	must(t, err)
	t.Logf("changes of nothing: %v", time.Since(start))
	if len(set.Changes) != 0 || took > 5*time.Second {
		t.Errorf("%d changes, %v", len(set.Changes), took)
	}
}
