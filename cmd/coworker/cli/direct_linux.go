package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"coworker/enforce"
	"coworker/platform/config"
	"coworker/platform/paths"
	"coworker/runtime/session"
)

// machineSettings is /etc/coworker/config.toml.
type machineSettings struct {
	AllowDirect bool `toml:"allow_direct"` // people may run commands without walls
}

// directAllowed asks the administrator's file. One that is not root's own counts as a no.
func directAllowed() error {
	file := filepath.Join(paths.Admin, "config.toml")
	no := &deniedError{
		text: "--level direct runs without any wall, and this machine does not allow it",
		hint: fmt.Sprintf("an administrator can allow it with allow_direct = true in %s", file),
	}
	info, err := os.Lstat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return no
	}
	if err != nil {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || owner.Uid != 0 {
		no.hint = fmt.Sprintf("%s must belong to root", file)
		return no
	}
	data, err := config.Read(file)
	if err != nil {
		return err
	}
	var machine machineSettings
	if err := config.Decode(file, data, &machine); err != nil {
		return err
	}
	if !machine.AllowDirect {
		return no
	}
	return nil
}

// runDirect runs a command without walls, recorded as such.
func (e *environment) runDirect(ctx context.Context, f execFlags, p *planned, r *report) error {
	if err := directAllowed(); err != nil {
		return err
	}
	rec := e.recorder(context.WithoutCancel(ctx), p, "exec")
	defer rec.close()
	stop := followSignals(ctx)
	defer stop.end()
	note := func(status, result string) error {
		return rec.Record(context.WithoutCancel(ctx), "", session.Event{
			Stage: "exec", Status: status, Args: f.command, Result: result, Level: enforce.Direct,
		})
	}
	if err := note("started", ""); err != nil {
		return err
	}
	e.note("warning", "level direct: no walls", "")
	runCtx := stop.ctx
	if p.plan.Timeout > 0 {
		limited, cancel := context.WithTimeout(runCtx, p.plan.Timeout)
		defer cancel()
		runCtx = limited
	}
	cmd := exec.CommandContext(runCtx, f.command[0], f.command[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = p.plan.Spec.Workspace, e.in, e.out, e.err
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 2 * time.Second
	started := e.now()
	err := cmd.Start()
	if err == nil {
		r.Started = &started
		err = cmd.Wait()
	}
	outcome := directOutcome(err, f.command[0], runCtx.Err(), p.plan.Timeout)
	return errors.Join(outcome, note("ended", fmt.Sprintf("exit code %d", ExitCode(outcome))))
}

func directOutcome(err error, name string, ended error, limit time.Duration) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.Is(ended, context.DeadlineExceeded):
		return &timeoutError{limit}
	case errors.As(err, &exit):
		status := exit.Sys().(syscall.WaitStatus)
		if status.Signaled() {
			return &statusError{128 + int(status.Signal())}
		}
		return &statusError{status.ExitStatus()}
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return &startError{name: name, reason: err.Error(), code: 127}
	}
	return &startError{name: name, reason: err.Error(), code: 126}
}
