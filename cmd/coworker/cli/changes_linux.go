package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"coworker/platform/config"
	"coworker/platform/workfs"
	"coworker/runtime/changes"
	"coworker/runtime/wallspec"
)

// openStaged opens the folders of staged sessions: the caller's own, and as root that of sessions for other users, if there
// is one.
func (e *environment) openStaged() ([]*changes.Store, error) {
	d, err := e.dirs()
	if err != nil {
		return nil, err
	}
	if err := d.Make(); err != nil {
		return nil, err
	}
	own := wallspec.StageStore(wallspec.Host{Dirs: d, UID: os.Geteuid()}, os.Geteuid())
	folders := []string{own}
	if others := wallspec.StageStore(wallspec.Host{Dirs: d, UID: os.Geteuid()}, -1); others != own {
		if _, err := os.Lstat(others); err == nil {
			folders = append(folders, others)
		}
	}
	var stores []*changes.Store
	for _, dir := range folders {
		store, err := changes.OpenStore(dir)
		if err != nil {
			return nil, err
		}
		stores = append(stores, store)
	}
	return stores, nil
}

// openStage opens the session that was named, else the newest of the current folder, else the newest.
func (e *environment) openStage(session string) (*changes.Stage, error) {
	stores, err := e.openStaged()
	if err != nil {
		return nil, err
	}
	for i, store := range stores {
		name := session
		if name == "" {
			if name, err = newestHere(store); err != nil {
				return nil, err
			}
		}
		st, err := store.Open(name)
		if last := i == len(stores)-1; err == nil || last || !errors.Is(err, changes.ErrNoStage) {
			return st, changesProblem(err)
		}
	}
	return nil, errors.New("bug: no folder of staged sessions")
}

func newestHere(store *changes.Store) (string, error) {
	list, err := store.List()
	if err != nil {
		return "", err
	}
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for _, s := range slices.Backward(list) {
		if s.Problem == "" && (s.Workspace == here || strings.HasPrefix(here, strings.TrimSuffix(s.Workspace, "/")+"/")) {
			return s.Session, nil
		}
	}
	return "", nil
}

// changesProblem turns the answers that a person can act on into a plain no.
func changesProblem(err error) error {
	switch {
	case errors.Is(err, changes.ErrBusy):
		return &failedError{text: err.Error(), hint: "wait for the session to end; coworker changes list shows which one runs"}
	case errors.Is(err, changes.ErrNoStage):
		return &failedError{text: err.Error(), hint: "coworker changes list shows the staged sessions"}
	case errors.Is(err, changes.ErrNothing):
		return &failedError{text: err.Error(), hint: "coworker changes apply applies what a session changed"}
	case errors.Is(err, changes.ErrMoved):
		return &failedError{text: err.Error(), hint: "put the folder back at its place, or coworker changes discard"}
	case errors.Is(err, changes.ErrTorn):
		return &failedError{text: err.Error(), hint: "nothing was changed; the session's files lie in the folder changes of the state folder"}
	}
	return err
}

// withChanges opens a stage and its changes for as long as f runs.
func (e *environment) withChanges(ctx context.Context, f changesFlags, do func(*changes.Stage, *changes.Set) error) error {
	st, err := e.openStage(f.session)
	if err != nil {
		return err
	}
	set, err := st.Changes(ctx)
	if err != nil {
		return errors.Join(changesProblem(err), st.Close())
	}
	set.Changes = slices.DeleteFunc(set.Changes, func(c changes.Change) bool { return !below(f.path, c) })
	return errors.Join(do(st, set), st.Close())
}

// below says whether a change is at or below a path, which is absolute or relative to the tree.
func below(path string, c changes.Change) bool {
	if path == "" {
		return true
	}
	if rel, err := filepath.Rel(c.Root, path); filepath.IsAbs(path) && err == nil {
		path = rel
	}
	path = filepath.Clean(path)
	return path == "." || c.Rel == path || strings.HasPrefix(c.Rel, path+"/")
}

func changesList(e *environment, c *cli.Context, f changesFlags) error {
	if f.session != "" || f.path != "" {
		return e.withChanges(c.Context, f, func(_ *changes.Stage, set *changes.Set) error {
			if f.json {
				return e.printJSON(setJSON(set))
			}
			return e.printChanges(set)
		})
	}
	stores, err := e.openStaged()
	if err != nil {
		return err
	}
	all := []changes.Summary{}
	t := table{}
	t.add("SESSION", "BEGAN", "FOLDER", "CHANGES", "APPLIED", "STATE")
	for _, store := range stores {
		if err := e.tidy(c.Context, store, f.keep); err != nil {
			return err
		}
		list, err := store.List()
		if err != nil {
			return err
		}
		all = append(all, list...)
		if !f.json {
			addStages(c.Context, &t, store, list)
		}
	}
	switch {
	case f.json:
		return e.printJSON(all)
	case len(all) == 0:
		_, err := fmt.Fprintln(e.out, "no session has staged changes")
		return resultError(err)
	}
	t.write(e.out)
	return nil
}

