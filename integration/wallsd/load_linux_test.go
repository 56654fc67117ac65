package wallsd

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// attackMany opens far more connections than one user may have. It tells when it holds them all and waits for a line.
func attackMany(arg string) error {
	n, err := strconv.Atoi(arg)
	if err != nil {
		return err
	}
	served, refused := 0, 0
	var held []*talker
	for i := range n {
		k, err := dial()
		if errors.Is(err, unix.EAGAIN) { // the queue of the listener is full: try again
			time.Sleep(10 * time.Millisecond)
			k, err = dial()
		}
		if err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
		text, _, err := k.ask("hello", `,"version":1`)
		switch {
		case err == nil && text == "":
			text, _, err = k.ask("open", fmt.Sprintf(`,"name":"%s-%d","limits":{"processes":8}`, os.Getenv(nameVar), i))
			if err != nil || text != "" {
				return fmt.Errorf("open %d: %q, %w", i, text, err)
			}
			served++
			held = append(held, k)
		case strings.Contains(text, "may have no more"), errors.Is(err, io.EOF), errors.Is(err, unix.EPIPE):
			refused++
			k.conn.Close()
		default:
			return fmt.Errorf("hello %d: %q, %w", i, text, err)
		}
	}
	fmt.Println("held", served, refused)
	waitForLine()
	for _, k := range held {
		k.conn.Close()
	}
	return nil
}

func waitForLine() { os.Stdin.Read(make([]byte, 1)) }

// attackSilent connects and says nothing, or only hello.
func attackSilent(string) error {
	var silent []*talker
	for i := range 50 {
		k, err := dial()
		if err != nil {
			return err
		}
		if i%2 == 0 {
			if text, _, err := k.ask("hello", `,"version":1`); err != nil || text != "" {
				return fmt.Errorf("hello: %q, %w", text, err)
			}
		}
		silent = append(silent, k)
	}
	begun := time.Now()
	for _, k := range silent {
		if _, err := k.hear(); !errors.Is(err, io.EOF) {
			return fmt.Errorf("after %v of silence: %w, want the connection closed", time.Since(begun), err)
		}
	}
	if took := time.Since(begun); took > 9*time.Second {
		return fmt.Errorf("silent connections were held for %v", took)
	}
	return nil
}

// attackDeaf asks and never reads.
func attackDeaf(string) error {
	k, err := open("")
	if err != nil {
		return err
	}
	k.conn.SetWriteBuffer(1 << 20)
	for i := range 1_000_000 {
		k.seq++
		if err := k.send(fmt.Sprintf(`{"seq":%d,"op":"state"}`, k.seq)); err != nil {
			if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
				return nil
			}
			return fmt.Errorf("request %d: %w", i, err)
		}
	}
	return errors.New("a million requests were taken from somebody who reads no answer")
}

// attackTrees sends lists that are no lists, and too long ones.
func attackTrees(string) error {
	garbage := base64.StdEncoding.EncodeToString([]byte(`{"trees":[{"path":5}]}`))
	long := base64.StdEncoding.EncodeToString(make([]byte, 40<<10))
	for _, tt := range []struct {
		part, want string
		times      int
	}{{garbage, "trees", 1}, {long, "bytes", 500}} {
		k, err := open("")
		if err != nil {
			return err
		}
		text := ""
		for i := 0; i < tt.times && text == ""; i++ {
			last := tt.times == 1
			if text, _, err = k.ask("guard", fmt.Sprintf(`,"part":%q,"last":%v`, tt.part, last)); err != nil {
				return err
			}
		}
		if !strings.Contains(text, tt.want) {
			return fmt.Errorf("trees %.20q: %q, want a refusal with %q", tt.part, text, tt.want)
		}
		if text, _, err := k.ask("guard", `,"part":"e30=","last":true`); err != nil || !strings.Contains(text, "already") {
			return fmt.Errorf("trees again: %q, %w", text, err)
		}
		k.conn.Close()
		if err := free(); err != nil {
			return err
		}
	}
	return nil
}

// attackWrite: the group is root's. Nobody moves a process by hand, lifts a limit or thaws what is frozen.
func attackWrite(string) error {
	k, err := open("")
	if err != nil {
		return err
	}
	defer k.conn.Close()
	found := 0
	for _, pattern := range []string{"/sys/fs/cgroup/coworker/u*-", "/sys/fs/cgroup/*/coworker/u*-"} {
		dirs, err := filepath.Glob(pattern + os.Getenv(nameVar) + "*")
		if err != nil {
			return err
		}
		for _, dir := range dirs {
			found++
			for _, name := range []string{"cgroup.procs", "pids.max", "memory.max", "memory.limit_in_bytes", "cgroup.freeze", "freezer.state", "cgroup.kill", "new"} {
				if f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE, 0o600); err == nil {
					return errors.Join(fmt.Errorf("%s can be written", f.Name()), f.Close())
				}
			}
			if err := os.Remove(dir); err == nil {
				return fmt.Errorf("%s can be removed", dir)
			}
		}
	}
	if found == 0 {
		return errors.New("no group was found, nothing is shown")
	}
	return nil
}

// attackListen takes the place of a helper.
func attackListen(string) error {
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: os.Getenv(socketVar), Net: "unixpacket"})
	if err != nil {
		return err
	}
	for {
		if _, err := l.Accept(); err != nil {
			return err
		}
	}
}

// attackHold holds a session with a process in it, frozen if asked, until it is killed.
func attackHold(arg string) error {
	k, err := open("")
	if err != nil {
		return err
	}
	cmd, err := child(true)
	if err != nil {
		return err
	}
	fd, err := pidfd(cmd.Process.Pid)
	if err != nil {
		return err
	}
	if text, _, err := k.ask("join", "", fd); err != nil || text != "" {
		return fmt.Errorf("join: %q, %w", text, err)
	}
	if arg == "frozen" {
		if text, _, err := k.ask("freeze", `,"limit":5000000000`); err != nil || text != "" {
			return fmt.Errorf("freeze: %q, %w", text, err)
		}
	}
	fmt.Println("held", cmd.Process.Pid)
	if _, err := k.hear(); errors.Is(err, io.EOF) {
		_, err = endedBy(cmd, 10*time.Second)
		return err
	}
	waitForLine()
	return nil
}
