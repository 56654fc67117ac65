package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"coworker/netproxy/control"
)

func build(t *testing.T, tags string) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "coworker-proxy")
	c := exec.Command("go", "build", "-tags", tags, "-o", bin, ".")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return bin
}

// process is the program with a supervisor's end of its line.
type process struct {
	cmd    *exec.Cmd
	line   *control.Conn
	proxy  string
	stderr bytes.Buffer
}

// start gives the program its descriptors without those of IPv6, as on a kernel without it.
func start(t *testing.T, bin string, cfg control.Config) *process {
	t.Helper()
	p := &process{cmd: exec.Command(bin)}
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	mine := os.NewFile(uintptr(pair[0]), "mine")
	conn, err := net.FileConn(mine)
	mine.Close()
	if err != nil {
		t.Fatal(err)
	}
	p.line = control.NewConn(conn, control.MaxLine)
	files := []*os.File{os.NewFile(uintptr(pair[1]), "theirs")}
	for range 2 {
		l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		if p.proxy == "" {
			p.proxy = l.Addr().String()
		}
		f, _ := l.File()
		l.Close()
		files = append(files, f)
	}
	u, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	uf, _ := u.File()
	u.Close()
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	lf, _ := l.File()
	l.Close()
	p.cmd.ExtraFiles = append(files, uf, lf)
	p.cmd.Stderr = &p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, f := range p.cmd.ExtraFiles {
		f.Close()
	}
	t.Cleanup(func() { p.line.Close(); p.cmd.Process.Kill(); p.cmd.Wait() })
	if err := p.line.Send(control.Message{Config: &cfg}); err != nil {
		t.Fatal(err)
	}
	if m, err := p.line.Receive(); err != nil || m.Ready == nil {
		p.cmd.Wait()
		t.Fatalf("%v %v: %s", m, err, p.stderr.String())
	}
	return p
}

func (p *process) ask(t *testing.T, text string) string {
	t.Helper()
	c, err := net.Dial("tcp4", p.proxy)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(c, text)
	b, _ := io.ReadAll(c)
	return string(b)
}

func connect(host string) string {
	return fmt.Sprintf("CONNECT %s:443 HTTP/1.1\r\nHost: %s:443\r\n\r\n", host, host)
}

func TestProcess(t *testing.T) {
	p := start(t, build(t, ""), control.Config{Allow: []string{"localtest.invalid"}, Probe: control.Probe{Name: "x.probe.internal", Token: "token"}})
	if s := p.ask(t, connect("x.probe.internal")); !strings.HasSuffix(s, "token") {
		t.Error(s)
	}
	if s := p.ask(t, connect("evil.example")); !strings.HasPrefix(s, "HTTP/1.1 403 not on the allow list: --allow evil.example\r\n") {
		t.Error(s)
	}
	if s := p.ask(t, connect("fault-panic.probe.internal")); !strings.HasPrefix(s, "HTTP/1.1 403") {
		t.Error("a release has the fault switch: ", s)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil || !strings.Contains(string(status), "NoNewPrivs:\t1") {
		t.Errorf("%v %s", err, status)
	}
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"Max core file size": "0", "Max file size": "0", "Max data size": "1073741824"} {
		for line := range strings.Lines(string(limits)) {
			if rest, ok := strings.CutPrefix(line, name); ok && (len(strings.Fields(rest)) < 2 || strings.Fields(rest)[1] != want) {
				t.Errorf("%s: %s", name, rest)
			}
		}
	}
	p.line.Close()
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("after the end of the line: %v: %s", err, p.stderr.String())
	}
}

// TestEndOfLine closes the line while a record is on its way: whether a reader or a writer meets the end first, it is the end
// of the session and no fault.
func TestEndOfLine(t *testing.T) {
	bin := build(t, "")
	for range 20 {
		p := start(t, bin, control.Config{})
		p.ask(t, connect("evil.example"))
		p.line.Close()
		if err := p.cmd.Wait(); err != nil {
			t.Fatalf("%v: %s", err, p.stderr.String())
		}
	}
}

func TestFaults(t *testing.T) {
	bin := build(t, "walltest")
	for fault, code := range map[string]int{"fault-panic.probe.internal": 2, "fault-close.probe.internal": 1} {
		p := start(t, bin, control.Config{})
		p.ask(t, connect(fault))
		p.cmd.Wait()
		if got := p.cmd.ProcessState.ExitCode(); got != code || p.stderr.Len() == 0 {
			t.Errorf("%s: exit %d, want %d: %s", fault, got, code, p.stderr.String())
		}
	}
}

func TestByHand(t *testing.T) {
	out, err := exec.Command(build(t, "")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "not by hand") {
		t.Errorf("%v %s", err, out)
	}
}