// tidy removes what nobody can want any more. A stage that cannot be looked at is a warning.
func (e *environment) tidy(ctx context.Context, store *changes.Store, keep string) error {
	age := config.Duration(changes.DefaultKeep)
	if keep != "" {
		var err error
		if age, err = config.ParseDuration(keep); err != nil {
			return &usageError{text: "--keep: " + err.Error(), hint: "a time like 14d or 12h"}
		}
	}
	removed, err := store.Tidy(ctx, e.now(), time.Duration(age))
	if err != nil {
		e.note("warning", "an old staged session cannot be removed: "+err.Error(), "")
	}
	for _, name := range removed {
		e.note("note", "removed what session "+name+" left to undo", "")
	}
	return nil
}

func addStages(ctx context.Context, t *table, store *changes.Store, list []changes.Summary) {
	for _, s := range list {
		what, state := "?", "ended"
		switch {
		case s.Problem != "":
			state = s.Problem
		case s.Live:
			state = "runs"
		default:
			what, state = countChanges(ctx, store, s.Session)
		}
		t.add(visible(s.Session), s.Created.Local().Format(time.DateTime), visible(s.Workspace), what, strconv.Itoa(s.Applies), visible(state))
	}
}

func countChanges(ctx context.Context, store *changes.Store, session string) (what, state string) {
	st, err := store.Open(session)
	if err != nil {
		return "?", err.Error()
	}
	defer st.Close()
	set, err := st.Changes(ctx)
	if err != nil {
		return "?", err.Error()
	}
	state = "ended"
	if n := set.Count(changes.Conflict); n > 0 {
		state = fmt.Sprintf("ended, %d conflicts", n)
	}
	return strconv.Itoa(len(set.Changes)), state
}

// setJSON is how changes look in --json output.
func setJSON(set *changes.Set) map[string]any {
	list := []any{}
	for _, c := range set.Changes {
		list = append(list, changeJSON(c))
	}
	return map[string]any{"session": set.Session, "workspace": set.Workspace, "changes": list, "same": set.Same}
}

func changeJSON(c changes.Change) map[string]any {
	m := map[string]any{
		"tree": c.Root, "path": strings.ToValidUTF8(c.Rel, "\uFFFD"), "kind": c.Kind, "verdict": c.Verdict, "type": c.Type,
		"old_size": c.OldSize, "new_size": c.NewSize,
	}
	for name, value := range map[string]string{"reason": c.Reason, "rule": c.Rule, "target": c.Target, "note": c.Note} {
		if value != "" {
			m[name] = value
		}
	}
	if c.RawRel != nil {
		m["path_bytes"] = c.RawRel
	}
	if c.OldMode != c.NewMode {
		m["old_mode"], m["new_mode"] = c.OldMode.String(), c.NewMode.String()
	}
	return m
}

func (e *environment) printChanges(set *changes.Set) error {
	if len(set.Changes) == 0 {
		_, err := fmt.Fprintln(e.out, "nothing to apply")
		return resultError(err)
	}
	t := table{}
	t.add("CHANGE", "WHAT HAPPENS", "PATH", "WHY")
	for _, c := range set.Changes {
		why := c.Reason
		if c.Note != "" {
			why = strings.TrimPrefix(why+"; "+c.Note, "; ")
		}
		t.add(string(c.Kind), string(c.Verdict), visible(shownPath(c)), visible(why))
	}
	t.write(e.out)
	_, err := fmt.Fprintf(e.out, "\n%s\n", summaryLine(set))
	return resultError(err)
}

// shownPath marks folders.
func shownPath(c changes.Change) string {
	if c.Type == workfs.Directory.String() {
		return c.Rel + "/"
	}
	return c.Rel
}

func summaryLine(set *changes.Set) string {
	text := fmt.Sprintf("%d to apply", set.Count(changes.Clean))
	for _, v := range [...]struct {
		verdict changes.Verdict
		words   string
	}{{changes.Conflict, "conflicts"}, {changes.Held, "to be held"}, {changes.LeftOut, "left out"}} {
		if n := set.Count(v.verdict); n > 0 {
			text += fmt.Sprintf(", %d %s", n, v.words)
		}
	}
	return text
}
