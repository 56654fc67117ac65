package cli

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"strings"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff"
	"github.com/urfave/cli/v2"

	"coworker/runtime/changes"
)

const (
	maxDiffBytes = 1 << 20 // of one file; a longer one is shown by its size and digest
	maxDiffLines = 4000    // of one file
	maxDiffTotal = 32 << 20
)

// fileDiff is one change as it is shown.
type fileDiff struct {
	change  changes.Change
	text    string // unified, with nothing that a terminal would obey
	summary string // of what has no lines
	added   int
	removed int
	digests [2]string
	moved   string // where the same content went, or came from
}

func changesDiff(e *environment, c *cli.Context, f changesFlags) error {
	return e.withChanges(c.Context, f, func(st *changes.Stage, set *changes.Set) error {
		list, err := diffs(c.Context, st, set)
		if err != nil {
			return err
		}
		findMoves(list)
		if f.json {
			return e.printJSON(diffJSON(set, list))
		}
		if len(list) == 0 {
			_, err := fmt.Fprintln(e.out, "nothing to apply")
			return resultError(err)
		}
		for _, d := range list {
			if err := e.printDiff(d, f.stat); err != nil {
				return err
			}
		}
		return nil
	})
}

func diffs(ctx context.Context, st *changes.Stage, set *changes.Set) ([]fileDiff, error) {
	var list []fileDiff
	left := maxDiffTotal
	for _, c := range set.Changes {
		d := fileDiff{change: c}
		before, after, err := st.Sides(ctx, c, maxDiffBytes)
		if err != nil {
			return nil, err
		}
		d.digests = [2]string{before.Digest, after.Digest}
		d.compare(before, after)
		if left -= len(d.text); left < 0 {
			d.text, d.summary = "", "not shown: the diff is too long; coworker changes diff --path shows one file"
		}
		list = append(list, d)
	}
	return list, nil
}

// compare fills in what is shown.
func (d *fileDiff) compare(before, after changes.Side) {
	c := d.change
	switch {
	case c.Type == "folder" || c.Kind == changes.Mode:
		return
	case c.Rule == "hidden":
		d.summary, d.digests = "a secret: not shown", [2]string{}
		return
	case before.Target != "" || after.Target != "":
		d.summary = fmt.Sprintf("symlink %s -> %s", quoteTarget(before), quoteTarget(after))
		return
	case binary(before) || binary(after):
		d.summary = fmt.Sprintf("binary: %s -> %s", sideText(before), sideText(after))
		return
	}
	d.text = d.shown(udiff.Unified("a", "b", string(before.Data), string(after.Data)))
}

// shown escapes every line and counts.
func (d *fileDiff) shown(text string) string {
	var b strings.Builder
	if text == "" {
		return ""
	}
	lines := strings.SplitAfter(text, "\n")
	const head = 2 // the lines with names are written anew: a name may hold anything
	name := visible(d.change.Rel)
	fmt.Fprintf(&b, "--- a/%s\n+++ b/%s\n", name, name)
	for i, l := range lines {
		if i < head || l == "" {
			continue
		}
		switch l[0] {
		case '+':
			d.added++
		case '-':
			d.removed++
		}
		if i > maxDiffLines {
			continue
		}
		b.WriteString(visibleText(strings.TrimSuffix(l, "\n")) + "\n")
	}
	if len(lines) > maxDiffLines {
		fmt.Fprintf(&b, "… %d more lines\n", len(lines)-maxDiffLines)
	}
	return b.String()
}

// visibleText is visible, but a tab stays one: it is content, and a terminal does no harm with it.
func visibleText(line string) string {
	parts := strings.Split(line, "\t")
	for i := range parts {
		parts[i] = visible(parts[i])
	}
	return strings.Join(parts, "\t")
}

// binary says whether a side is better shown by its digest.
func binary(s changes.Side) bool {
	return s.Exists && (!s.Whole || bytes.IndexByte(s.Data, 0) >= 0 || !utf8.Valid(s.Data))
}

func quoteTarget(s changes.Side) string {
	switch {
	case !s.Exists:
		return "(nothing)"
	case s.Target == "":
		return "(a file)"
	}
	return visible(s.Target)
}

func sideText(s changes.Side) string {
	if !s.Exists {
		return "nothing"
	}
	if s.Digest == "" {
		return sizeText(s.Size)
	}
	return fmt.Sprintf("%s sha256 %.12s", sizeText(s.Size), s.Digest)
}

// findMoves pairs a deleted file with an added one of the same content. Only the view knows of moves.
func findMoves(list []fileDiff) {
	gone := map[string]int{}
	for i, d := range list {
		if d.change.Kind == changes.Deleted && d.digests[0] != "" && d.change.OldSize > 0 {
			gone[d.digests[0]] = i
		}
	}
	for i := range list {
		d := &list[i]
		from, ok := gone[d.digests[1]]
		if d.change.Kind != changes.Added || d.digests[1] == "" || !ok {
			continue
		}
		old := &list[from]
		d.moved, old.moved = "moved from "+old.change.Rel, "moved to "+d.change.Rel
		d.text, old.text = "", ""
		delete(gone, d.digests[1])
	}
}

func (e *environment) printDiff(d fileDiff, stat bool) error {
	c := d.change
	head := fmt.Sprintf("%s %s", c.Kind, visible(shownPath(c)))
	if c.Verdict != changes.Clean {
		head += fmt.Sprintf(" [%s: %s]", c.Verdict, visible(c.Reason))
	}
	for _, more := range [...]string{modeText(c), d.moved, d.summary, c.Note} {
		if more != "" {
			head += " (" + visible(more) + ")"
		}
	}
	if stat && d.text != "" {
		head += fmt.Sprintf(" +%d -%d", d.added, d.removed)
	}
	if _, err := fmt.Fprintln(e.out, head); err != nil || stat {
		return resultError(err)
	}
	_, err := fmt.Fprint(e.out, d.text)
	return resultError(err)
}

// modeText says how the permission bits change, and that something becomes executable.
func modeText(c changes.Change) string {
	switch {
	case c.Kind == changes.Deleted || c.Kind == changes.Removed || c.Type == "symlink":
		return ""
	case c.Kind == changes.Added || c.Kind == changes.Made:
		if c.Type == "file" && c.NewMode&0o111 != 0 {
			return fmt.Sprintf("executable, mode %04o", c.NewMode.Perm())
		}
		return ""
	case c.OldMode.Perm() != c.NewMode.Perm() || c.OldMode&fs.ModeSticky != c.NewMode&fs.ModeSticky:
		return fmt.Sprintf("mode %04o -> %04o", c.OldMode.Perm(), c.NewMode.Perm())
	}
	return ""
}

func diffJSON(set *changes.Set, list []fileDiff) map[string]any {
	out := setJSON(set)
	rows := []any{}
	for _, d := range list {
		m := changeJSON(d.change)
		for name, value := range map[string]string{"diff": d.text, "summary": d.summary, "moved": d.moved, "old_sha256": d.digests[0], "new_sha256": d.digests[1]} {
			if value != "" {
				m[name] = value
			}
		}
		if d.text != "" {
			m["added_lines"], m["removed_lines"] = d.added, d.removed
		}
		rows = append(rows, m)
	}
	out["changes"] = rows
	return out
}
