package credential

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// desk is a person at a terminal of their own, in front of a running coworker.
type desk struct {
	*person
	t        *testing.T
	terminal *os.File // the end that programs have
	master   *os.File
	cmd      *exec.Cmd
	before   unix.Termios
	reading  sync.WaitGroup

	mu   sync.Mutex
	more *sync.Cond
	text strings.Builder // all that the terminal showed
	gone bool
}

// sit starts coworker with the flags of exec on a terminal. Its standard input is the terminal, unless there is another.
func (p *person) sit(t *testing.T, program string, stdin *os.File, args ...string) *desk {
	t.Helper()
	d := &desk{person: p, t: t}
	d.more = sync.NewCond(&d.mu)
	master, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	// A blocking file would be closed only when its reader returns.
	fd, err := unix.FcntlInt(master.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err := errors.Join(err, master.Close(), unix.SetNonblock(fd, true)); err != nil {
		t.Fatal(err)
	}
	d.master, d.terminal = os.NewFile(uintptr(fd), "master"), terminal
	d.before = d.mode()
	d.cmd = p.command(t.Context(), append([]string{"exec", "-w", "--report", filepath.Join(p.base, "report.json")}, args...)...)
	d.cmd.Path = program
	d.cmd.Stdin, d.cmd.Stdout, d.cmd.Stderr, d.cmd.ExtraFiles = d.terminal, d.terminal, d.terminal, []*os.File{d.terminal}
	if stdin != nil {
		d.cmd.Stdin = stdin
	}
	if d.cmd.SysProcAttr == nil {
		d.cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	d.cmd.SysProcAttr.Setsid, d.cmd.SysProcAttr.Setctty, d.cmd.SysProcAttr.Ctty = true, true, 3
	if err := p.begin(d.cmd); err != nil {
		t.Fatal(err)
	}
	d.reading.Go(d.read)
	t.Cleanup(d.leave)
	return d
}

func (d *desk) leave() {
	d.terminal.Close()
	d.master.Close()
	d.reading.Wait()
}

// read collects what the terminal shows until its other ends are closed.
func (d *desk) read() {
	buf := make([]byte, 4096)
	for {
		n, err := d.master.Read(buf)
		d.mu.Lock()
		d.text.Write(buf[:n])
		d.gone = err != nil
		d.more.Broadcast()
		d.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (d *desk) mode() unix.Termios {
	d.t.Helper()
	mode, err := unix.IoctlGetTermios(int(d.terminal.Fd()), unix.TCGETS)
	if err != nil {
		d.t.Fatal(err)
	}
	return *mode
}

// shown is what the terminal showed so far.
func (d *desk) shown() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.text.String()
}

// wait reads on until a text stands there n times.
func (d *desk) wait(text string, n int) {
	d.t.Helper()
	late := time.AfterFunc(patience, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.gone = true
		d.more.Broadcast()
	})
	defer late.Stop()
	d.mu.Lock()
	defer d.mu.Unlock()
	for strings.Count(d.text.String(), text) < n {
		if d.gone {
			d.t.Fatalf("the terminal does not show %q %d times:\n%s", text, n, d.text.String())
		}
		d.more.Wait()
	}
}

func (d *desk) types(text string) {
	d.t.Helper()
	if _, err := d.master.WriteString(text); err != nil {
		d.t.Fatal(err)
	}
}

// ends waits for coworker, and wants the terminal as it was.
func (d *desk) ends() ended {
	d.t.Helper()
	err := d.cmd.Wait()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		d.t.Fatalf("%v\n%s", err, d.shown())
	}
	if after := d.mode(); after != d.before {
		d.t.Errorf("the terminal was %+v and is %+v", d.before, after)
	}
	e := ended{code: d.cmd.ProcessState.ExitCode()}
	e.readReport(d.t, filepath.Join(d.base, "report.json"))
	d.types("\n# the end\n") // echoed behind all that was written
	d.wait("# the end", 1)
	e.out = d.shown()
	return e
}

// answers are the rows about questions, oldest first.
func (p *person) answers(t *testing.T) []answer {
	t.Helper()
	var out []answer
	for line := range strings.Lines(p.must(t, "", "audit", "export").out) {
		var a answer
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		if a.Stage == "ask" {
			out = append(out, a)
		}
	}
	return out
}

type answer struct {
	Stage    string `json:"stage"`
	Status   string `json:"status"`
	Reason   string `json:"reason"`
	Resource string `json:"resource"`
	Rule     string `json:"rule"`
	Actor    string `json:"actor"`
	Approver string `json:"approver"`
}

const prompt = "allow? [y/N] "

var asking = []string{"--ask", "--"}

func (p *person) program() string { return filepath.Join(built, "coworker") }

func TestAskYesAndNo(t *testing.T) {
	eachUser(t, func(t *testing.T, p *person) {
		for _, c := range []struct {
			name, typed, status, page string
			code                      int
		}{
			{"yes", "y\n", "allow", "welcome GET /x", 0}, {"in words", " YES \n", "allow", "welcome GET /x", 0}, {"no", "n\n", "deny", "", 56},
			{"enter", "\n", "deny", "", 56}, {"another word", "yesterday\n", "deny", "", 56}, {"end of file", "\x04", "deny", "", 56},
		} {
			t.Run(c.name, func(t *testing.T) {
				before := len(p.answers(t))
				d := p.sit(t, p.program(), nil, append(asking, "curl", "-sS", "https://ask.test/x")...)
				d.wait(prompt, 1)
				if !strings.Contains(d.shown(), "ask.test:443") {
					t.Errorf("the question does not name the host: %s", d.shown())
				}
				d.types(c.typed)
				e := d.ends()
				if e.code != c.code || !strings.Contains(e.out, c.page) {
					t.Error(e)
				}
				rows := p.answers(t)[before:]
				if len(rows) != 1 || rows[0].Status != c.status || rows[0].Resource != "ask.test:443" {
					t.Fatalf("rows %+v", rows)
				}
				if yes := c.status == "allow"; yes != (rows[0].Approver != "" && rows[0].Approver == rows[0].Actor) {
					t.Errorf("the approver is %+v", rows[0])
				}
			})
		}
	})
}

// TestAskOnce: one question for a host and port, however many connections wait for it, and again none after the answer.
func TestAskOnce(t *testing.T) {
	eachUser(t, func(t *testing.T, p *person) {
		d := p.sit(t, p.program(), nil, append(asking, "sh", "-c",
			"for i in 1 2 3 4 5; do curl -sS https://ask.test/$i & done; wait; curl -sS https://ask.test/6; curl -sS http://ask.test/7")...)
		d.wait(prompt, 1)
		d.types("y\n")
		d.wait(prompt, 2) // another port is another question
		d.types("n\n")
		e := d.ends()
		if e.code != 0 && e.code != 56 || strings.Count(e.out, prompt) != 2 {
			t.Error(e)
		}
		for i := 1; i <= 6; i++ {
			if !strings.Contains(e.out, fmt.Sprintf("welcome GET /%d", i)) {
				t.Errorf("no page %d: %s", i, e)
			}
		}
		if strings.Contains(e.out, "GET /7") {
			t.Error("a no let something through")
		}
	})
}

// TestAskStandsStill: while a question stands, nothing inside writes, reads or answers.
func TestAskStandsStill(t *testing.T) {
	eachUser(t, func(t *testing.T, p *person) {
		d := p.sit(t, p.program(), nil, append(asking, "sh", "-c",
			"(while :; do echo tick; done) & (while :; do echo '"+prompt+"y'; done) & read typed; echo \"read $typed\"; curl -sS https://ask.test/x; kill 0")...)
		d.wait("tick", 10)
		d.types("y\n")                                  // for a question of the program's own: it goes to the program
		end := "until this command ends\r\r\n" + prompt // in the question only
		d.wait(end, 1)
		time.Sleep(300 * time.Millisecond) // room for what must not come
		if _, after, _ := strings.Cut(d.shown(), end); after != "" {
			t.Errorf("written while the question stood: %.200q", after)
		}
		d.types("n\n")
		e := d.ends()
		if !strings.Contains(e.out, "read y") {
			t.Errorf("the program did not get what was typed before: %.300q", e.out)
		}
		if rows := p.answers(t); len(rows) != 1 || rows[0].Status != "deny" {
			t.Errorf("rows %+v", rows)
		}
	})
}

// TestAskTypedAhead: what stands in the terminal before the question is no answer to it.
func TestAskTypedAhead(t *testing.T) {
	eachUser(t, func(t *testing.T, p *person) {
		null, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer null.Close()
		d := p.sit(t, p.program(), null, append(asking, "sh", "-c", "echo ready; until test -e go; do sleep 0.01; done; curl -sS https://ask.test/x")...)
		d.wait("ready", 1)
		d.types("y\ny\ny\n")
		d.wait("y", 3) // echoed
		p.write(t, filepath.Join(p.work, "go"), "")
		d.wait(prompt, 1)
		d.types("n\n")
		if e := d.ends(); strings.Contains(e.out, "welcome") {
			t.Error(e)
		}
		if rows := p.answers(t); len(rows) != 1 || rows[0].Status != "deny" || rows[0].Reason != "the person said no" {
			t.Errorf("rows %+v", rows)
		}
	})
}

// TestAskTime: who says nothing says no.
func TestAskTime(t *testing.T) {
	eachUser(t, func(t *testing.T, p *person) {
		d := p.sit(t, filepath.Join(built, "quick", "coworker"), nil, append(asking, "curl", "-sS", "https://ask.test/x")...)
		d.wait(prompt, 1)
		e := d.ends()
		if e.code != 56 || strings.Contains(e.out, "welcome") || !strings.Contains(e.out, "no answer, refused") {
			t.Error(e)
		}
		if rows := p.answers(t); len(rows) != 1 || rows[0].Status != "deny" || !strings.HasPrefix(rows[0].Reason, "no answer") {
			t.Errorf("rows %+v", rows)
		}
	})
}

// TestAskInterrupted: Ctrl-C at the question ends the command, and is no yes.
func TestAskInterrupted(t *testing.T) {
	eachUser(t, func(t *testing.T, p *person) {
		for _, flags := range [][]string{{"--ask"}, {"--ask", "--tty"}} {
			d := p.sit(t, p.program(), nil, append(flags, "--", "curl", "-sS", "https://ask.test/x")...)
			d.wait(prompt, 1)
			begun := time.Now()
			d.types("\x03")
			e := d.ends()
			// The command ends of the signal, or a moment before of the connection that was refused.
			if e.code != 130 && e.code != 56 || strings.Contains(e.out, "welcome") || time.Since(begun) > 10*time.Second {
				t.Errorf("%v after %v", e, time.Since(begun))
			}
		}
	})
}

// TestAskManyHosts: a program that asks for one host after the other cannot keep the person from leaving.
func TestAskManyHosts(t *testing.T) {
	eachUser(t, func(t *testing.T, p *person) {
		d := p.sit(t, p.program(), nil, append(asking, "sh", "-c", "for i in $(seq 40); do curl -sS https://h$i.ask.test/ & done; wait")...)
		d.wait(prompt, 1)
		begun := time.Now()
		d.types("\x03")
		if e := d.ends(); e.code == 0 || time.Since(begun) > 20*time.Second {
			t.Errorf("%v after %v", e, time.Since(begun))
		}
		for _, row := range p.answers(t) {
			if row.Status != "deny" {
				t.Errorf("row %+v", row)
			}
		}
	})
}

// TestAskHungUp: a terminal that goes away has said no, and everything ends.
func TestAskHungUp(t *testing.T) {
	eachUser(t, func(t *testing.T, p *person) {
		d := p.sit(t, p.program(), nil, append(asking, "curl", "-sS", "https://ask.test/x")...)
		d.wait(prompt, 1)
		family := family(t, d.cmd.Process.Pid)
		d.terminal.Close()
		d.master.Close()
		err := d.cmd.Wait()
		if code := d.cmd.ProcessState.ExitCode(); code <= 0 {
			t.Errorf("exit code %d: %v", code, err)
		}
		if len(p.take()) > 0 {
			t.Error("a request arrived")
		}
		for _, pid := range family {
			if data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && len(data) > 0 {
				t.Errorf("process %d is left: %q", pid, data)
			}
		}
		if rows := p.answers(t); len(rows) != 1 || rows[0].Status != "deny" {
			t.Errorf("rows %+v", rows)
		}
	})
}

// TestAskOpensNoPrivateNetwork: a yes is to a name. What the name leads to is judged as ever.
func TestAskOpensNoPrivateNetwork(t *testing.T) {
	eachUser(t, func(t *testing.T, p *person) {
		d := p.sit(t, p.program(), nil, append(asking, "curl", "-sS", "http://other.test/x")...)
		d.wait(prompt, 1)
		d.types("y\n")
		if e := d.ends(); !strings.Contains(e.out, addresses["other.test"]+" lies in") || len(p.take()) > 0 {
			t.Error(e)
		}
	})
}

// TestAskWithTerminal: the command has a terminal too. The question is asked in lines, and the rest is raw again.
func TestAskWithTerminal(t *testing.T) {
	eachUser(t, func(t *testing.T, p *person) {
		d := p.sit(t, p.program(), nil, "--ask", "--tty", "--", "sh", "-c", "curl -sS https://ask.test/x; stty -echo; echo now; read line; echo \"got <$line>\"")
		d.wait(prompt, 1)
		if mode := d.mode(); mode.Lflag&unix.ICANON == 0 || mode.Lflag&unix.ECHO == 0 {
			t.Errorf("the question is asked in mode %+v", mode)
		}
		d.types("y\n")
		d.wait("now", 1)
		if mode := d.mode(); mode.Lflag&unix.ICANON != 0 {
			t.Errorf("after the question the mode is %+v", mode)
		}
		d.types("typed\r")
		e := d.ends()
		if e.code != 0 || !strings.Contains(e.out, "welcome GET /x") || !strings.Contains(e.out, "got <typed>") {
			t.Error(e)
		}
	})
}

// TestAskKeepsInput: a command that reads its input loses none of it to the question.
func TestAskKeepsInput(t *testing.T) {
	eachUser(t, func(t *testing.T, p *person) {
		t.Run("lines", func(t *testing.T) {
			d := p.sit(t, p.program(), nil, append(asking, "sh", "-c", "exec 3<&0; (cat <&3 > lines; echo done) & curl -sS https://ask.test/x; wait")...)
			d.types("one\n")
			d.wait(prompt, 1)
			d.types("y\n")
			d.wait("welcome", 1)
			d.types("two\nthree\n\x04")
			d.wait("done", 1)
			d.ends()
			if data, err := os.ReadFile(filepath.Join(p.work, "lines")); err != nil || string(data) != "one\ntwo\nthree\n" {
				t.Errorf("the command read %q (%v)", data, err)
			}
		})
		t.Run("pipe", func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			sent := make([]byte, 4<<20)
			rand.Read(sent)
			d := p.sit(t, p.program(), r, append(asking, "sh", "-c", "exec 3<&0; (cat <&3 > bytes) & curl -sS https://ask.test/y; wait")...)
			var writing sync.WaitGroup
			writing.Go(func() { _, _ = io.Copy(w, bytes.NewReader(sent)); w.Close() })
			d.wait(prompt, 1)
			d.types("y\n")
			e := d.ends()
			writing.Wait()
			got, err := os.ReadFile(filepath.Join(p.work, "bytes"))
			if err != nil || !slices.Equal(got, sent) || !strings.Contains(e.out, "welcome GET /y") {
				t.Errorf("%d of %d octets: %v %v", len(got), len(sent), err, e)
			}
		})
	})
}

// TestAskWithoutTerminal: nobody to ask is no reason to begin.
func TestAskWithoutTerminal(t *testing.T) {
	eachUser(t, func(t *testing.T, p *person) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		cmd := p.command(ctx, "exec", "-w", "--ask", "--", "touch", "ran")
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{}
		}
		cmd.SysProcAttr.Setsid = true
		var errs strings.Builder
		cmd.Stderr = &errs
		err := errors.Join(p.begin(cmd), cmd.Wait())
		if cmd.ProcessState.ExitCode() != 122 || !strings.Contains(errs.String(), "hint:") {
			t.Errorf("%v: %s", err, errs.String())
		}
		if _, err := os.Stat(filepath.Join(p.work, "ran")); err == nil {
			t.Error("the command ran")
		}
	})
}
