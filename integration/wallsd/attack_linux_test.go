package wallsd

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"coworker/integration/house/testuser"
	"coworker/runtime/wallsd"
	"coworker/runtime/ward"
)

// TestAttacks: nothing is gained, nothing leaks, and the helper serves on.
func TestAttacks(t *testing.T) {
	u := testuser.Unprivileged(t)
	h := start(t)
	other := victim(t, u.UID+1)
	sibling := victim(t, u.UID)
	roots := victim(t, 0)
	for _, role := range []string{
		"join", "self", "promise", "ended", "thread", "nopidfd", "flood", "garbage", "order", "names", "silent", "deaf", "trees", "write",
		fmt.Sprintf("foreign:%d=does not belong to uid", other), fmt.Sprintf("foreign:%d=does not belong to uid", roots), "foreign:1=not a process that may join",
		fmt.Sprintf("foreign:%d=gain privileges", sibling), fmt.Sprintf("foreign:%d=does not belong to uid", os.Getpid()),
		fmt.Sprintf("foreign:%d=does not belong to uid", h.cmd.Process.Pid), fmt.Sprintf("foreign:%d=is not below", promised(t, u.UID)),
		"setuid:" + setuidSleep(t),
	} {
		name, _, _ := strings.Cut(role, "/")
		t.Run(name, func(t *testing.T) {
			if out, err := h.attacker(t, u, role).CombinedOutput(); err != nil {
				t.Errorf("%v: %s\n%s", err, out, tail(h.log.String()))
			}
			h.unharmed(t)
		})
	}
	if !h.logged(t, "join", "refused", "gain privileges") || !h.logged(t, "join", "ok", "") || !h.logged(t, "close", "ok", "") {
		t.Errorf("the log lacks a line:\n%s", h.log.String())
	}
}

// tail is the end of a log.
func tail(text string) string { return text[max(0, len(text)-2000):] }

// promised is a process of the user, not below the attacker, that keeps every other rule.
func promised(t *testing.T, uid int) int {
	t.Helper()
	cmd := exec.Command("setpriv", "--no-new-privs", "--reuid", strconv.Itoa(uid), "--regid", strconv.Itoa(uid), "--clear-groups", "--pdeathsig", "KILL", "sleep", "300")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait() // killed
	})
	eventually(t, "setpriv became sleep", func() bool {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", cmd.Process.Pid))
		return err == nil && string(name) == "sleep\n"
	})
	return cmd.Process.Pid
}

// setuidSleep is a program that becomes root.
func setuidSleep(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(bin, "sleep-as-root")
	if err := errors.Join(os.WriteFile(program, data, 0o755), os.Chmod(program, 0o755|os.ModeSetuid)); err != nil {
		t.Fatal(err)
	}
	return program
}

// background starts an attacker and waits until it says that it holds something.
func (h *helper) background(t *testing.T, u testuser.User, role string) (cmd *exec.Cmd, in io.WriteCloser, said []string) {
	t.Helper()
	cmd = h.attacker(t, u, role)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait() // killed, or waited for
	})
	lines := bufio.NewReader(out)
	text, err := lines.ReadString('\n')
	if err != nil || !strings.HasPrefix(text, "held") {
		t.Fatalf("the attacker said %q, %v\n%s", text, err, h.log.String())
	}
	return cmd, in, strings.Fields(text)[1:]
}

