package wallsd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// attacks are what an unprivileged user tries. Each returns what went better than it should.
var attacks = map[string]func(arg string) error{
	"join": attackJoin, "foreign": attackForeign, "self": attackSelf, "promise": attackPromise, "ended": attackEnded, "thread": attackThread,
	"nopidfd": attackNoPidfd, "flood": attackFlood, "garbage": attackGarbage, "order": attackOrder, "names": attackNames,
	"many": attackMany, "silent": attackSilent, "deaf": attackDeaf, "trees": attackTrees, "write": attackWrite, "hold": attackHold,
	"setuid": attackSetuid, "listen": attackListen,
}

// attackJoin is the control: what may be done is done, and undone.
func attackJoin(string) error {
	k, err := open("")
	if err != nil {
		return err
	}
	cmd, err := child(true)
	if err != nil {
		return err
	}
	defer reap(cmd)
	pid := cmd.Process.Pid
	fd, err := pidfd(pid)
	if err != nil {
		return err
	}
	before := groupsOf(pid)
	text, answer, err := k.ask("join", "", fd)
	if err != nil || text != "" {
		return fmt.Errorf("join: %q, %w", text, err)
	}
	if !strings.Contains(groupsOf(pid), os.Getenv(nameVar)) {
		return fmt.Errorf("joined, and is in\n%s", groupsOf(pid))
	}
	ticket := int(answer["ticket"].(float64))
	if text, _, err = k.ask("leave", `,"ticket":`+strconv.Itoa(ticket)); err != nil || text != "" {
		return fmt.Errorf("leave: %q, %w", text, err)
	}
	if after := groupsOf(pid); after != before {
		return fmt.Errorf("left to\n%swant\n%s", after, before)
	}
	for _, wrong := range []int{ticket, 0, -1, 99} {
		if text, _, err = k.ask("leave", `,"ticket":`+strconv.Itoa(wrong)); err != nil || !strings.Contains(text, "no ticket") {
			return fmt.Errorf("leave with ticket %d: %q, %w", wrong, text, err)
		}
	}
	if text, _, err = k.ask("join", "", fd); err != nil || text != "" {
		return fmt.Errorf("join again: %q, %w", text, err)
	}
	for _, op := range []string{"freeze", "thaw", "kill"} {
		rest := map[string]string{"freeze": `,"limit":5000000000`}[op]
		if text, _, err = k.ask(op, rest); err != nil || text != "" {
			return fmt.Errorf("%s: %q, %w", op, text, err)
		}
	}
	if signal, err := endedBy(cmd, 5*time.Second); err != nil || signal != syscall.SIGKILL {
		return fmt.Errorf("after kill: %v, %w", signal, err)
	}
	text, _, err = k.ask("remove", "")
	if err != nil || text != "" {
		return fmt.Errorf("remove: %q, %w", text, err)
	}
	return nil
}

// attackForeign names a process that is not below this one, by number.
func attackForeign(arg string) error {
	k, err := open("")
	if err != nil {
		return err
	}
	number, reason, _ := strings.Cut(arg, "=")
	pid, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	fd, err := pidfd(pid)
	if err != nil {
		return err
	}
	if err := expectRefused(k, pid, fd, reason); err != nil {
		return err
	}
	// A number is believed in no form.
	if text, _, err := k.ask("join", `,"pid":`+number, fd); !errors.Is(err, io.EOF) && !strings.Contains(text, "protocol") {
		return fmt.Errorf("a number in the request: %q, %w", text, err)
	}
	return nil
}

func attackSelf(string) error {
	k, err := open("")
	if err != nil {
		return err
	}
	fd, err := pidfd(os.Getpid())
	if err != nil {
		return err
	}
	// The test binary makes no promise, so that is what comes first; with it the walk says no.
	if err := expectRefused(k, os.Getpid(), fd, "gain privileges"); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if fd, err = pidfd(os.Getppid()); err != nil {
		return err
	}
	return expectRefused(k, os.Getppid(), fd, "not a process that may join")
}

