package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"coworker/platform/filelock"
)

// journal says what protected names stood in a session's trees before it ran anything. The last
// sweep takes away what is new; if the supervisor is killed there is none. The next session in
// the same folder then finds the journal, which nobody holds any more, and says which names are
// new. It does not move them: by then the person may have made them.
type journal struct {
	Session string        `json:"session"`
	Started time.Time     `json:"started"`
	Trees   []journalTree `json:"trees"`
}

// journalTree holds bytes, which JSON carries as base64.
type journalTree struct {
	Path      []byte   `json:"path"`
	Protected [][]byte `json:"protected"`
}

// Bounds of what is read back: the folder is coworker's own, but a full disk leaves half files.
const (
	maxJournals    = 1000
	maxJournalSize = 8 << 20
)

// unfinished marks a journal whose supervisor is about to lock it. One that was killed right then
// leaves a file of no use and no harm behind; it is removed after a while.
const (
	unfinished      = ".new"
	unfinishedLimit = time.Hour
)

// journalLimit is how long a journal waits for somebody to work in its folder again.
const journalLimit = 90 * 24 * time.Hour

// openJournal writes the journal of this session and holds its lock until the session has ended.
func (s *Session) openJournal() error {
	j := journal{Session: s.id, Started: s.options.Now().UTC(), Trees: []journalTree{}}
	for _, t := range s.guard.trees {
		if t.watcher == nil || t.staged {
			continue
		}
		entry := journalTree{Path: []byte(t.tree.Path), Protected: [][]byte{}}
		for _, p := range t.scan.Protected {
			entry.Protected = append(entry.Protected, []byte(p.Rel))
		}
		j.Trees = append(j.Trees, entry)
	}
	if len(j.Trees) == 0 {
		return nil // nothing can be written, so nothing can be left behind
	}
	data, err := json.Marshal(j)
	if err != nil {
		return err
	}
	dir := filepath.Join(s.options.StateDir, "running")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	// Under another name until it is locked and whole: an unlocked one is taken for that of a
	// supervisor that was killed.
	final := filepath.Join(dir, s.id)
	f, err := os.OpenFile(final+unfinished, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if !filelock.Try(f) {
		err = errors.New("another process holds its lock")
	}
	if err == nil {
		_, err = f.Write(data)
	}
	if err == nil {
		err = os.Rename(f.Name(), final)
	}
	if err == nil {
		s.journal = f
		s.journalName = final
		return nil
	}
	return errors.Join(fmt.Errorf("journal %q: %w", f.Name(), err), os.Remove(f.Name()), f.Close())
}

// reportInterrupted tells about sessions in the same trees whose supervisor was killed.
func (s *Session) reportInterrupted(ctx context.Context) error {
	dir := filepath.Join(s.options.StateDir, "running")
	entries, err := os.ReadDir(dir)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("journals: %w", err)
	}
	for _, e := range entries[:min(len(entries), maxJournals)] {
		if strings.HasSuffix(e.Name(), unfinished) {
			s.removeUnfinished(filepath.Join(dir, e.Name()), e)
			continue
		}
		if err := s.readJournal(ctx, filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("journal %q: %w", e.Name(), err)
		}
	}
	return nil
}

// closeJournal ends the journal, after the last sweep. If that one did not come to its end the
// journal stays, and the next session in the folder tells about this one.
func (s *Session) closeJournal() error {
	if s.journal == nil {
		return nil
	}
	var err error
	if s.guard.swept {
		err = os.Remove(s.journalName)
	}
	return errors.Join(err, s.journal.Close())
}

func (s *Session) removeUnfinished(file string, e os.DirEntry) {
	if info, err := e.Info(); err == nil && s.options.Now().Sub(info.ModTime()) > unfinishedLimit {
		os.Remove(file) // another session may have been faster
	}
}

// readJournal looks at one journal. One that is locked belongs to a session that lives.
func (s *Session) readJournal(ctx context.Context, file string) error {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	}
	defer f.Close()
	if !filelock.Try(f) {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(f, maxJournalSize))
	if err != nil {
		return err
	}
	var j journal
	if json.Unmarshal(data, &j) != nil {
		return os.Remove(file) // cut short by the kill or a full disk: nothing had run yet
	}
	mine := false
	for _, old := range j.Trees {
		for _, t := range s.guard.trees {
			if !t.tree.Writable || t.tree.File || t.tree.Path != string(old.Path) {
				continue
			}
			mine = true
			if err := s.compareJournal(ctx, j, old, t); err != nil {
				return err
			}
		}
	}
	if !mine && s.options.Now().Sub(j.Started) < journalLimit {
		return nil // another folder's; told when somebody works there
	}
	return os.Remove(file)
}

func (s *Session) compareJournal(ctx context.Context, j journal, old journalTree, t *guardedTree) error {
	var fresh []string
	for _, p := range t.scan.Protected {
		known := slices.ContainsFunc(old.Protected, func(o []byte) bool { return string(o) == p.Rel })
		if !known {
			fresh = append(fresh, path.Join(t.tree.Path, p.Rel))
		}
	}
	text := fmt.Sprintf("session %s in %q, started %s, was interrupted", j.Session, t.tree.Path, j.Started.Format(time.RFC3339))
	notice := Notice{Text: text + "; no protected name is new since then"}
	if len(fresh) > 0 {
		notice = Notice{
			Text: fmt.Sprintf("%s; new since then: %q", text, strings.Join(fresh, " ")),
			Hint: "look at these before a tool runs them; the interrupted session, or you, made them",
		}
	}
	s.options.Notify(notice)
	return s.options.Recorder.Record(ctx, "", Event{Stage: "interrupted", Status: "found", Resource: t.tree.Path, Reason: text, Args: fresh, Level: s.options.MinLevel})
}
