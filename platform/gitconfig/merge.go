package gitconfig

import (
	"fmt"
	"strings"
)

// Key is one entry that was held back.
type Key struct {
	Entry
	Removed bool // the entry stood in the pinned version and was taken out: that can switch a protection off
}

// Held lists the entries of a file that execute.
func Held(entries []Entry) []Key {
	var held []Key
	for _, e := range entries {
		if Classify(e) == Executes {
			held = append(held, Key{Entry: e})
		}
	}
	return held
}

// Merge makes the version that may stand after something replaced a pinned configuration: the executing keys exactly as
// last pinned, the inert keys of the new version. If the executing keys are the same in both, the new bytes stand as they
// are. If the inert keys are the same, the pinned bytes do. If the new version cannot be parsed the pinned bytes are the
// result, with the error: the caller holds the whole new version.
func Merge(lastPinned, current []byte) (result []byte, held []Key, err error) {
	pinned, err := Parse(lastPinned)
	if err != nil {
		return lastPinned, nil, fmt.Errorf("pinned version: %w", err)
	}
	now, err := Parse(current)
	if err != nil {
		return lastPinned, nil, fmt.Errorf("new version: %w", err)
	}
	pinnedExec, pinnedInert := divide(pinned)
	nowExec, nowInert := divide(now)
	if equal(pinnedExec, nowExec) {
		return current, nil, nil
	}
	held = difference(pinnedExec, nowExec)
	if equal(pinnedInert, nowInert) {
		return lastPinned, held, nil
	}
	return Format(append(pinnedExec, nowInert...)), held, nil
}

func divide(entries []Entry) (executing, inert []Entry) {
	for _, e := range entries {
		if Classify(e) == Inert {
			inert = append(inert, e)
		} else {
			executing = append(executing, e)
		}
	}
	return executing, inert
}

// bare drops the line, which says nothing about meaning.
func (e Entry) bare() Entry { e.Line = 0; return e }

// equal compares in order: git lets the last one win, and lists are lists.
func equal(a, b []Entry) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].bare() != b[i].bare() {
			return false
		}
	}
	return true
}

// difference names what was added and removed; where only the order changed, everything in the new version.
func difference(pinned, now []Entry) []Key {
	count := map[Entry]int{}
	for _, e := range pinned {
		count[e.bare()]++
	}
	var keys []Key
	for _, e := range now {
		if count[e.bare()]--; count[e.bare()] < 0 {
			keys = append(keys, Key{Entry: e})
		}
	}
	for _, e := range pinned {
		if count[e.bare()] > 0 {
			count[e.bare()]--
			keys = append(keys, Key{Entry: e, Removed: true})
		}
	}
	if len(keys) == 0 {
		for _, e := range now {
			keys = append(keys, Key{Entry: e})
		}
	}
	return keys
}

// globalSections are the sections of a person's own configuration that make sense inside a cell.
var globalSections = map[string]bool{
	"user": true, "author": true, "committer": true, "init": true, "pull": true, "push": true, "merge": true, "diff": true,
	"color": true, "alias": true, "advice": true, "fetch": true, "rebase": true, "tag": true, "status": true, "log": true,
	"column": true, "rerere": true, "branch": true,
}

var globalCore = map[string]bool{
	"core.autocrlf": true, "core.eol": true, "core.safecrlf": true, "core.quotepath": true, "core.whitespace": true, "core.abbrev": true,
}

// InertGlobal makes the private ~/.gitconfig of a cell from the person's: their name, habits and shortcuts, nothing that
// runs a program, reads another file or signs. An alias may name any git command there, as long as it does not start with
// "!": inside the wall it can do no more than the command itself.
func InertGlobal(global []byte) ([]byte, error) {
	entries, err := Parse(global)
	if err != nil {
		return nil, err
	}
	var keep []Entry
	for _, e := range entries {
		section, sub, key := e.Split()
		switch {
		case section == "alias" && !e.hasSub():
			if e.HasValue && text(e) && !strings.HasPrefix(strings.TrimSpace(e.Value), "!") {
				keep = append(keep, e)
			}
		case key == "gpgsign" || key == "signingkey" || key == "forcesignannotated":
			// no key inside the wall: signing would only fail
		case section == "branch" && sub != "":
		case (globalSections[section] || globalCore[e.Name]) && Classify(e) == Inert:
			keep = append(keep, e)
		}
	}
	return Format(keep), nil
}
