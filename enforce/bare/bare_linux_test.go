package bare

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

// seen is what a process that Start started finds out about itself.
type seen struct {
	UID, GID, Parent, Session int
	Groups                    []int
	Env, Args                 []string
	Dir                       string
	Descriptors               []string
	Pdeathsig                 int
}

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "look" {
		look()
		return
	}
	os.Exit(m.Run())
}

func look() {
	s := seen{UID: os.Getuid(), GID: os.Getgid(), Parent: os.Getppid(), Env: os.Environ(), Args: os.Args}
	s.Groups, _ = os.Getgroups()
	s.Dir, _ = os.Getwd()
	s.Session, _ = unix.Getsid(0)
	s.Session -= os.Getpid()
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name()))
		// Event descriptors, the listing itself, and the limits that the Go run time reads.
		own := strings.HasPrefix(target, "anon_inode:") || strings.HasPrefix(target, "/proc/") || strings.HasPrefix(target, "/sys/fs/cgroup/")
		if err == nil && !own {
			s.Descriptors = append(s.Descriptors, e.Name())
		}
	}
	var sig int32
	unix.Prctl(unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&sig)), 0, 0, 0)
	s.Pdeathsig = int(sig)
	json.NewEncoder(os.NewFile(3, "wire")).Encode(s)
}

// TestStart looks at a started process from its inside. Started by root it has the ids of the session's
// owner and no supplementary group.
func TestStart(t *testing.T) {
	id := enforce.Identity{UID: os.Getuid(), GID: os.Getgid()}
	if os.Geteuid() == 0 {
		id = enforce.Identity{UID: 4243, GID: 4243}
	}
	t.Setenv("SECRET", "x")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	// A program that any user can start, as the sealed one in memory is.
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.MemfdCreate("bare.test", 0)
	if err != nil {
		t.Fatal(err)
	}
	mem := os.NewFile(uintptr(fd), "bare.test")
	defer mem.Close()
	if _, err := mem.Write(program); err != nil {
		t.Fatal(err)
	}
	// Descriptors that nobody marked: the cell may have none of them.
	if _, err := unix.FcntlInt(0, unix.F_DUPFD, 200); err != nil {
		t.Fatal(err)
	}
	p, err := Start(enforce.Spec{Identity: id}, "/proc/self/fd/"+strconv.Itoa(fd), []string{"bare.test", "look"}, os.Stderr, w)
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	var got seen
	if err := json.NewDecoder(bufio.NewReader(r)).Decode(&got); err != nil {
		t.Fatal(err)
	}
	if state, err := p.Wait(); err != nil || !state.Success() {
		t.Errorf("%v %v", state, err)
	}
	if got.UID != id.UID || got.GID != id.GID || got.Parent != os.Getpid() || got.Session != 0 {
		t.Errorf("ids %+v", got)
	}
	if os.Geteuid() == 0 && len(got.Groups) > 0 {
		t.Errorf("supplementary groups %v", got.Groups)
	}
	if len(got.Env) != 0 || got.Dir != "/" || !reflect.DeepEqual(got.Args, []string{"bare.test", "look"}) {
		t.Errorf("environment %q, folder %q, arguments %q", got.Env, got.Dir, got.Args)
	}
	if !reflect.DeepEqual(got.Descriptors, []string{"0", "1", "2", "3"}) {
		t.Errorf("descriptors %v", got.Descriptors)
	}
	if got.Pdeathsig != int(syscall.SIGKILL) {
		t.Errorf("parent-death signal %d", got.Pdeathsig)
	}
}

func TestStartOfNothing(t *testing.T) {
	if _, err := Start(enforce.Spec{}, "/nowhere", []string{"x"}, os.Stderr, os.Stderr); err == nil || !strings.Contains(err.Error(), "start the cell") {
		t.Errorf("got %v", err)
	}
}

func TestAvailable(t *testing.T) {
	a := Available(context.Background())
	if a.Backend != enforce.Bare || a.OK == (a.Cause != "") || a.OK == (a.Remedy != "") {
		t.Errorf("%+v", a)
	}
}