// TestThousandConnections: one user gets so many and no more, others are served meanwhile, and all is given back.
func TestThousandConnections(t *testing.T) {
	u := testuser.Unprivileged(t)
	h := start(t)
	cmd, in, said := h.background(t, u, "many:1000")
	if want := []string{"256", "744"}; said[0] != want[0] || said[1] != want[1] {
		t.Errorf("served and refused: %v, want %v", said, want)
	}
	if !h.serving() {
		t.Error("another user is not served")
	}
	stranger := testuser.User{UID: u.UID + 1, GID: u.GID + 1}
	if out, err := h.attacker(t, stranger, "join", nameVar+"="+sessionPrefix()+"-stranger").CombinedOutput(); err != nil {
		t.Errorf("another user is not served: %v, %s", err, out)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	h.unharmed(t)
	if out, err := h.attacker(t, u, "join").CombinedOutput(); err != nil {
		t.Errorf("the user is not served any more: %v, %s", err, out)
	}
}

// TestClientKilled: what a client held dies with it, frozen or not, and its group goes.
func TestClientKilled(t *testing.T) {
	u := testuser.Unprivileged(t)
	h := start(t)
	for _, how := range []string{"", "frozen"} {
		t.Run("held"+how, func(t *testing.T) {
			cmd, _, said := h.background(t, u, "hold:"+how)
			pid, err := strconv.Atoi(said[0])
			if err != nil {
				t.Fatal(err)
			}
			if len(groups(t, sessionPrefix())) == 0 {
				t.Fatal("there is no group, nothing is shown")
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			cmd.Wait() // killed
			eventually(t, "the process in the group is dead", func() bool { return !runs(pid) })
			h.unharmed(t)
		})
	}
}

// runs says that a process is neither gone nor a zombie.
func runs(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	text := string(data)
	return err == nil && !strings.HasPrefix(text[strings.LastIndexByte(text, ')')+1:], " Z")
}

// TestHelperEnds: told to end, it ends every session first.
func TestHelperEnds(t *testing.T) {
	u := testuser.Unprivileged(t)
	h := start(t)
	cmd, _, said := h.background(t, u, "hold:")
	h.stop(t)
	if err := cmd.Wait(); err != nil {
		t.Errorf("the client did not see the end: %v", err)
	}
	if pid, err := strconv.Atoi(said[0]); err != nil || runs(pid) {
		t.Errorf("process %d runs on without its walls (%v)", pid, err)
	}
	if left := groups(t, sessionPrefix()); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := os.Stat(h.socket); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// TestHelperKilled: the client is told, and the next helper removes what the dead one held.
func TestHelperKilled(t *testing.T) {
	h := start(t)
	c, err := wallsd.Open(h.socket, ward.Request{Name: sessionPrefix() + "-k"})
	if err != nil {
		t.Fatal(err)
	}
	h.kill(t)
	select {
	case err := <-c.Fallen():
		if err == nil || !strings.Contains(err.Error(), "ended") {
			t.Errorf("fallen: %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("the client heard nothing")
	}
	if err := errors.Join(c.Kill(), c.Remove()); err != nil {
		t.Error(err)
	}
	if len(groups(t, sessionPrefix())) == 0 {
		t.Error("the group is gone already, nothing is shown")
	}
	again := start(t)
	c, err = wallsd.Open(again.socket, ward.Request{Name: sessionPrefix() + "-l"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Remove(); err != nil {
		t.Error(err)
	}
	again.unharmed(t)
}

// TestOneHelper: a second one does not take the socket away.
func TestOneHelper(t *testing.T) {
	h := start(t)
	out, err := exec.Command(filepath.Join(bin, "coworker-wallsd"), "--socket", h.socket).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "another helper serves") {
		t.Errorf("a second helper: %v, %s", err, out)
	}
	cmd := testuser.Unprivileged(t).Command(t.Context(), t.TempDir(), filepath.Join(bin, "coworker-wallsd"), "--socket", "/tmp/x")
	cmd.Dir = "/"
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "as root") {
		t.Errorf("without root: %v, %s", err, out)
	}
	h.unharmed(t)
}

// TestSocketOfAnother: a client talks to root's helper alone.
func TestSocketOfAnother(t *testing.T) {
	u := testuser.Unprivileged(t)
	dir := u.Dir(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	h := &helper{socket: filepath.Join(dir, "s")}
	cmd := h.attacker(t, u, "listen")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Signal(syscall.SIGKILL)
		cmd.Wait() // killed
	}()
	socket := h.socket
	eventually(t, "the false helper listens", func() bool { _, err := wallsd.Ask(socket); return !errors.Is(err, wallsd.ErrAbsent) })
	if _, err := wallsd.Ask(socket); err == nil || !strings.Contains(err.Error(), "not to root") {
		t.Errorf("a helper of uid %d: %v", u.UID, err)
	}
}
