// Testgate runs go test and prints what go test prints, but counts: a skipped test that integration/skips.txt does
// not list is a failure, and so is a command that ran no test at all. The last line is "N passed, N failed, N skipped".
//
//	testgate [-v] -- go test ./... [-- go test -p 1 ./integration/...]
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"coworker/integration/house"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testgate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	verbose := len(args) > 0 && args[0] == "-v"
	if verbose {
		args = args[1:]
	}
	commands, err := split(args)
	if err != nil {
		return err
	}
	root, err := house.Root()
	if err != nil {
		return err
	}
	list, err := os.Open(filepath.Join(root, "integration", "skips.txt"))
	if err != nil {
		return err
	}
	defer list.Close()
	skips, err := house.ParseSkips(list)
	if err != nil {
		return fmt.Errorf("integration/skips.txt: %w", err)
	}
	var total counts
	var failures []error
	for _, command := range commands {
		g := &gate{out: os.Stdout, verbose: verbose, skips: skips}
		if err := start(ctx, command, g); err != nil {
			failures = append(failures, err)
		}
		failures = append(failures, g.verdict()...)
		total.add(g.counts)
	}
	for _, f := range failures {
		fmt.Fprintln(os.Stdout, "testgate:", f)
	}
	fmt.Fprintf(os.Stdout, "%d passed, %d failed, %d skipped\n", total.passed, total.failed, total.skipped)
	if len(failures) > 0 {
		return errors.New("the suite is red")
	}
	return nil
}

// split cuts the arguments at each "--" and makes go test speak JSON.
func split(args []string) ([][]string, error) {
	var commands [][]string
	for _, a := range args {
		switch {
		case a == "--":
			commands = append(commands, nil)
		case len(commands) == 0:
			return nil, fmt.Errorf("%q stands before the first --", a)
		default:
			commands[len(commands)-1] = append(commands[len(commands)-1], a)
		}
	}
	if len(commands) == 0 {
		return nil, errors.New("usage: testgate [-v] -- go test PACKAGES [-- go test PACKAGES]")
	}
	for i, c := range commands {
		at := slices.Index(c, "test")
		if at < 1 {
			return nil, fmt.Errorf("%q is not a go test command", c)
		}
		commands[i] = slices.Insert(c, at+1, "-json")
	}
	return commands, nil
}

// start runs one command and feeds its events to the gate. On an interrupt go test gets the signal too, and time
// to end its test binaries.
func start(ctx context.Context, command []string, g *gate) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	readErr := g.read(events)
	if readErr != nil {
		_, _ = io.Copy(io.Discard, events) // so that go test can end
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%q: %w", command, err)
	}
	return readErr
}
