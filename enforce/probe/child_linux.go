package probe

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

// shell is what the battery starts: the program that every command line needs.
const shell = "/bin/sh"

// child is the one process that the battery starts. It is started early and asked late, so that
// it gets going while attempts are made. The thread of the battery starts it: below Landlock ABI 8
// every thread restricts itself, which makes domains that are siblings, and what another thread
// starts can be neither looked at nor signalled from here (landlock(7), ptrace restrictions).
type child struct {
	started result
	pid     int // 0 if there is none
	in      int // its standard input, write end
	out     int // its standard output, read end
}

// fork starts a shell that says that it runs, and waits for its input to end.
func (c *child) fork(env []string) result {
	var in, out [2]int
	if err := unix.Pipe2(in[:], unix.O_CLOEXEC); err != nil {
		return judgeWorks("pipe", err)
	}
	defer unix.Close(in[0])
	if err := unix.Pipe2(out[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		unix.Close(in[1])
		return judgeWorks("pipe", err)
	}
	defer unix.Close(out[1])
	pid, err := syscall.ForkExec(shell, []string{"sh", "-c", "echo; read x"}, &syscall.ProcAttr{
		Dir: "/", Env: env, Files: []uintptr{uintptr(in[0]), uintptr(out[1]), uintptr(out[1])},
	})
	if err != nil {
		unix.Close(in[1])
		unix.Close(out[0])
		return judgeWorks("start "+shell, err)
	}
	c.pid, c.in, c.out = pid, in[1], out[0]
	return judgeWorks("start "+shell, nil)
}

func childFacts() []attempt {
	return []attempt{
		{name: "process-starts", wall: enforce.Kernel, want: enforce.Works, run: func(b *battery) result { return b.child.started }},
		{name: "process-answers", wall: enforce.Kernel, want: enforce.Works, run: func(b *battery) result { return b.child.await() }},
		{name: "child", wall: enforce.Priv, run: func(b *battery) result { return b.child.privileges(b) }},
		{name: "child", wall: enforce.Env, run: func(b *battery) result { return b.child.environment(b) }},
	}
}

// await waits until the shell has said something: only then has exec changed the credentials.
func (c *child) await() result {
	if c.pid == 0 {
		return result{enforce.Broken, "no process was started"}
	}
	for range 10 { // two seconds: a busy machine, or the first start of a shell
		n, err := poll(c.out, unix.POLLIN)
		if err != nil {
			return judgeWorks("wait for "+shell, err)
		}
		if n == 0 {
			continue
		}
		buf := make([]byte, 256)
		n, err = unix.Read(c.out, buf)
		if err != nil || string(buf[:max(n, 0)]) != "\n" {
			return result{enforce.Broken, fmt.Sprintf("%s said %q", shell, buf[:max(n, 0)])}
		}
		return judgeWorks(shell+" runs", nil)
	}
	return result{enforce.Broken, shell + " does not answer"}
}

// privileges reads what a program has after exec, where uid 0 would get its capabilities back.
func (c *child) privileges(b *battery) result {
	if c.pid == 0 {
		return unclear("no process was started")
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.pid))
	if err != nil {
		return unclear(err.Error())
	}
	s, err := parseStatus(string(data))
	if err != nil {
		return unclear(err.Error())
	}
	for _, check := range []func(status) error{b.noCaps(), status.checkNoNewPrivs} {
		if err := check(s); err != nil {
			return leaked(err.Error())
		}
	}
	if s.seccomp != 2 {
		return leaked(fmt.Sprintf("the child has seccomp mode %d", s.seccomp))
	}
	return stopped("no capability after exec")
}

func (c *child) environment(b *battery) result {
	if c.pid == 0 {
		return unclear("no process was started")
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", c.pid))
	if err != nil {
		return unclear(err.Error())
	}
	return b.searchEnv(splitEnviron(data))
}

// end ends the shell and takes its exit status. It is an unreaped child, so its number cannot name
// another process.
func (c *child) end() {
	if c.pid == 0 {
		return
	}
	unix.Close(c.in)
	unix.Close(c.out)
	unix.Kill(c.pid, unix.SIGKILL)
	for {
		_, err := unix.Wait4(c.pid, nil, 0, nil)
		if err != unix.EINTR {
			return
		}
	}
}
