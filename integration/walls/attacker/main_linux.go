// Attacker is the hostile program of the escape battery. It makes named attempts with plain system calls and prints
// one JSON line for each: whether it worked, as the attempt itself sees it, and the errno if it did not. The tests of
// integration/walls run it inside a cell and, as the control, outside of one against targets made for the purpose.
// Only they may start it: outside a cell its attempts work.
//
//	attacker TARGETS.json NAME…     make these attempts, in this order
//	attacker -list                  print the names of all attempts
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// target tells an attempt what it may attack. Every value is made by the test.
type target struct {
	Work    string            `json:"work"`    // the workspace
	Outside string            `json:"outside"` // a folder of the same user beside it
	Home    string            `json:"home"`    // the person's real home
	Net     map[string]string `json:"net"`     // listeners by name, as host:port
	Sockets map[string]string `json:"sockets"` // Unix sockets by name; a leading @ is the abstract namespace
	Pid     int               `json:"pid"`     // a process outside
	Shm     int               `json:"shm"`     // a System V segment
	Queue   string            `json:"queue"`   // a POSIX message queue
	Scratch string            `json:"scratch"` // a folder in the workspace that may be written
}

type attempt struct {
	name string
	run  func(*target) error // nil: the attack worked
}

// outcome is one line of output.
type outcome struct {
	Name   string `json:"name"`
	Worked bool   `json:"worked"`
	Errno  string `json:"errno,omitempty"`
	Detail string `json:"detail,omitempty"`
}

func attempts() []attempt {
	return slices.Concat(outsideWrites(), systemWrites(), protectedNames(), absentNames(), reads(), links(), mounts(),
		kernelCalls(), foreign(), processes(), privileges(), unixSockets(), network(), limits(), ordinary())
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "-list" {
		for _, a := range attempts() {
			fmt.Println(a.name)
		}
		return
	}
	if len(os.Args) == 2 && helped(os.Args[1]) {
		return
	}
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "attacker:", err)
		os.Exit(3)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return errors.New("usage: attacker TARGETS.json NAME…")
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

// try makes one attempt on a thread of its own, which ends with it: some attempts change what belongs to a thread.
func try(a attempt, t *target) outcome {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		result <- a.run(t)
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

// call is a system call by number.
func call(nr uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	if _, _, errno := unix.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
		return errno
	}
	return nil
}

// write opens a path in the given way and puts a line into it.
func write(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte("planted by the attacker\n"))
	return err
}

func create(path string) error { return write(path, unix.O_CREAT|unix.O_TRUNC) }

// read returns nothing but success: what was read may be a secret, and the output is looked through for secrets.
func read(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	return spill(fd)
}

// spill prints what a descriptor yields, so that the test finds the secret in the output.
func spill(fd int) error {
	buf := make([]byte, 4096)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return err
	}
	if n == 0 {
		return errors.New("the file is empty")
	}
	fmt.Fprintf(os.Stderr, "read: %q\n", buf[:n])
	return nil
}

// first makes attempts until one works, and returns the last error otherwise.
func first(list ...func() error) (err error) {
	for _, f := range list {
		if err = f(); err == nil {
			return nil
		}
	}
	return err
}

// symlink makes a link anew: attempts of one session share the scratch folder.
func symlink(to, link string) error {
	if err := unix.Unlink(link); err != nil && err != unix.ENOENT {
		return err
	}
	return unix.Symlink(to, link)
}
