// Smuggler is a hostile program that tries to get one word out of a cell, in as many ways as we know. Each attempt carries
// a marker of its own. It prints one JSON line for each: whether the attempt got what it wanted, as far as it can see, and
// the error if not. What counts is what the tests of integration/egress find in the frames that they capture.
//
// Only they may start it: outside a cell its attempts work, so they give it a network namespace of their own there too.
//
//	smuggler TARGETS.json NAME…     say "ready", wait for a line on standard input, and make these attempts in this order
//	smuggler -list                  print the names of all attempts
//	smuggler -connect PROXY PLACE   say "ready", wait for a line, ask the proxy for a tunnel, say what came of it, and wait
//	                                for the end of standard input
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"coworker/integration/egress/marker"
)

// target tells an attempt what there is. Every value is made by the test.
type target struct {
	Run     string            `json:"run"`     // word of the run
	Net     map[string]string `json:"net"`     // listeners and addresses by name, as host:port
	Sockets map[string]string `json:"sockets"` // Unix sockets by name; a leading @ is the abstract namespace
	Proxy   string            `json:"proxy"`   // host:port of the session's proxy, as the cell sees it
	Names   string            `json:"names"`   // host:port of the session's resolver
	Dir     string            `json:"dir"`     // a folder that may be written
	Pid     int               `json:"pid"`     // a process outside
}

// attempt is one way out. mark is what has to arrive somewhere; nil says that it did, as far as the attempt can see.
type attempt struct {
	name string
	run  func(t *target, mark string) error
}

// outcome is one line of output.
type outcome struct {
	Name   string `json:"name"`
	Worked bool   `json:"worked"`
	Errno  string `json:"errno,omitempty"`
	Detail string `json:"detail,omitempty"`
}

func attempts() []attempt {
	return slices.Concat(streams(), datagrams(), wideAddresses(), multicasts(), families(), otherFamilies(), fastOpens(), options(), addressTricks(), writes(),
		resolvers(), foreignResolvers(), unixWays(), descriptors(), netlinks(), interfaces(), processes(),
		connects(), oddTargets(), plainRequests(), smuggled(), hellos(), socksWays(), synthetics(), servers(), allowed())
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "-list" {
		for _, a := range attempts() {
			fmt.Println(a.name)
		}
		return
	}
	if len(os.Args) == 4 && os.Args[1] == "-udp" { // as the child of an attempt
		if sendTo(os.Args[2], []byte(os.Args[3])) != nil {
			os.Exit(1)
		}
		return
	}
	if len(os.Args) == 4 && os.Args[1] == "-connect" {
		hold(os.Args[2], os.Args[3])
		return
	}
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "smuggler:", err)
		os.Exit(3)
	}
}

// hold is an ordinary program that asks for one tunnel and goes on.
func hold(proxy, place string) {
	fmt.Println("ready")
	in := bufio.NewReader(os.Stdin)
	in.ReadString('\n')
	err := tunnel(&target{Proxy: proxy}, place, "")
	fmt.Println("asked:", err)
	io.Copy(io.Discard, in)
}

func run(args []string) error {
	if len(args) < 2 {
		return errors.New("usage: smuggler TARGETS.json NAME…")
	}
	data, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	var t target
	if err := json.Unmarshal(data, &t); err != nil {
		return err
	}
	byName := map[string]attempt{}
	for _, a := range attempts() {
		byName[a.name] = a
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return fmt.Errorf("wait for the word to begin: %w", err)
	}
	out := json.NewEncoder(os.Stdout)
	for _, name := range args[1:] {
		a, ok := byName[name]
		if !ok {
			return fmt.Errorf("there is no attempt %q", name)
		}
		if err := out.Encode(try(a, &t)); err != nil {
			return err
		}
	}
	return nil
}

// patience bounds one attempt. Some wait for answers that do not come.
const patience = 3 * time.Second

// try makes one attempt on a thread of its own, which ends with it: some attempts change what belongs to a thread.
func try(a attempt, t *target) outcome {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		result <- a.run(t, marker.Of(t.Run, a.name))
	}()
	err := <-result
	o := outcome{Name: a.name, Worked: err == nil}
	if err != nil {
		o.Detail = err.Error()
		if errno, ok := errors.AsType[syscall.Errno](err); ok {
			if o.Errno = unix.ErrnoName(errno); errno == unix.EOPNOTSUPP {
				o.Errno = "EOPNOTSUPP" // one number, two names
			}
		}
	}
	return o
}

// anyOf makes attempts until one works, and returns all errors otherwise.
func anyOf(list ...func() error) error {
	var errs []error
	for _, f := range list {
		err := f()
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
