package wallsd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// talker speaks the protocol byte by byte, with no client between that would keep to the rules.
type talker struct {
	conn *net.UnixConn
	seq  int
}

func dial() (*talker, error) {
	c, err := net.DialTimeout("unixpacket", os.Getenv(socketVar), 5*time.Second)
	if err != nil {
		return nil, err
	}
	return &talker{conn: c.(*net.UnixConn)}, nil
}

func (k *talker) send(text string, files ...int) error {
	var oob []byte
	if len(files) > 0 {
		oob = unix.UnixRights(files...)
	}
	k.conn.SetWriteDeadline(time.Now().Add(5 * time.Second))
	_, _, err := k.conn.WriteMsgUnix([]byte(text), oob, nil)
	return err
}

// hear reads one answer; io.EOF is the end of the connection, however it came.
func (k *talker) hear() (map[string]any, error) {
	buf := make([]byte, 1<<17)
	oob := make([]byte, 256)
	k.conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	n, oobn, _, _, err := k.conn.ReadMsgUnix(buf, oob)
	if errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) || err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return nil, err
	}
	if oobn > 0 {
		return nil, errors.New("the helper handed out a descriptor")
	}
	m := map[string]any{}
	return m, json.Unmarshal(buf[:n], &m)
}

// ask sends a request and returns the text of the error in the answer.
func (k *talker) ask(op, rest string, files ...int) (string, map[string]any, error) {
	k.seq++
	if err := k.send(fmt.Sprintf(`{"seq":%d,"op":%q%s}`, k.seq, op, rest), files...); err != nil {
		return "", nil, err
	}
	m, err := k.hear()
	text, _ := m["error"].(string)
	return text, m, err
}

// open begins a session.
func open(suffix string) (*talker, error) {
	k, err := dial()
	if err != nil {
		return nil, err
	}
	if text, _, err := k.ask("hello", `,"version":1`); err != nil || text != "" {
		return nil, fmt.Errorf("hello: %q, %w", text, err)
	}
	text, _, err := k.ask("open", fmt.Sprintf(`,"name":%q,"limits":{"processes":64,"memory":0}`, os.Getenv(nameVar)+suffix))
	if err != nil || text != "" {
		return nil, fmt.Errorf("open: %q, %w", text, err)
	}
	return k, nil
}

// child starts a process below this one. Without promise it could still become another user by a set-uid program.
func child(promise bool) (*exec.Cmd, error) {
	cmd := exec.Command("/bin/sleep", "300")
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the promise is the thread's
		if promise {
			if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
				started <- err
				return
			}
		}
		started <- cmd.Start()
		select {} // the thread stays
	}()
	return cmd, <-started
}

func pidfd(pid int) (int, error) { return unix.PidfdOpen(pid, 0) }

// groupsOf is /proc/PID/cgroup.
func groupsOf(pid int) string {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// expectRefused wants a join to be refused for a reason, and the process to be where it was.
func expectRefused(k *talker, pid, fd int, reason string) error {
	before := groupsOf(pid)
	text, _, err := k.ask("join", "", fd)
	if err != nil {
		return err
	}
	if !strings.Contains(text, reason) {
		return fmt.Errorf("joining process %d: %q, want a refusal with %q", pid, text, reason)
	}
	if after := groupsOf(pid); after != before && strings.Contains(after, os.Getenv(nameVar)) {
		return fmt.Errorf("process %d was moved all the same: %s", pid, after)
	}
	return nil
}

// attack runs a role and says how it went.
func attack(role string) int {
	name, arg, _ := strings.Cut(role, ":")
	f := attacks[name]
	if f == nil {
		fmt.Println("there is no role", name)
		return 2
	}
	if err := f(arg); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("done")
	return 0
}

func reap(cmd *exec.Cmd) {
	cmd.Process.Kill()
	cmd.Wait() // killed
}

func endedBy(cmd *exec.Cmd, within time.Duration) (syscall.Signal, error) {
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case <-done:
		return cmd.ProcessState.Sys().(syscall.WaitStatus).Signal(), nil
	case <-time.After(within):
		return 0, fmt.Errorf("process %d still runs after %v", cmd.Process.Pid, within)
	}
}
