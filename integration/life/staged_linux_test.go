package life

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"coworker/enforce"
	"coworker/integration/house/testuser"
	"coworker/integration/life/plan"
	"coworker/runtime/changes"
	"coworker/runtime/session"
)

func staged(o *session.Options) { o.Staged = true }

// openedStaged opens a staged session, whose changes are discarded at the end.
func openedStaged(t *testing.T, p plan.Place) *session.Session {
	t.Helper()
	var s *session.Session
	t.Cleanup(func() { // after the session is closed
		if s == nil || s.Staged() == nil {
			return
		}
		if err := errors.Join(s.Staged().Discard(context.Background()), s.Staged().Close()); err != nil {
			t.Errorf("discard: %v", err)
		}
	})
	s = opened(t, p, staged)
	return s
}

// place is newPlace with files in the workspace.
func stagedPlace(t *testing.T, files map[string]string) plan.Place {
	t.Helper()
	p := newPlace(t)
	for name, text := range files {
		put(t, filepath.Join(p.Workspace, name), text)
	}
	return p
}

func put(t *testing.T, file, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// want compares what a script says.
func want(t *testing.T, s *session.Session, script, text string) {
	t.Helper()
	if out, _ := sh(t, s, script); strings.TrimSpace(out) != text {
		t.Errorf("%s: said %q, want %q", script, out, text)
	}
}

// TestStagedWallsAreMissed leaves out walls of a staged session. Without fs.protect its trees are mounted live, and the
// attempts of the battery reach the scratch repository outside.
func TestStagedWallsAreMissed(t *testing.T) {
	for _, u := range testuser.All(t) {
		t.Run(u.String(), func(t *testing.T) {
			if all := runFault(t, u, job{Place: plan.Place{Staged: true}}); len(all) != 2 || all[0].Level != "enforced" {
				t.Fatalf("with every wall: %+v", all)
			}
			for _, w := range []enforce.Wall{enforce.FSProtect, enforce.FSHide} {
				all := runFault(t, u, job{Place: plan.Place{Staged: true}, Fault: w})
				if len(all) != 1 || all[0].Event != "refused" {
					t.Errorf("without %s: %+v", w, all)
					continue
				}
				text := strings.Join(all[0].Missing, "\n")
				for _, name := range wantMissed[w] {
					if !strings.Contains(text, "probe "+name+" wanted stopped, got leaked") {
						t.Errorf("without %s: probe %s is not among %s", w, name, text)
					}
				}
			}
		})
	}
}

var wantMissed = map[enforce.Wall][]string{
	enforce.FSProtect: {
		"fs.protect/outside-staged", "fs.protect/absent-vscode", "fs.protect/absent-git-commondir", "fs.protect/move-parent",
		"fs.protect/link", "fs.protect/rename-over-config", "fs.protect/hook-link", "fs.protect/write", "fs.protect/exchange", "fs.protect/times",
	},
	enforce.FSHide: {"fs.hide/scratch-read", "fs.hide/move-away", "fs.hide/link", "fs.hide/chmod"},
}

// TestStagedSecrets does to secrets on the host what editors and people do, while a staged session has them masked.
func TestStagedSecrets(t *testing.T) {
	everyUser(t, func(t *testing.T) {
		p := stagedPlace(t, map[string]string{".env": "TOKEN=one\n", "sub/.env": "TOKEN=two\n", "sub/code": "code\n", "gone/.env": "TOKEN=three\n"})
		s := openedStaged(t, p)
		hidden := "cat: FILE: Permission denied"
		for _, name := range []string{".env", "sub/.env", "gone/.env"} {
			want(t, s, "cat "+name, strings.ReplaceAll(hidden, "FILE", name))
		}
		replace(t, p, ".env", "TOKEN=replaced\n")
		put(t, filepath.Join(p.Workspace, "sub/.env"), "TOKEN=overwritten\n")
		if err := os.RemoveAll(filepath.Join(p.Workspace, "gone")); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{".env", "sub/.env"} {
			want(t, s, "cat "+name, strings.ReplaceAll(hidden, "FILE", name))
		}
		if out, _ := sh(t, s, "cat gone/.env"); strings.Contains(out, "TOKEN") {
			t.Errorf("a secret that was removed outside is read: %q", out)
		}
		// What appears is masked at the end of the next call at the latest, as in a live session.
		put(t, filepath.Join(p.Workspace, "sub/.env.local"), "TOKEN=new\n")
		put(t, filepath.Join(p.Workspace, "made/deep/.env"), "TOKEN=new\n")
		sh(t, s, "true")
		for _, name := range []string{"sub/.env.local", "made/deep/.env"} {
			if out, _ := sh(t, s, "cat "+name); strings.Contains(out, "TOKEN") {
				t.Errorf("%s appeared outside and is read: %q", name, out)
			}
		}
		// The folders around a mask stay where they are, so that the mask does.
		sh(t, s, "mv sub aside; mkdir other; mv -T --exchange other sub; rm -rf sub; rmdir sub")
		for _, name := range []string{"sub/.env", "aside/.env", "other/.env"} {
			if out, _ := sh(t, s, "cat "+name); strings.Contains(out, "TOKEN") {
				t.Errorf("%s is read after renames: %q", name, out)
			}
		}
	})
}

func replace(t *testing.T, p plan.Place, name, text string) {
	t.Helper()
	put(t, filepath.Join(p.Workspace, "new-"+filepath.Base(name)), text)
	if err := os.Rename(filepath.Join(p.Workspace, "new-"+filepath.Base(name)), filepath.Join(p.Workspace, name)); err != nil {
		t.Fatal(err)
	}
}

// TestStagedHostEdits says what a staged session sees of the person's edits while it lives: those of files that it did not
// write itself.
func TestStagedHostEdits(t *testing.T) {
	everyUser(t, func(t *testing.T) {
		p := stagedPlace(t, map[string]string{"a": "one\n", "b": "one\n"})
		s := openedStaged(t, p)
		want(t, s, "echo inside > b; cat a b", "one\ninside")
		put(t, filepath.Join(p.Workspace, "a"), "outside\n")
		put(t, filepath.Join(p.Workspace, "b"), "outside\n")
		put(t, filepath.Join(p.Workspace, "c"), "outside\n")
		want(t, s, "cat a b c", "outside\ninside\noutside")
		if data, err := os.ReadFile(filepath.Join(p.Workspace, "b")); err != nil || string(data) != "outside\n" {
			t.Errorf("b outside holds %q, %v", data, err)
		}
	})
}

// TestStagedKilled kills the supervisor of a staged session with SIGKILL in the middle of its work.
func TestStagedKilled(t *testing.T) {
	everyUser(t, func(t *testing.T) {
		u := testuser.All(t)[0] // whoever runs this process
		p := userPlace(t, u)
		p.Staged = true
		put(t, filepath.Join(p.Workspace, "file"), "before\n")
		if err := u.Own(filepath.Dir(p.Workspace)); err != nil {
			t.Fatal(err)
		}
		var before, after syscall.Stat_t
		if err := syscall.Lstat(filepath.Join(p.Workspace, "file"), &before); err != nil {
			t.Fatal(err)
		}
		script := "echo inside > file; mkdir -p .vscode && echo x > .vscode/tasks.json; touch ready; while :; do echo more >> file; done"
		d := startDriver(t, u, filepath.Join(bin, "driver"), job{Place: p, Argv: []string{"/bin/sh", "-c", script}})
		stage := eventuallyOne(t, filepath.Join(p.State, "changes/*/*/upper/ready"))
		signalSupervisor(syscall.SIGKILL)(d)
		d.wait(t)
		wantNothing(t, p)
		data, err := os.ReadFile(filepath.Join(p.Workspace, "file"))
		if err == nil {
			err = syscall.Lstat(filepath.Join(p.Workspace, "file"), &after)
		}
		after.Atim = before.Atim
		if err != nil || string(data) != "before\n" || after != before {
			t.Errorf("the file outside holds %q, %v; was %+v, is %+v", data, err, before, after)
		}
		if names := listFolder(t, p.Workspace); !slices.Equal(names, []string{"file"}) {
			t.Errorf("the workspace holds %q", names)
		}
		wantReadable(t, p, filepath.Base(filepath.Dir(filepath.Dir(filepath.Dir(stage)))))
	})
}

// wantReadable wants the changes of a killed session.
func wantReadable(t *testing.T, p plan.Place, id string) {
	t.Helper()
	store, err := changes.OpenStore(filepath.Join(p.State, "changes"))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	stage, err := store.Open(id)
	if err != nil {
		t.Fatalf("the stage of a killed session: %v", err)
	}
	defer stage.Close()
	set, err := stage.Changes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]changes.Verdict{}
	for _, c := range set.Changes {
		found[c.Rel] = c.Verdict
	}
	if found["file"] != changes.Clean || found["ready"] != changes.Clean || found[".vscode/tasks.json"] != changes.Held {
		t.Errorf("changes of the killed session: %v", found)
	}
	if err := stage.Discard(t.Context()); err != nil {
		t.Error(err)
	}
}

