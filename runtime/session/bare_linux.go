package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"coworker/enforce"
	"coworker/enforce/bare"
	"coworker/enforce/enforcetest"
)

// bareBackend builds cells from Landlock and seccomp alone.
type bareBackend struct{}

var _ enforce.Backend = bareBackend{}

func (bareBackend) Name() enforce.BackendName { return enforce.Bare }

func (bareBackend) Available(ctx context.Context) enforce.Availability { return bare.Available(ctx) }

// Start forks the cell on a thread that lives as long as it does.
func (bareBackend) Start(_ context.Context, l enforce.Launch) (*enforce.Cell, error) {
	type started struct {
		p   *os.Process
		err error
	}
	spec, err := l.Complete()
	if err != nil {
		return nil, err
	}
	// A number far above those that the child's own descriptors take before it executes.
	program, err := unix.FcntlInt(l.Program.Fd(), unix.F_DUPFD_CLOEXEC, 100)
	if err != nil {
		return nil, fmt.Errorf("duplicate the cell's program: %w", err)
	}
	defer unix.Close(program)
	result := make(chan started)
	ended := make(chan struct{})
	var how string
	go func() {
		runtime.LockOSThread() // never unlocked: the thread is the cell's, and ends with it
		// The helper moves no process that could still become another user, and a bare cell has no user namespace yet.
		if err := keepWho(spec); err != nil {
			result <- started{nil, err}
			return
		}
		p, err := bare.Start(spec, "/proc/self/fd/"+strconv.Itoa(program), []string{"coworker-cell", "cell"}, l.Stderr, l.CellWire)
		result <- started{p, err}
		if err != nil {
			return
		}
		defer close(ended)
		if state, err := p.Wait(); err == nil {
			how = "the cell ended: " + state.String()
		}
	}()
	s := <-result
	if s.err != nil {
		return nil, s.err
	}
	var once sync.Once
	var killErr error
	if err := l.Join(s.p.Pid); err != nil {
		return nil, errors.Join(err, killTree(s.p, ended))
	}
	return &enforce.Cell{
		Settled: func() error { return nil },
		Pid:     s.p.Pid,
		Ended:   ended,
		How:     func() string { return how },
		Kill: func() error {
			once.Do(func() { killErr = killTree(s.p, ended) })
			return killErr
		},
	}, nil
}

// keepWho sets no_new_privs on this thread, whose child inherits it.
func keepWho(s enforce.Spec) error {
	if enforcetest.Off(s, enforce.Priv) {
		return nil
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs for the cell: %w", err)
	}
	return nil
}

// killTree ends the cell and what it started. Without a pid namespace nothing ties the processes
// to the cell but descent, so they are stopped first: a stopped process cannot fork.
func killTree(p *os.Process, ended <-chan struct{}) error {
	var errs []error
	for range 100 {
		below, err := descendants(p.Pid)
		if err != nil {
			errs = append(errs, err)
			break
		}
		running := 0
		for _, d := range below {
			if d.state != 'T' && d.state != 'Z' && unix.Kill(d.pid, unix.SIGSTOP) == nil {
				running++
			}
		}
		if running == 0 {
			for _, d := range below {
				unix.Kill(d.pid, unix.SIGKILL)
			}
			break
		}
	}
	if err := p.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		errs = append(errs, err)
	}
	<-ended
	return errors.Join(errs...)
}
