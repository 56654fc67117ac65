// Command guestguard tries the programs of enforce/guard inside a virtual machine: what must be refused, what must work,
// and what it costs. Each line says "name: worked" or "name: why not". Only integration/vm runs it.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"coworker/enforce"
	"coworker/enforce/guard"
)

func main() {
	var err error
	switch {
	case len(os.Args) > 1 && os.Args[1] == "attack":
		attack()
	case len(os.Args) > 1 && os.Args[1] == "loops":
		err = loops()
	case len(os.Args) > 1 && os.Args[1] == "refuse":
		refuse()
	default:
		err = run()
	}
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

const (
	group = "/sys/fs/cgroup/coworker/test"
	dir   = "/root/guarded"
)

func run() error {
	start := time.Now()
	g, err := guard.Load()
	if err != nil {
		return err
	}
	defer g.Close()
	fmt.Println("load:", time.Since(start))
	if err := prepare(); err != nil {
		return err
	}
	if err := listen(); err != nil {
		return err
	}
	if err := alone("control"); err != nil {
		return err
	}
	if err := prepare(); err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(group, 0o755)); err != nil {
		return err
	}
	s, err := g.Add(group, keeper())
	if err != nil {
		return err
	}
	tree, err := treeOf(dir)
	if err != nil {
		return err
	}
	start = time.Now()
	if err := s.Trees([]enforce.Tree{tree}); err != nil {
		return err
	}
	fmt.Println("trees:", time.Since(start))
	return guarded(g, s)
}

func guarded(g *guard.Guard, s *guard.Session) error {
	hooks, missing := s.Hooks()
	fmt.Println("hooks:", strings.Join(hooks, ","), "missing:", strings.Join(missing, "; "))
	inside, err := child("attack", group)
	if err != nil {
		return err
	}
	report("inside", inside)
	var heard atomic.Int64
	go func() {
		for {
			r, err := s.Next()
			if err != nil {
				return
			}
			if heard.Add(1) > 100 {
				continue
			}
			fmt.Printf("refusal: %s %s %q %q %s\n", r.Wall, r.Hook, r.What, r.Needed, r.Comm)
		}
	}()
	for _, where := range []string{group, ""} {
		lines, err := child("loops", where)
		if err != nil {
			return err
		}
		report("cost "+map[string]string{group: "inside", "": "outside"}[where], lines)
	}
	fmt.Println("check:", s.Check())
	if err := flood(s, &heard); err != nil {
		return err
	}
	if err := alone("outside"); err != nil { // the last: it makes the tree anew
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	fmt.Println("check after close:", s.Check())
	if err := g.Close(); err != nil {
		return err
	}
	lines, err := child("loops", "")
	if err != nil {
		return err
	}
	report("cost unloaded", lines)
	return fallen()
}

// flood makes more refusals than anybody can take: each is heard or counted.
func flood(s *guard.Session, heard *atomic.Int64) error {
	before := heard.Load() + s.Unheard()
	if _, err := child("refuse", group); err != nil {
		return err
	}
	now := before
	for last := int64(-1); now != last; time.Sleep(300 * time.Millisecond) {
		last, now = now, heard.Load()+s.Unheard()
	}
	fmt.Println("heard or counted:", now-before)
	return nil
}

// fallen takes a link away from under the guard.
func fallen() error {
	g, err := guard.Load()
	if err != nil {
		return err
	}
	s, err := g.Add(group, keeperPid)
	if err != nil {
		return err
	}
	fds := links()
	if len(fds) == 0 {
		return errors.New("this process has no links")
	}
	if err := unix.Close(fds[0]); err != nil {
		return err
	}
	err = s.Check()
	for range 100 { // a program that is in use goes a little later
		if err != nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
		err = s.Check()
	}
	fmt.Println("check after a link fell:", err)
	return nil
}

// links lists the descriptors of this process that are links of programs.
func links() []int {
	var list []int
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		target, _ := os.Readlink("/proc/self/fd/" + e.Name())
		if fd, err := strconv.Atoi(e.Name()); err == nil && strings.Contains(target, "bpf_link") {
			list = append(list, fd)
		}
	}
	return list
}

// alone makes every attempt in a fresh tree, outside of the group.
func alone(where string) error {
	if err := os.Chdir("/"); err != nil {
		return err
	}
	for i, a := range attempts {
		if err := prepare(); err != nil {
			return err
		}
		if err := os.Chdir(dir); err != nil {
			return err
		}
		err := error(nil)
		if a.name == "execute hidden" {
			err = exec.Command("./.env").Run()
		} else {
			err = a.try()
		}
		attempts[i].say(where+" ", err)
	}
	return nil
}

// listen is what the host has that nobody inside may reach.
func listen() error {
	for _, at := range []string{"@guestguard", "/root/socket"} {
		l, err := net.Listen("unix", at)
		if err != nil {
			return err
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				c.Close()
			}
		}()
	}
	datagrams, err := net.ListenPacket("unixgram", "/root/datagrams")
	if err != nil {
		return err
	}
	go func() { // also holds the socket: one that nobody holds is closed
		for buf := make([]byte, 16); ; {
			if _, _, err := datagrams.ReadFrom(buf); err != nil {
				return
			}
		}
	}()
	return nil
}

func report(where string, lines []string) {
	for _, l := range lines {
		fmt.Println(where, l)
	}
}

var keeperPid int

// keeper is a process in a network namespace of its own, as a cell has one.
func keeper() int {
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		fmt.Println("keeper:", err)
		os.Exit(1)
	}
	keeperPid = cmd.Process.Pid
	return keeperPid
}

// child runs this program again, in a control group.
func child(what, in string) ([]string, error) {
	cmd := exec.Command("/proc/self/exe", what, strconv.Itoa(keeperPid))
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if in != "" {
		f, err := os.Open(in)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(f.Fd())
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s in %q: %w: %s", what, in, err, out)
	}
	var lines []string
	for sc := bufio.NewScanner(strings.NewReader(string(out))); sc.Scan(); {
		lines = append(lines, sc.Text())
	}
	return lines, nil
}

func prepare() error {
	os.RemoveAll(dir)
	for _, f := range []string{".git/HEAD", ".git/config", ".git/hooks/pre-commit", ".env", ".mcp.json", "README", "src/a", "private/key"} {
		p := filepath.Join(dir, f)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte("text\n"), 0o644)); err != nil {
			return err
		}
	}
	os.Remove(dir + "/../alias")
	return errors.Join(os.Link(dir+"/.env", dir+"/../alias"), os.Mkdir(dir+"/gitlike", 0o755), os.Mkdir(dir+"/gitlike/hooks", 0o755))
}

func treeOf(dir string) (enforce.Tree, error) {
	var st unix.Stat_t
	err := unix.Stat(dir, &st)
	// What the host has when the session starts.
	return enforce.Tree{
		Path: dir, Writable: true, Device: st.Dev, Inode: st.Ino, Pins: []string{".git"},
		Protected: []string{".git/config", ".git/hooks", ".mcp.json"}, Masks: []string{".env"}, MaskDirs: []string{"private"},
		Lifted: []string{"lifted/.mcp.json"},
	}, err
}
