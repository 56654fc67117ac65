package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Shell is what a shell keeps between two scripts: its working folder and its exported variables.
// It is data that the supervisor holds, never a process, so it survives a change of the cell and
// nothing runs while nobody asked. What it holds came from inside the wall and is used only there.
// The zero value starts in the workspace with the environment of the Spec. One script at a time.
type Shell struct {
	Dir string   // absolute; empty: the workspace
	Env []string // NAME=VALUE; nil: the environment of the Spec

	// Stale says why the state is older than the last script; empty if it is not.
	Stale string
}

// Bounds of what is taken over from a shell.
const (
	maxShellState = 1 << 20
	maxScript     = 120 << 10 // execve(2) bounds one argument to 128 KiB
	maxVariable   = 120 << 10 // likewise: one longer variable would make every later command fail
	stateLimit    = 5 * time.Second
)

// stateEnd closes a complete state: a shell that was killed while it wrote leaves none.
const stateEnd = "coworker-shell-state-ends"

// shells are the shells that are looked for; /bin/sh is everywhere. The system's folders are the
// same inside.
var shells = []string{"/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"}

// shellWrapper runs the script $1 in the folder $2 and leaves the state in the file $3 when the shell
// exits, in whatever way but a signal or exec. A script that sets an EXIT trap of its own and runs to
// its end still leaves it; one that has such a trap and leaves by exit does not.
//
// The script runs by eval, so that a syntax error in it does not take the trap away. What the wrapper
// itself does is hidden from set -x.
const shellWrapper = `
__coworker_script=$1 __coworker_dir=$2 __coworker_file=$3 __coworker_saved=
shift 3
__coworker_save() {
	[ -z "$__coworker_saved" ] || return 0
	__coworker_saved=1
	(
		set +eu
		umask 077
		dir=$(command pwd && echo .) && printf '%s\0' "${dir%??}" && /usr/bin/env -0 && printf '%s\0' ` + stateEnd + `
	) >"$__coworker_file"
}
if [ -n "$__coworker_dir" ]; then
	__coworker_old=${OLDPWD-}
	cd -- "$__coworker_dir" 2>/dev/null || echo "the working folder is gone; this runs in $PWD" >&2
	[ -z "$__coworker_old" ] || OLDPWD=$__coworker_old
fi
trap '{ __coworker_status=$?; __coworker_save; } 2>/dev/null; exit $__coworker_status' EXIT
eval "$__coworker_script"
{ __coworker_status=$?; __coworker_save; } 2>/dev/null
exit $__coworker_status
`

// RunShell runs a script in a shell that goes on where the last one stopped, and keeps its state in
// sh. A script that leaves no state (killed, ended by exec, too much of it) leaves the old one, and
// sh.Stale says so. Argv, Env and Dir of c are not used.
func (s *Session) RunShell(ctx context.Context, sh *Shell, script string, c Command) (Result, error) {
	if len(script) > maxScript || strings.IndexByte(script, 0) >= 0 {
		return Result{}, fmt.Errorf("shell script of %d bytes: want at most %d, without NUL", len(script), maxScript)
	}
	file := path.Join("/tmp", ".coworker-shell-"+randomName(16))
	c.Argv = []string{shellProgram(), "-c", shellWrapper, "sh", script, sh.Dir, file}
	c.Dir, c.Env = "", sh.Env
	result, err := s.Run(ctx, c)
	if err != nil {
		return result, err
	}
	state, err := s.shellState(context.WithoutCancel(ctx), file)
	if err != nil {
		return result, err
	}
	next, err := state.parse()
	if err != nil {
		sh.Stale = err.Error()
		return result, nil
	}
	*sh = *next
	return result, nil
}

func shellProgram() string {
	for _, p := range shells {
		if unix.Access(p, unix.X_OK) == nil {
			return p
		}
	}
	return "/bin/sh"
}

// shellState is what the second command of RunShell brought.
type shellState struct {
	out    boundedBuffer
	result Result
}

// shellState fetches the state that a shell left. A second small command reads it, with the rights
// of the cell; whatever stands at the path by now cannot be more than bytes, and not many.
func (s *Session) shellState(ctx context.Context, file string) (*shellState, error) {
	st := &shellState{out: boundedBuffer{max: maxShellState}}
	var err error
	st.result, err = s.Run(ctx, Command{
		Argv:   []string{"/bin/sh", "-c", `[ -f "$1" ] && [ ! -L "$1" ] || exit 3; cat -- "$1"; rm -f -- "$1"`, "sh", file},
		Env:    []string{"PATH=/usr/bin:/bin", "LC_ALL=C"},
		Stdout: &st.out, Timeout: stateLimit, Grace: time.Second,
	})
	return st, err
}

func (st *shellState) parse() (*Shell, error) {
	switch {
	case st.out.over:
		return nil, fmt.Errorf("the state of the shell is longer than %d bytes", maxShellState)
	case st.result.Code == 3:
		return nil, errors.New("the shell left no state: it was killed, replaced itself, or has its own EXIT trap")
	case st.result.Code != 0:
		return nil, fmt.Errorf("the state of the shell could not be read: status %d %s", st.result.Code, st.result.Reason)
	}
	return parseShellState(st.out.data)
}

// boundedBuffer refuses what goes over its bound; the writer then gets SIGPIPE. It embeds no
// bytes.Buffer: io.Copy would find ReadFrom, which knows no bound.
type boundedBuffer struct {
	data []byte
	max  int
	over bool
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	if len(b.data)+len(p) > b.max {
		b.over = true
		return 0, os.ErrClosed
	}
	b.data = append(b.data, p...)
	return len(p), nil
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// ofOneShell are variables that belong to one shell process and not to its successor.
var ofOneShell = map[string]bool{"_": true, "SHLVL": true, "PWD": true}

// parseShellState reads "DIR NUL (NAME=VALUE NUL)* END NUL". The input is hostile. Names that are none
// (exported functions of bash) are passed over; everything else that does not fit is an error.
func parseShellState(data []byte) (*Shell, error) {
	fields := strings.Split(string(data), "\x00")
	if len(fields) < 3 || fields[len(fields)-1] != "" || fields[len(fields)-2] != stateEnd {
		return nil, errors.New("the state of the shell is cut short")
	}
	sh := &Shell{Dir: fields[0], Env: []string{}}
	if !path.IsAbs(sh.Dir) || len(sh.Dir) >= unix.PathMax {
		return nil, fmt.Errorf("the working folder %.100q of the shell is no absolute path", sh.Dir)
	}
	seen := map[string]bool{}
	for _, f := range fields[1 : len(fields)-2] {
		name, _, ok := strings.Cut(f, "=")
		own := ofOneShell[name] || strings.HasPrefix(name, "__coworker_")
		if !ok || own || seen[name] || !variableName.MatchString(name) {
			continue
		}
		if len(f) > maxVariable {
			return nil, fmt.Errorf("variable %.100s of the shell is longer than %d bytes", name, maxVariable)
		}
		seen[name] = true
		sh.Env = append(sh.Env, f)
	}
	return sh, nil
}