func eventuallyOne(t *testing.T, pattern string) string {
	t.Helper()
	missing := eventually(func() []string {
		if found, _ := filepath.Glob(pattern); len(found) == 0 {
			return []string{pattern}
		}
		return nil
	})
	if len(missing) > 0 {
		t.Fatalf("%s did not appear", pattern)
	}
	found, _ := filepath.Glob(pattern)
	return found[0]
}

func listFolder(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestStagedRefusals wants a reason and the way out where a workspace cannot be staged, and nothing live instead.
func TestStagedRefusals(t *testing.T) {
	everyUser(t, func(t *testing.T) {
		for name, tc := range map[string]struct {
			change func(*testing.T, plan.Place, *session.Options)
			why    string
		}{
			"bare": {func(t *testing.T, _ plan.Place, o *session.Options) {
				all := session.Backends()
				o.Backend = all[slices.IndexFunc(all, func(b enforce.Backend) bool { return b.Name() == enforce.Bare })]
			}, "the backend bare makes no mounts"},
			"store": {func(_ *testing.T, p plan.Place, o *session.Options) {
				o.StageStore = filepath.Join(p.Workspace, "changes")
			}, "which lies in the workspace"},
			"file": {func(t *testing.T, p plan.Place, o *session.Options) {
				file := filepath.Join(filepath.Dir(p.Workspace), "single")
				put(t, file, "x")
				tree, err := plan.Tree(file, true)
				if err != nil {
					t.Fatal(err)
				}
				tree.File = true
				o.Spec.Trees = append(o.Spec.Trees, tree)
			}, "is a single file"},
			"proc": {func(_ *testing.T, _ plan.Place, o *session.Options) { o.StageStore = "/proc/self/changes" }, ""},
		} {
			t.Run(name, func(t *testing.T) {
				p := newPlace(t)
				s, err := open(t, p, staged, func(o *session.Options) {
					tc.change(t, p, o)
					o.MinLevel = enforce.Partial
				})
				if err == nil {
					s.Close()
					t.Fatal("it started")
				}
				var refused *session.RefusedError
				if !errors.As(err, &refused) || !strings.Contains(err.Error(), tc.why) || tc.why != "" && !strings.Contains(refused.Hint(), "--live") {
					t.Errorf("refused with %v", err)
				}
			})
		}
	})
}

// TestStagedApplyNow applies in the middle of a session, between writes of a process that goes on, and works on.
func TestStagedApplyNow(t *testing.T) {
	everyUser(t, func(t *testing.T) {
		p := stagedPlace(t, map[string]string{"a": "one\n", "gone": "x\n", "edited": "one\n"})
		s := openedStaged(t, p)
		// The writer replaces a pair of files again and again; each is whole at any time.
		sh(t, s, "rm gone; echo two > a; mkdir d; echo new > d/new; echo inside > edited; echo x > .mcp.json")
		sh(t, s, "(while :; do echo whole > w.tmp; mv w.tmp w; sleep 0.01; done) >/dev/null 2>&1 & sleep 0.1")
		put(t, filepath.Join(p.Workspace, "edited"), "outside\n")
		set, err := s.Changes(t.Context())
		if err != nil || set.Count(changes.Conflict) != 1 || set.Count(changes.Held) != 1 {
			t.Fatalf("changes %+v, %v", set, err)
		}
		result, err := s.ApplyNow(t.Context(), func(changes.Change) changes.Resolution { return changes.KeepHost })
		if err != nil {
			t.Fatal(err)
		}
		wantFile(t, p, "a", "two\n")
		wantFile(t, p, "d/new", "new\n")
		wantFile(t, p, "edited", "outside\n")
		wantFile(t, p, "w", "whole\n")
		for _, name := range []string{"gone", ".mcp.json"} {
			if _, err := os.Lstat(filepath.Join(p.Workspace, name)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: %v after %+v", name, err, result)
			}
		}
		// What was applied is not a change any more, and what comes later is.
		want(t, s, "cat a d/new; echo three > a; echo again > d/new; mv d e; echo $(cat e/new)", "two\nnew\nagain")
		if _, err := s.ApplyNow(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		wantFile(t, p, "a", "three\n")
		wantFile(t, p, "e/new", "again\n")
		if _, err := os.Lstat(filepath.Join(p.Workspace, "d")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("d: %v", err)
		}
		want(t, s, "cat a e/new; ls -d e w", "three\nagain\ne\nw")
	})
}

func wantFile(t *testing.T, p plan.Place, name, text string) {
	t.Helper()
	if data, err := os.ReadFile(filepath.Join(p.Workspace, name)); err != nil || string(data) != text {
		t.Errorf("%s outside holds %q, %v, want %q", name, data, err, text)
	}
}

// TestLiveIsNotStaged wants a clear answer about the stage of a live session.
func TestLiveIsNotStaged(t *testing.T) {
	s := opened(t, newPlace(t))
	if s.Staged() != nil {
		t.Error("a live session has a stage")
	}
	if _, err := s.ApplyNow(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "nothing is staged") {
		t.Errorf("apply in a live session: %v", err)
	}
}

// TestStagedOtherGroup: what belongs to a group that the session does not know cannot be copied, and the person is told.
func TestStagedOtherGroup(t *testing.T) {
	if os.Geteuid() != 0 {
		return // only root gives files to other groups
	}
	p := newPlace(t)
	put(t, filepath.Join(p.Workspace, "old"), "old")
	for _, name := range []string{p.Workspace, filepath.Join(p.Workspace, "old")} {
		if err := os.Lchown(name, 0, 4243); err != nil {
			t.Fatal(err)
		}
	}
	var told []string
	s, err := open(t, p, staged, func(o *session.Options) { o.Notify = func(n session.Notice) { told = append(told, n.Text+n.Hint) } })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if r, err := s.Run(t.Context(), session.Command{Argv: []string{"/bin/sh", "-c", "echo new >>old"}}); err != nil || r.Code == 0 {
		t.Errorf("code %d, %v: it can be changed after all, and the note is wrong", r.Code, err)
	}
	if text := strings.Join(told, "\n"); !strings.Contains(text, "group 4243") || !strings.Contains(text, "--live") {
		t.Errorf("told: %q", text)
	}
}