// attackPromise: a process that could become root by a set-uid program would drag root's process into a group that this
// user freezes and kills.
func attackPromise(string) error {
	k, err := open("")
	if err != nil {
		return err
	}
	cmd, err := child(false)
	if err != nil {
		return err
	}
	defer reap(cmd)
	fd, err := pidfd(cmd.Process.Pid)
	if err != nil {
		return err
	}
	return expectRefused(k, cmd.Process.Pid, fd, "gain privileges")
}

// attackSetuid: a process below this one that became root already.
func attackSetuid(program string) error {
	k, err := open("")
	if err != nil {
		return err
	}
	cmd := exec.Command(program, "300")
	if err := cmd.Start(); err != nil {
		return err
	}
	defer reap(cmd)
	status := ""
	for range 100 { // until it executes
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
		if status = string(data); err == nil && strings.Contains(status, "\t0\t0\t") {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if !strings.Contains(status, "\t0\t0\t") {
		return fmt.Errorf("the set-uid program does not run as root, nothing is shown:\n%s", status)
	}
	fd, err := pidfd(cmd.Process.Pid)
	if err != nil {
		return err
	}
	return expectRefused(k, cmd.Process.Pid, fd, "does not belong to uid")
}

func attackEnded(string) error {
	k, err := open("")
	if err != nil {
		return err
	}
	for _, reaped := range []bool{false, true} {
		cmd, err := child(true)
		if err != nil {
			return err
		}
		fd, err := pidfd(cmd.Process.Pid)
		if err != nil {
			return err
		}
		cmd.Process.Kill()
		if reaped {
			cmd.Wait() // killed
		} else {
			time.Sleep(100 * time.Millisecond)
		}
		if err := expectRefused(k, cmd.Process.Pid, fd, "ended"); err != nil {
			return err
		}
	}
	return nil
}

// attackThread names a thread of this process (PIDFD_THREAD, Linux 6.9), whose number is nobody's process.
func attackThread(string) error {
	k, err := open("")
	if err != nil {
		return err
	}
	go func() { select {} }()
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		if err != nil || tid == os.Getpid() {
			continue
		}
		fd, err := unix.PidfdOpen(tid, unix.O_EXCL)
		if errors.Is(err, unix.EINVAL) {
			return nil // no such descriptors on this kernel
		}
		if err != nil {
			continue // the thread ended
		}
		if err := expectRefused(k, os.Getpid(), fd, "not a process that may join"); err != nil {
			return err
		}
	}
	return nil
}

// attackNoPidfd sends descriptors of other things.
func attackNoPidfd(string) error {
	k, err := open("")
	if err != nil {
		return err
	}
	if err := os.WriteFile("pidfd:[1]", []byte("Pid:\t1\n"), 0o600); err != nil {
		return err
	}
	file, err := os.Open("pidfd:[1]")
	if err != nil {
		return err
	}
	mem, err := unix.MemfdCreate("anon_inode:[pidfd]", 0)
	if err != nil {
		return err
	}
	event, err := unix.Eventfd(0, 0)
	if err != nil {
		return err
	}
	self, err := os.Open("/proc/self")
	if err != nil {
		return err
	}
	for _, fd := range []int{int(file.Fd()), mem, event, int(self.Fd()), 0} {
		if err := expectRefused(k, 1, fd, "no pidfd"); err != nil {
			return err
		}
	}
	return nil
}

// attackFlood sends descriptors where none, or one, belongs, and as many as a packet takes.
func attackFlood(string) error {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	for _, n := range []int{1, 2, 4, 5, 100, 253} {
		files := make([]int, n)
		for i := range files {
			files[i] = int(null.Fd())
		}
		for _, op := range []string{"counts", "join", "kill", "remove"} {
			if op == "join" && n == 1 {
				continue
			}
			k, err := open("")
			if err != nil {
				return fmt.Errorf("%d descriptors with %s: %w", n, op, err)
			}
			text, _, err := k.ask(op, "", files...)
			if !errors.Is(err, io.EOF) {
				return fmt.Errorf("%d descriptors with %s: %q, %w, want the connection closed", n, op, text, err)
			}
			if err := free(); err != nil {
				return err
			}
		}
	}
	// In the first packet too.
	k, err := dial()
	if err != nil {
		return err
	}
	text, _, err := k.ask("hello", `,"version":1`, int(null.Fd()), int(null.Fd()))
	if text == "" && !errors.Is(err, io.EOF) {
		return fmt.Errorf("descriptors with hello: %w", err)
	}
	return nil
}

// free waits until the name of the last session can be used again.
func free() error {
	var err error
	for range 200 {
		var k *talker
		if k, err = open(""); err == nil {
			_, _, err = k.ask("remove", "")
			k.conn.Close()
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

func attackGarbage(string) error {
	for _, text := range []string{
		"", "x", "{", "null", "[]", `{"seq":1}`, `{"seq":1,"op":"hello","version":1,"more":1}`, strings.Repeat("[", 60000), strings.Repeat("a", 64<<10), strings.Repeat("a", 64<<10+1),
		strings.Repeat(" ", 150_000) + `{"seq":1,"op":"hello","version":1}`, `{"seq":18446744073709551616,"op":"hello"}`, "\x00\xff\xfe", `{"seq":1,"op":"hello","version":2}`,
		`{"seq":1,"op":"open","name":"x","limits":{}}`, `{"seq":1,"op":"kill"}`,
	} {
		for _, begun := range []bool{false, true} {
			k, err := dial()
			if begun && err == nil {
				k, err = open("")
			}
			if err != nil {
				return err
			}
			if err := k.send(text); err != nil {
				return fmt.Errorf("send %.40q: %w", text, err)
			}
			m, err := k.hear()
			if err == nil && m["error"] != nil {
				_, err = k.hear()
			}
			if !errors.Is(err, io.EOF) {
				return fmt.Errorf("%.40q (session begun: %v): %v, %v, want the connection closed", text, begun, m, err)
			}
			k.conn.Close()
			if begun {
				if err := free(); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// attackOrder asks for things in an order that has no meaning.
func attackOrder(string) error {
	k, err := open("")
	if err != nil {
		return err
	}
	for _, op := range []string{`hello`, `open`} {
		rest := map[string]string{"hello": `,"version":1`, "open": `,"name":"again","limits":{}`}[op]
		if text, _, err := k.ask(op, rest); err != nil || !strings.Contains(text, "beginning") {
			return fmt.Errorf("%s twice: %q, %w", op, text, err)
		}
	}
	if text, _, err := k.ask("remove", ""); err != nil || text != "" {
		return fmt.Errorf("remove: %q, %w", text, err)
	}
	cmd, err := child(true)
	if err != nil {
		return err
	}
	defer reap(cmd)
	fd, err := pidfd(cmd.Process.Pid)
	if err != nil {
		return err
	}
	if err := expectRefused(k, cmd.Process.Pid, fd, "removed"); err != nil {
		return err
	}
	k.seq--
	if _, _, err := k.ask("counts", ""); !errors.Is(err, io.EOF) {
		return fmt.Errorf("a number twice: %w, want the connection closed", err)
	}
	return nil
}

// attackNames tries to get at groups that are not this session's.
func attackNames(string) error {
	k, err := open("")
	if err != nil {
		return err
	}
	defer k.conn.Close()
	if _, err := open(""); err == nil || !strings.Contains(err.Error(), "file exists") {
		return fmt.Errorf("a name twice: %v", err)
	}
	for _, name := range []string{"../x", "/x", "", "x/y", "u0-x/../..", ".", "X", "a b", "-a"} {
		k, err := dial()
		if err != nil {
			return err
		}
		if text, _, err := k.ask("hello", `,"version":1`); err != nil || text != "" {
			return fmt.Errorf("hello: %q, %w", text, err)
		}
		text, _, err := k.ask("open", fmt.Sprintf(`,"name":%q,"limits":{}`, name))
		if !errors.Is(err, io.EOF) && !strings.Contains(text, "name") {
			return fmt.Errorf("name %q: %q, %w", name, text, err)
		}
	}
	return nil
}
