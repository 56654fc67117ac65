package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"coworker/enforce"
	"coworker/enforce/cgroup"
	"coworker/runtime/wallsd"
)

// build is the version of this build; the linker sets it.
var build = "dev"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "coworker-wallsd:", err)
		os.Exit(1)
	}
}

func run() error {
	socket := flag.String("socket", "", "listen on this `PATH`; systemd passes the socket instead")
	delegated := flag.Bool("delegated", false, "make the sessions' groups in this process's own control group, which was delegated to it")
	processes := flag.Int64("max-processes", 32768, "what one session may have at most; 0: no bound")
	memory := flag.Int64("max-memory", 0, "bytes that one session may use at most; 0: no bound")
	cpus := flag.Float64("max-cpus", 0, "processors that one session may use at most; 0: no bound")
	flag.Parse()
	if flag.NArg() != 0 {
		return fmt.Errorf("there is no argument %.80q", flag.Arg(0))
	}
	if os.Geteuid() != 0 {
		return errors.New("it holds control groups and kernel programs for others, so it runs as root")
	}
	listener, err := listen(*socket)
	if err != nil {
		return err
	}
	defer listener.Close()
	if err := confine(); err != nil {
		return err
	}
	below := ""
	if *delegated {
		if below, err = cgroup.MakeRoom("helper"); err != nil {
			return err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	log := wallsd.NewLog(os.Stderr, time.Now)
	defer log.Close()
	most := enforce.Limits{Processes: *processes, Memory: *memory, CPUs: *cpus}
	return wallsd.NewServer(wallsd.Config{Most: most, Below: below, Build: build, Log: log}).Serve(ctx, listener)
}

func listen(path string) (*net.UnixListener, error) {
	listener, err := wallsd.Activated(os.Getenv)
	switch {
	case err != nil:
		return nil, err
	case listener != nil && path != "":
		return nil, errors.Join(errors.New("systemd passed a socket, and --socket names another"), listener.Close())
	case listener != nil:
		return listener, nil
	case path == "":
		return nil, fmt.Errorf("nobody passed a socket; by hand: coworker-wallsd --socket %s", wallsd.Socket)
	case !filepath.IsAbs(path):
		return nil, fmt.Errorf("the path %.200q of the socket is not absolute", path)
	}
	return wallsd.Listen(path)
}

// confine gives up what the helper never needs, whoever started it: new rights by executing a program, and a memory that can
// be looked into.
func confine() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("make the process undumpable: %w", err)
	}
	// The promise is one of each thread.
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("set no_new_privs: %w", errno)
	}
	return dropCapabilities()
}
