package changes

import (
	"crypto/sha256"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"coworker/enforce"
	"coworker/platform/workfs"
	"coworker/runtime/held"
)

// insideVar makes the test binary mount an overlay in namespaces of its own and edit it.
const insideVar = "COWORKER_TEST_INSIDE"

func TestMain(m *testing.M) {
	if job := os.Getenv(insideVar); job != "" {
		inside(job)
		return
	}
	if job := os.Getenv(killVar); job != "" {
		applyToDeath(job)
		return
	}
	os.Exit(m.Run())
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// bench is one workspace with its stage.
type bench struct {
	t     testing.TB
	host  string
	store *Store
	st    *Stage
	hold  *held.Store
}

// newBench makes the folders; make fills the host before the session begins.
func newBench(t testing.TB, state string, make func(host string)) *bench {
	t.Helper()
	b := &bench{t: t, host: t.TempDir()}
	make(b.host)
	var err error
	b.store, err = OpenStore(filepath.Join(state, "staged"))
	must(t, err)
	b.hold, err = held.Open(state)
	must(t, err)
	t.Cleanup(func() { b.hold.Close() })
	info, err := os.Stat(b.host)
	must(t, err)
	tree := enforce.Tree{Path: b.host, Writable: true, Inode: info.Sys().(*syscall.Stat_t).Ino}
	b.st, err = b.store.Create(t.Context(), Request{
		Session: "s1", Workspace: b.host, UID: os.Geteuid(), GID: os.Getegid(), Trees: []enforce.Tree{tree}, Now: time.Now(),
	})
	must(t, err)
	t.Cleanup(func() { b.st.Close(); clean(state, "staged") }) // an overlay leaves folders that their owner may not enter
	root, err := workfs.OpenRoot(b.host)
	must(t, err)
	defer root.Close()
	must(t, b.st.Baseline(t.Context(), 0, root))
	return b
}

// clean removes a folder below another whatever its modes are.
func clean(dir, name string) {
	if root, err := workfs.OpenRoot(dir); err == nil {
		defer root.Close()
		root.RemoveAll(name, stageBounds)
	}
}

func (b *bench) upper(rel string) string { return filepath.Join(b.st.Folder(0), "upper", rel) }

// put writes a file into the upper folder as the overlay would.
func (b *bench) put(rel, content string) {
	b.t.Helper()
	must(b.t, os.MkdirAll(filepath.Dir(b.upper(rel)), 0o755), os.WriteFile(b.upper(rel), []byte(content), 0o644))
}

func (b *bench) whiteout(rel string) {
	b.t.Helper()
	must(b.t, os.MkdirAll(filepath.Dir(b.upper(rel)), 0o755), syscall.Mknod(b.upper(rel), syscall.S_IFCHR, 0))
}

func write(t testing.TB, dir, rel, content string) {
	t.Helper()
	full := filepath.Join(dir, rel)
	must(t, os.MkdirAll(filepath.Dir(full), 0o755), os.WriteFile(full, []byte(content), 0o644))
}

func read(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func (b *bench) apply(o Options) *Result {
	b.t.Helper()
	if o.Hold == nil {
		o.Hold = b.hold
	}
	res, err := b.st.Apply(b.t.Context(), o)
	must(b.t, err)
	return res
}

func (b *bench) undo() *Result {
	b.t.Helper()
	res, err := b.st.Undo(b.t.Context(), Options{})
	must(b.t, err)
	return res
}

// state is everything about a path that an apply may change.
type state struct {
	Mode  fs.FileMode
	Sum   string // of the content, or the text of a link
	Mtime int64  `json:",omitempty"`
	Attr  string `json:",omitempty"`
}

func (s state) String() string { return fmt.Sprintf("%v %s %d %s", s.Mode, s.Sum, s.Mtime, s.Attr) }

// snapshot describes a tree.
func snapshot(t testing.TB, dir string, times bool) map[string]state {
	t.Helper()
	out, err := snap(dir, times)
	must(t, err)
	return out
}

func snap(dir string, times bool) (map[string]state, error) {
	out := map[string]state{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		s := state{Mode: info.Mode()}
		switch info.Mode().Type() {
		case fs.ModeSymlink:
			s.Sum, err = os.Readlink(path)
			s.Mode = fs.ModeSymlink
		case 0:
			var data []byte
			data, err = os.ReadFile(path)
			s.Sum = fmt.Sprintf("%x", sha256.Sum256(data))[:16]
			buf := make([]byte, 256)
			if n, xerr := syscall.Getxattr(path, "user.note", buf); xerr == nil {
				s.Attr = string(buf[:n])
			}
		}
		if times && info.Mode().Type() != fs.ModeSymlink {
			s.Mtime = info.ModTime().UnixNano()
		}
		out[rel] = s
		return err
	})
	return out, err
}

func differences(got, want map[string]state) []string {
	var out []string
	for rel, w := range want {
		if g, ok := got[rel]; !ok {
			out = append(out, fmt.Sprintf("%q is missing (want %v)", rel, w))
		} else if g != w {
			out = append(out, fmt.Sprintf("%q is %v, want %v", rel, g, w))
		}
	}
	for rel, g := range got {
		if _, ok := want[rel]; !ok {
			out = append(out, fmt.Sprintf("%q is there (%v)", rel, g))
		}
	}
	slices.Sort(out)
	return out
}

func sameTree(t testing.TB, what string, got, want map[string]state) {
	t.Helper()
	if d := differences(got, want); len(d) > 0 {
		t.Fatalf("%s:\n%s", what, strings.Join(d[:min(len(d), 20)], "\n"))
	}
}

// mountJob is what the process inside does.
type mountJob struct {
	Lower, Stage, Merged string
	Script               string // for sh, in the merged folder
	Seed                 uint64 // or random edits
	Out                  string // where the snapshot of the merged folder goes
	Again                bool
}

// overlay edits the stage through a real overlay in a user namespace, and returns what the session saw at its end.
func (b *bench) overlay(job mountJob) map[string]state {
	b.t.Helper()
	dir := b.t.TempDir()
	job.Lower, job.Stage, job.Merged, job.Out = b.host, b.st.Folder(0), filepath.Join(dir, "merged"), filepath.Join(dir, "out")
	must(b.t, os.Mkdir(job.Merged, 0o755))
	data, err := json.Marshal(job)
	must(b.t, err)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), insideVar+"="+string(data))
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		b.t.Fatalf("inside: %v\n%.3000s", err, out)
	}
	got := map[string]state{}
	f, err := os.Open(job.Out)
	must(b.t, err, gob.NewDecoder(f).Decode(&got), f.Close())
	return got
}

func inside(text string) {
	var job mountJob
	err := json.Unmarshal([]byte(text), &job)
	if err == nil {
		o := fmt.Sprintf("userxattr,lowerdir=%s,upperdir=%s/upper,workdir=%s/work", job.Lower, job.Stage, job.Stage)
		err = syscall.Mount("overlay", job.Merged, "overlay", 0, o)
	}
	if err == nil && job.Script != "" {
		cmd := exec.Command("sh", "-euc", job.Script)
		cmd.Dir, cmd.Stdout, cmd.Stderr = job.Merged, os.Stdout, os.Stderr
		err = cmd.Run()
	}
	if err == nil && job.Seed != 0 {
		err = edit(job.Merged, job.Seed)
	}
	var got map[string]state
	if err == nil {
		got, err = snap(job.Merged, true)
	}
	if err == nil {
		var f *os.File
		if f, err = os.Create(job.Out); err == nil {
			err = gob.NewEncoder(f).Encode(got) // names are bytes
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
