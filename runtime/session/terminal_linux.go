package session

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// Terminal connects the caller's terminal with the one a command gets inside. The pty belongs to
// the cell's own devpts; the caller's terminal is never handed in, so TIOCSTI and its kin have
// nothing to reach.
type Terminal struct {
	In  *os.File  // the caller's terminal, put into raw mode while the command runs
	Out io.Writer // where the command's output goes

	master *os.File
	mu     sync.Mutex // of old, and of the terminal's mode
	old    *term.State
	resize chan os.Signal
	done   sync.WaitGroup
}

// size is the caller's window, or the size of a VT100 if there is none.
func (t *Terminal) size() (rows, cols uint16) {
	if t.In != nil {
		if c, r, err := term.GetSize(int(t.In.Fd())); err == nil && r > 0 && c > 0 {
			return uint16(min(r, 1<<16-1)), uint16(min(c, 1<<16-1))
		}
	}
	return 24, 80
}

// begin puts the caller's terminal into raw mode and follows its window size.
func (t *Terminal) begin(master *os.File) error {
	t.master = master
	if t.In == nil || !term.IsTerminal(int(t.In.Fd())) {
		return nil
	}
	old, err := term.MakeRaw(int(t.In.Fd()))
	if err != nil {
		return fmt.Errorf("raw mode on the terminal: %w", err)
	}
	t.mu.Lock()
	t.old = old
	t.mu.Unlock()
	t.resize = make(chan os.Signal, 1)
	signal.Notify(t.resize, unix.SIGWINCH)
	t.done.Go(func() {
		for range t.resize {
			t.follow()
		}
	})
	t.follow()
	return nil
}

func (t *Terminal) follow() {
	rows, cols := t.size()
	raw, err := t.master.SyscallConn()
	if err != nil {
		return
	}
	// A window size that cannot be set is a matter of looks; the command goes on.
	raw.Control(func(fd uintptr) {
		unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	})
}

// restore gives the caller's terminal back as it was.
func (t *Terminal) restore() {
	if t.resize != nil {
		signal.Stop(t.resize)
		close(t.resize)
		t.done.Wait()
		t.resize = nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.old != nil {
		term.Restore(int(t.In.Fd()), t.old)
		t.old = nil
	}
}

// lineMode runs f with the caller's terminal as the person knows it: lines, echo, signals.
func (t *Terminal) lineMode(f func()) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.old == nil {
		f()
		return nil
	}
	if err := term.Restore(int(t.In.Fd()), t.old); err != nil {
		return fmt.Errorf("line mode on the terminal: %w", err)
	}
	f()
	if _, err := term.MakeRaw(int(t.In.Fd())); err != nil {
		return fmt.Errorf("raw mode on the terminal: %w", err)
	}
	return nil
}

func (t *Terminal) filter() io.Writer { return NewClipboardFilter(t.Out) }
