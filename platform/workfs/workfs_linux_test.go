package workfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// testUID is an account that need not exist: files only carry its number.
const testUID = 4243

// TestUnprivileged runs every other test of the package again as an ordinary user. It needs root.
func TestUnprivileged(t *testing.T) {
	if os.Geteuid() != 0 {
		return // this is the run it starts
	}
	dir := userDir(t)
	cmd := exec.Command("/proc/self/exe", "-test.run=.", "-test.skip=^TestUnprivileged$")
	cmd.Dir, cmd.Env = dir, []string{"TMPDIR=" + dir, "HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: testUID, Gid: testUID}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("as uid %d: %v\n%s", testUID, err, out)
	}
}

func userDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "workfs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chown(dir, testUID, testUID); err != nil {
		t.Fatal(err)
	}
	return dir
}

func open(t *testing.T) (*Root, string) {
	t.Helper()
	dir := t.TempDir()
	r, err := OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r, dir
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestCheckPath(t *testing.T) {
	for _, ok := range []string{".", "a", "a/b", "-rf", "a\nb", "\xff\xfe", "...", "..a", strings.Repeat("x", 255)} {
		if err := CheckPath(ok); err != nil {
			t.Errorf("CheckPath(%q) = %v", ok, err)
		}
	}
	for _, bad := range []string{"", "/", "/a", "a/", "a//b", "./a", "a/.", "..", "../a", "a/..", "a/../b", "a\x00b"} {
		if err := CheckPath(bad); !errors.Is(err, ErrPath) {
			t.Errorf("CheckPath(%q) = %v, want ErrPath", bad, err)
		}
	}
}

// TestSymlinksAreNeverFollowed tries every operation through a link in the middle and at the end. The plain os call is the
// control: it reaches the target, so the link works.
func TestSymlinksAreNeverFollowed(t *testing.T) {
	r, dir := open(t)
	out := t.TempDir()
	must(t, os.WriteFile(out+"/secret", []byte("s"), 0o600), os.Symlink(out, dir+"/mid"), os.Symlink(out+"/secret", dir+"/end"))
	if _, err := os.ReadFile(dir + "/mid/secret"); err != nil {
		t.Fatal("control:", err)
	}
	must(t, os.Mkdir(dir+"/real", 0o755), os.WriteFile(dir+"/real/f", nil, 0o644))
	tries := map[string]func() error{
		"read mid":   func() error { _, _, err := r.ReadFile("mid/secret", 10); return err },
		"read end":   func() error { _, _, err := r.ReadFile("end", 10); return err },
		"lstat mid":  func() error { _, err := r.Lstat("mid/secret"); return err },
		"list":       func() error { _, err := r.ReadDir("mid", 10); return err },
		"write mid":  func() error { return r.WriteFileAtomic("mid/secret", []byte("x"), 0o600) },
		"write end":  func() error { return r.WriteFileAtomic("end", []byte("x"), 0o600) },
		"mkdir mid":  func() error { return r.Mkdir("mid/d", 0o755) },
		"move into":  func() error { return r.Move("real/f", r, "mid/f") },
		"move from":  func() error { return r.Move("mid/secret", r, "got") },
		"remove mid": func() error { return r.RemoveAll("mid/secret", DefaultBounds) },
		"chmod end":  func() error { return r.Chmod("end", 0o777) },
		"copy mid":   func() error { _, err := r.CopyTo("mid/secret", r, "copy", DefaultBounds); return err },
		"digest mid": func() error { _, err := r.Digest("mid/secret", DefaultBounds); return err },
	}
	for name, try := range tries {
		if err := try(); err == nil {
			t.Errorf("%s: passed", name)
		}
	}
	if got, err := os.ReadFile(out + "/secret"); err != nil || string(got) != "s" {
		t.Errorf("the target is %q, %v", got, err)
	}
	must(t, r.RemoveAll("mid", DefaultBounds))
	if _, err := os.Stat(out + "/secret"); err != nil {
		t.Error("RemoveAll of a link went through it:", err)
	}
}

func TestOnlyRegularFilesAreOpened(t *testing.T) {
	r, dir := open(t)
	must(t, unix.Mkfifo(dir+"/fifo", 0o600), os.Mkdir(dir+"/dir", 0o755))
	l, err := net.Listen("unix", dir+"/sock")
	must(t, err)
	defer l.Close()
	names := []string{"fifo", "dir", "sock"}
	if os.Geteuid() == 0 {
		must(t, unix.Mknod(dir+"/null", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
		names = append(names, "null")
	}
	for _, name := range names {
		done := make(chan error, 1)
		go func() { _, _, err := r.ReadFile(name, 10); done <- err }()
		select {
		case err := <-done:
			if !errors.Is(err, ErrKind) {
				t.Errorf("%s: %v, want ErrKind", name, err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: blocked", name)
		}
	}
}

func TestReadFileBound(t *testing.T) {
	r, dir := open(t)
	must(t, os.WriteFile(dir+"/f", []byte("12345"), 0o644))
	if data, info, err := r.ReadFile("f", 5); err != nil || string(data) != "12345" || info.Size != 5 {
		t.Errorf("got %q %v", data, err)
	}
	if _, _, err := r.ReadFile("f", 4); !errors.Is(err, ErrTooBig) {
		t.Errorf("got %v, want ErrTooBig", err)
	}
	if _, err := r.ReadDir(".", 0); !errors.Is(err, ErrTooBig) {
		t.Errorf("got %v, want ErrTooBig", err)
	}
}

func TestNamesAreBytes(t *testing.T) {
	r, dir := open(t)
	names := []string{"a\nb", "\xff\xfe", "-rf", strings.Repeat("n", 255), " ", "...", "ünï", "\x01"}
	for _, name := range names {
		must(t, r.WriteFileAtomic(name, []byte(name), 0o640))
		if got, _, err := r.ReadFile(name, 300); err != nil || string(got) != name {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	}
	list, err := r.ReadDir(".", 100)
	if err != nil || len(list) != len(names) {
		t.Fatalf("%v, %v", list, err)
	}
	for i := 1; i < len(list); i++ {
		if list[i-1].Name >= list[i].Name {
			t.Error("not sorted by bytes")
		}
	}
	_ = dir
}

func TestWriteFileAtomicKeepsModeAndOwner(t *testing.T) {
	r, dir := open(t)
	must(t, os.WriteFile(dir+"/f", []byte("old"), 0o600), os.Chmod(dir+"/f", 0o751))
	wantUID := os.Geteuid()
	if wantUID == 0 {
		wantUID = testUID
		must(t, os.Chown(dir+"/f", wantUID, wantUID))
	}
	must(t, r.WriteFileAtomic("f", []byte("new"), 0o644))
	info, err := r.Lstat("f")
	if err != nil || info.Mode != 0o751 || int(info.UID) != wantUID || info.Size != 3 {
		t.Errorf("%+v, %v", info, err)
	}
	if list, _ := r.ReadDir(".", 10); len(list) != 1 {
		t.Errorf("left over: %v", list)
	}
	must(t, r.WriteFileAtomic("new", nil, 0o640))
	if info, _ := r.Lstat("new"); info.Mode != 0o640 {
		t.Errorf("mode %v", info.Mode)
	}
}

func TestMoveDoesNotReplace(t *testing.T) {
	r, dir := open(t)
	must(t, os.WriteFile(dir+"/a", []byte("a"), 0o600), os.WriteFile(dir+"/b", []byte("b"), 0o600))
	if err := r.Move("a", r, "b"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("got %v", err)
	}
	must(t, r.Move("a", r, "c"), r.Replace("c", r, "b"))
	if got, _, err := r.ReadFile("b", 9); err != nil || string(got) != "a" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestMoveToAnotherFileSystem(t *testing.T) {
	shm, err := os.MkdirTemp("/dev/shm", "workfs")
	must(t, err)
	defer os.RemoveAll(shm)
	r, dir := open(t)
	other, err := OpenRoot(shm)
	must(t, err)
	defer other.Close()
	must(t, os.Mkdir(dir+"/d", 0o750), os.WriteFile(dir+"/d/f", []byte("x"), 0o754), os.Symlink("nowhere", dir+"/d/l"), unix.Mkfifo(dir+"/d/p", 0o600))
	must(t, os.Chmod(dir+"/d/f", 0o754))
	old := time.Unix(1e9, 5000)
	must(t, os.Chtimes(dir+"/d/f", old, old))
	if err := r.Move("d", other, "d"); !errors.Is(err, ErrCrossDevice) {
		t.Fatalf("got %v", err)
	}
	skipped, err := r.CopyTo("d", other, "d", DefaultBounds)
	must(t, err)
	if fmt.Sprint(skipped) != "[p]" {
		t.Errorf("skipped %v", skipped)
	}
	info, err := other.Lstat("d/f")
	if err != nil || info.Mode != 0o754 || !info.ModTime.Equal(old) {
		t.Errorf("%+v %v", info, err)
	}
	if l, err := other.Readlink("d/l"); err != nil || l != "nowhere" {
		t.Errorf("%q %v", l, err)
	}
	must(t, os.Remove(dir+"/d/p"))
	a, err := r.Digest("d", DefaultBounds)
	must(t, err)
	b, err := other.Digest("d", DefaultBounds)
	if err != nil || a != b {
		t.Errorf("digests %s %s %v", a, b, err)
	}
	must(t, os.WriteFile(shm+"/d/f", []byte("y"), 0o754))
	if b, _ := other.Digest("d", DefaultBounds); a == b {
		t.Error("digest does not see content")
	}
}

// deep makes a chain of n folders, deeper than any path the kernel takes.
func deep(t testing.TB, dir string, n int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		if err := unix.Mkdirat(fd, "d", 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, "d", unix.O_DIRECTORY|unix.O_RDONLY, 0)
		unix.Close(fd)
		if err != nil {
			t.Fatal(err)
		}
		fd = next
	}
	unix.Close(fd)
}

func TestDeeperThanPathMax(t *testing.T) {
	r, dir := open(t)
	must(t, os.Mkdir(dir+"/x", 0o755))
	deep(t, dir+"/x", 5000)
	rel := "x" + strings.Repeat("/d", 5000)
	if _, err := r.Lstat(rel); err != nil {
		t.Errorf("lstat: %.200v", err)
	}
	if err := r.RemoveAll("x", Bounds{Entries: 10000, Depth: 100}); !errors.Is(err, ErrTooBig) {
		t.Errorf("got %v, want ErrTooBig", err)
	}
	must(t, r.RemoveAll("x", Bounds{Entries: 10000, Depth: 6000}))
}

func TestRemoveAllOfUnreadable(t *testing.T) {
	r, dir := open(t)
	must(t, os.MkdirAll(dir+"/x/y/z", 0o755), os.Chmod(dir+"/x/y", 0), os.Chmod(dir+"/x", 0o500))
	must(t, r.RemoveAll("x", DefaultBounds))
}

// TestSwapRace replaces a folder by a symlink to the outside as fast as it can while files are read through it.
func TestSwapRace(t *testing.T) {
	r, dir := open(t)
	out := t.TempDir()
	must(t, os.WriteFile(out+"/f", []byte("outside"), 0o644), os.Mkdir(dir+"/d", 0o755), os.WriteFile(dir+"/d/f", []byte("inside"), 0o644))
	must(t, os.Symlink(out, dir+"/l"))
	stop := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				unix.Renameat2(unix.AT_FDCWD, dir+"/d", unix.AT_FDCWD, dir+"/l", unix.RENAME_EXCHANGE)
			}
		}
	})
	read, control := 0, 0
	for i := 0; i < 20000; i++ {
		data, _, err := r.ReadFile("d/f", 100)
		if err == nil && bytes.Equal(data, []byte("outside")) {
			t.Error("read through a swapped symlink")
			break
		}
		if err == nil {
			read++
		}
		if got, _ := os.ReadFile(filepath.Join(dir, "d/f")); string(got) == "outside" {
			control++
		}
	}
	close(stop)
	swapper.Wait()
	if read == 0 || control == 0 {
		t.Errorf("the race did not happen: %d good reads, %d plain reads of the outside", read, control)
	}
}

func TestUnreadableFolderIsPermission(t *testing.T) {
	if os.Geteuid() == 0 {
		return // root reads everything; the unprivileged run checks it
	}
	r, dir := open(t)
	must(t, os.Mkdir(dir+"/d", 0))
	if _, err := r.ReadDir("d", 1); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("got %v", err)
	}
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00abc\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		eachEvent(data, func(MarkEvent) {})
		eachDirent(data, func([]byte, Kind, uint64) error { return nil })
	})
}
