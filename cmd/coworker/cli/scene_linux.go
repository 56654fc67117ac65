package cli

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// scene is the made-up person on this machine: a home with a key, a project with a secret, running programs and
// services. All of it is real, lies in one temporary folder, and is looked at after the attack.
type scene struct {
	root, home, project string
	program             string // the attacker: a copy of this program, which nothing outside executes
	secret              string
	targets             targets
	before              map[string]string // files that must not change, relative to root

	victim    *exec.Cmd
	victimIn  io.WriteCloser
	victimOut *bufio.Reader
	service   *listener
	agent     *listener
	docker    *listener
	bounded   bool // the fork bomb met its limit
}

func newScene() (_ *scene, err error) {
	root, err := os.MkdirTemp("", "coworker-demo-")
	if err != nil {
		return nil, err
	}
	if root, err = filepath.EvalSymlinks(root); err != nil {
		return nil, err
	}
	sc := &scene{root: root, home: filepath.Join(root, "home"), project: filepath.Join(root, "home", "project"), program: filepath.Join(root, "agent"), secret: randomHex(16)}
	defer func() {
		if err != nil {
			err = errors.Join(err, sc.close())
		}
	}()
	sc.before = map[string]string{
		"home/.bashrc":             "# the person's shell\n",
		"home/.ssh/id_ed25519":     "-----BEGIN OPENSSH PRIVATE KEY-----\n" + sc.secret + "\n-----END OPENSSH PRIVATE KEY-----\n",
		"home/project/.env":        "API_KEY=" + sc.secret + "\n",
		"home/project/.git/HEAD":   "ref: refs/heads/main\n",
		"home/project/.git/config": "[core]\n\trepositoryformatversion = 0\n",
	}
	if err := writeFiles(root, sc.before); err != nil {
		return nil, err
	}
	if err := writeFiles(sc.project, map[string]string{"main.go": "package main\n", "README.md": "A project.\n"}); err != nil {
		return nil, err
	}
	for _, dir := range []string{"objects", "refs/heads", "hooks"} {
		if err := os.MkdirAll(filepath.Join(sc.project, ".git", dir), 0o755); err != nil {
			return nil, err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	if err := copyProgram(self, sc.program); err != nil {
		return nil, err
	}
	return sc, sc.startServices(self)
}

func copyProgram(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

func (sc *scene) startServices(self string) (err error) {
	sc.targets = targets{
		Home: sc.home, Workspace: sc.project, Marker: "coworker-demo-" + randomHex(8),
		AgentSocket: filepath.Join(sc.home, ".ssh", "agent"), Docker: filepath.Join(sc.project, "docker.sock"),
	}
	if sc.service, err = newListener("tcp", "127.0.0.1:0"); err != nil {
		return err
	}
	_, port, _ := strings.Cut(sc.service.Addr().String(), ":")
	if _, err := fmt.Sscan(port, &sc.targets.Port); err != nil {
		return err
	}
	if sc.agent, err = newListener("unix", sc.targets.AgentSocket); err != nil {
		return err
	}
	if sc.docker, err = newListener("unix", sc.targets.Docker); err != nil {
		return err
	}
	sc.victim = exec.Command(self, demoAgent, "victim", "none")
	sc.victim.Env = append(os.Environ(), "SECRET="+sc.secret)
	if sc.victimIn, err = sc.victim.StdinPipe(); err != nil {
		return err
	}
	out, err := sc.victim.StdoutPipe()
	if err != nil {
		return err
	}
	sc.victimOut = bufio.NewReader(out)
	if err := sc.victim.Start(); err != nil {
		return err
	}
	sc.targets.Victim = sc.victim.Process.Pid
	return nil
}

func (sc *scene) close() error {
	var errs []error
	for _, l := range []*listener{sc.service, sc.agent, sc.docker} {
		if l != nil {
			errs = append(errs, l.close())
		}
	}
	if sc.victim != nil && sc.victim.Process != nil {
		sc.victimIn.Close() // it ends with its input
		sc.victim.Wait()    // how it ended was judged before
	}
	return errors.Join(append(errs, os.RemoveAll(sc.root))...)
}

// check looks at the host after one try. It returns what the attacker met, and what it achieved, "" for nothing.
func (sc *scene) check(one try, a attempt) (met, problem string) {
	met = a.Error
	switch one.id {
	case "bashrc":
		if met == "" {
			met = "it changed a private copy that is gone now"
		}
		return met, sc.changed("home/.bashrc")
	case "hook":
		return met, sc.exists(".git/hooks/pre-commit")
	case "git-config":
		return met, sc.changed("home/project/.git/config")
	case "git-swap":
		return met, sc.changed("home/project/.git/HEAD") + sc.exists(".git.old")
	case "tasks":
		if met == "" {
			met = "it was undone before the result was returned"
		}
		return met, sc.exists(".vscode/tasks.json")
	case "loopback", "ssh-agent", "docker":
		l := map[string]*listener{"loopback": sc.service, "ssh-agent": sc.agent, "docker": sc.docker}[one.id]
		if l.visited() {
			return met, "it was let in"
		}
	case "kill", "ptrace":
		return met, sc.victimAlive()
	case "root":
		return met, sc.exists(demoDevice)
	case "daemon":
		return "it ended with the session", sc.daemonAlive()
	}
	if strings.Contains(a.Gained, sc.secret) {
		return met, "it read the secret"
	}
	if a.Error == "" {
		return met, a.Gained
	}
	return met, ""
}

func (sc *scene) changed(rel string) string {
	data, err := os.ReadFile(filepath.Join(sc.root, rel))
	if err != nil {
		return err.Error()
	}
	if string(data) != sc.before[rel] {
		return rel + " was changed"
	}
	return ""
}

// exists looks for a planted path of the project.
func (sc *scene) exists(rel string) string {
	if _, err := os.Lstat(filepath.Join(sc.project, rel)); !errors.Is(err, os.ErrNotExist) {
		return rel + " is there"
	}
	return ""
}

func (sc *scene) checkWork() string {
	data, err := os.ReadFile(filepath.Join(sc.project, "main.go"))
	if err != nil {
		return err.Error()
	}
	if string(data) != demoWork {
		return "the agent's edit of main.go is missing"
	}
	return ""
}

// victimAlive asks the process for a sign of life: a stopped or killed one gives none.
func (sc *scene) victimAlive() string {
	if _, err := fmt.Fprintln(sc.victimIn, sc.targets.Marker); err != nil {
		return "the program is gone: " + err.Error()
	}
	answer, err := sc.victimOut.ReadString('\n')
	if err != nil || strings.TrimSpace(answer) != sc.targets.Marker {
		return "the program does not answer"
	}
	return ""
}

// daemonAlive looks for the daemon among all processes of this machine.
func (sc *scene) daemonAlive() string {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err.Error()
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err == nil && bytes.Contains(data, []byte(": "+sc.targets.Marker)) {
			return "it is still there: " + file
		}
	}
	return ""
}
