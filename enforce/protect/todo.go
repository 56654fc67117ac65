package protect

import (
	"bytes"
)

// maxTodo bounds a to-do list; git writes one line a commit.
const maxTodo = 4 << 20

// harmless are the rebase commands that run nothing but git's own steps (sequencer.c todo_command_info), with their
// one-letter forms.
var harmless = map[string]bool{
	"pick": true, "p": true, "revert": true, "edit": true, "e": true, "reword": true, "r": true,
	"fixup": true, "f": true, "squash": true, "s": true, "break": true, "b": true, "label": true, "l": true,
	"reset": true, "t": true, "merge": true, "m": true, "update-ref": true, "u": true, "noop": true, "drop": true, "d": true,
}

// TodoExecutes reports whether a git rebase to-do list would run a command. It is strict: every line whose first word is
// not a known harmless command counts. Only lines that start with a sign no command starts with are comments, whatever
// core.commentChar says: a letter as comment sign is judged as the command it looks like.
func TodoExecutes(todo []byte) bool {
	if len(todo) > maxTodo || bytes.IndexByte(todo, 0) >= 0 {
		return true
	}
	for len(todo) > 0 {
		end := bytes.IndexAny(todo, "\n\r") // git ends lines at LF only; a CR may hide a line from a reader
		line := todo
		if end >= 0 {
			line, todo = todo[:end], todo[end+1:]
		} else {
			todo = nil
		}
		line = bytes.TrimLeft(line, " \t\v\f")
		if len(line) == 0 || isSign(line[0]) {
			continue
		}
		word := line
		if i := bytes.IndexAny(line, " \t"); i >= 0 {
			word = line[:i]
		}
		if !harmless[string(word)] {
			return true
		}
	}
	return false
}

// isSign reports the ASCII signs that cannot start a command.
func isSign(c byte) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c >= 0x80, c < ' ':
		return false
	}
	return true
}
