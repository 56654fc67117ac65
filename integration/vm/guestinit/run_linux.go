package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"coworker/integration/vm/guest"
)

// runner is the second process: it runs the cases one after the other.
func runner() {
	port := os.NewFile(portFD, guest.ResultPort)
	unix.CloseOnExec(portFD)
	out := messages{json.NewEncoder(port)}
	if err := runCases(out); err != nil {
		fmt.Fprintln(os.Stderr, "guestinit:", out.fatal(err))
	}
	// tcdrain(3): a power-off would cut the last line.
	if err := unix.IoctlSetInt(portFD, unix.TCSBRK, 1); err != nil {
		fmt.Fprintln(os.Stderr, "guestinit: drain:", err)
	}
}

func runCases(out messages) error {
	plan, err := readPlan()
	if err != nil {
		return err
	}
	ready, err := describe()
	if err != nil {
		return err
	}
	if err := out.send(guest.Message{Ready: ready}); err != nil {
		return err
	}
	for i, c := range plan.Cases {
		r := runCase(c, filepath.Join(cgroupRoot, "case-"+strconv.Itoa(i)))
		if r.Leftover, err = clearLeftover(); err != nil {
			return fmt.Errorf("after case %q: %w", c.Name, err)
		}
		if err := out.send(guest.Message{Result: &r}); err != nil {
			return err
		}
	}
	n := len(plan.Cases)
	return out.send(guest.Message{Done: &n})
}

func describe() (*guest.Ready, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil, fmt.Errorf("uname: %w", err)
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return nil, fmt.Errorf("clock_gettime: %w", err)
	}
	return &guest.Ready{Release: unix.ByteSliceToString(u.Release[:]), Uptime: time.Duration(now.Nano())}, nil
}

func runCase(c guest.Case, cgroup string) guest.Result {
	r := guest.Result{Name: c.Name, Exit: -1}
	timeout := c.Timeout
	if timeout <= 0 {
		timeout = guest.DefaultTimeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	cmd, err := command(ctx, c)
	if err != nil {
		r.Err = err.Error()
		return r
	}
	if c.Delegate {
		dir, err := delegate(cgroup, cmd.SysProcAttr)
		if err != nil {
			r.Err = err.Error()
			return r
		}
		defer dir.Close()
	}
	var stdout, stderr capped
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(c.Stdin), &stdout, &stderr

	start := time.Now()
	err = cmd.Run()
	r.Duration = time.Since(start)
	r.TimedOut = ctx.Err() != nil
	r.Stdout, r.Stderr, r.Cut = stdout.buf.Bytes(), stderr.buf.Bytes(), stdout.cut || stderr.cut
	if cmd.ProcessState != nil {
		r.Exit = cmd.ProcessState.ExitCode()
		if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			r.Signal = unix.SignalName(ws.Signal())
		}
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		r.Err = err.Error()
	}
	return r
}

func command(ctx context.Context, c guest.Case) (*exec.Cmd, error) {
	if len(c.Argv) == 0 {
		return nil, errors.New("the case has no command")
	}
	uid, home := 0, "/root"
	switch c.User {
	case guest.Root, "":
	case guest.Worker:
		uid, home = guest.WorkerUID, "/home/"+guest.Worker
	default:
		return nil, fmt.Errorf("user %q is not one of the guest's", c.User)
	}
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Dir = home
	if c.Dir != "" {
		cmd.Dir = c.Dir
	}
	cmd.Env = append([]string{
		searchPath,
		"HOME=" + home, "LANG=C.UTF-8", "TERM=dumb", "SHELL=/bin/sh",
		fmt.Sprintf("XDG_RUNTIME_DIR=/run/user/%d", uid),
	}, c.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)},
	}
	// A grandchild can hold the pipes open after the command has ended.
	cmd.WaitDelay = 2 * time.Second
	return cmd, nil
}

// delegate makes a control group that belongs to the user of attr and lets the
// command start in it. Which files to hand over is in cgroups(7), "Delegation".
func delegate(dir string, attr *syscall.SysProcAttr) (*os.File, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	uid := int(attr.Credential.Uid)
	for _, name := range []string{"", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"} {
		if err := os.Chown(filepath.Join(dir, name), uid, uid); err != nil {
			return nil, err
		}
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	attr.UseCgroupFD, attr.CgroupFD = true, int(f.Fd())
	return f, nil
}

// capped keeps the first guest.MaxOutput bytes and discards the rest, so that a
// case that floods its output neither blocks nor fills the memory.
type capped struct {
	buf bytes.Buffer
	cut bool
}

func (c *capped) Write(p []byte) (int, error) {
	room := guest.MaxOutput - c.buf.Len()
	if len(p) > room {
		c.cut = true
		c.buf.Write(p[:room])
		return len(p), nil
	}
	return c.buf.Write(p)
}

const (
	// settle is how long processes may take to end by themselves after their
	// case; parent-death signals and pid namespace teardown are asynchronous.
	settle    = 500 * time.Millisecond
	killLimit = 10 * time.Second
	poll      = 5 * time.Millisecond
)

// clearLeftover names what is still alive after a case, then kills it.
func clearLeftover() ([]string, error) {
	names, err := waitAlone(settle, nil)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	still, err := waitAlone(killLimit, func() {
		// Every process but PID 1 and the caller, kill(2).
		_ = unix.Kill(-1, unix.SIGKILL)
	})
	if err == nil && len(still) > 0 {
		err = fmt.Errorf("processes that SIGKILL does not end: %q", still)
	}
	return names, err
}

// waitAlone repeats each until no foreign process is left, and returns the names
// of those alive at the end.
func waitAlone(limit time.Duration, each func()) ([]string, error) {
	for deadline := time.Now().Add(limit); ; time.Sleep(poll) {
		names, err := foreign()
		if err != nil || len(names) == 0 || time.Now().After(deadline) {
			return names, err
		}
		if each != nil {
			each()
		}
	}
}

// foreign lists user processes other than PID 1 and the runner, zombies not
// counted: PID 1 reaps them.
func foreign() ([]string, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, path := range stats {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil || pid == 1 || pid == os.Getpid() {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			continue // It ended meanwhile.
		}
		if name, alive := parseStat(string(data)); alive {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// parseStat reads a line of /proc/PID/stat, proc(5): the name in parentheses,
// which may hold parentheses itself, then state, ppid, pgrp, session, tty, tpgid
// and flags. Kernel threads carry PF_KTHREAD.
func parseStat(line string) (name string, alive bool) {
	const pfKthread = 0x00200000
	open, end := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if open < 0 || end < open {
		return "", false
	}
	f := strings.Fields(line[end+1:])
	if len(f) < 7 || f[0] == "Z" || f[0] == "X" {
		return "", false
	}
	flags, err := strconv.ParseUint(f[6], 10, 64)
	return line[open+1 : end], err == nil && flags&pfKthread == 0
}
