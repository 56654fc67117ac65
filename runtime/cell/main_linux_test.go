package cell_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"coworker/runtime/cell"
	"coworker/runtime/wire"
)

// The test binary plays every part: the launcher, the set-up, the cell and hostile commands.
const roleVar = "COWORKER_CELL_ROLE"

// testBinary is a copy of the test binary that every user may execute; the one that go test made lies
// in a private folder.
var testBinary string

func TestMain(m *testing.M) {
	switch role, arg, _ := strings.Cut(os.Getenv(roleVar), ":"); role {
	case "":
		os.Exit(runTests(m))
	case "launch":
		os.Exit(launch(arg))
	case "setup":
		os.Exit(setup(arg))
	case "serve":
		os.Exit(serve(arg))
	case "command":
		os.Exit(hostile(arg))
	default:
		fmt.Fprintf(os.Stderr, "unknown role %q\n", role)
		os.Exit(2)
	}
}

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "cell-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		testBinary = filepath.Join(dir, "cell.test")
		err = os.WriteFile(testBinary, self, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	return m.Run()
}

// launch clones the set-up into its namespaces, so that they belong to this process's user.
func launch(world string) int {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{roleVar + "=setup:" + world}
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{os.NewFile(3, "wire")}
	uid := os.Getuid()
	if strings.Contains(world, "pidns") {
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}},
			AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN},
		}
	}
	err := cmd.Run()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		fmt.Fprintf(os.Stderr, "cell ended by %v\n", status.Signal())
		return 128 + int(status.Signal())
	}
	if cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	return cmd.ProcessState.ExitCode()
}

// setup does as much of the real set-up as these tests need, and executes the cell anew.
func setup(world string) int {
	runtime.LockOSThread()
	if strings.Contains(world, "pidns") {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			fmt.Fprintln(os.Stderr, "private mounts:", err)
			return 2
		}
	}
	if strings.Contains(world, "withproc") {
		if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			fmt.Fprintln(os.Stderr, "mount /proc:", err)
			return 2
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "clear ambient capabilities:", err)
		return 2
	}
	if os.Getuid() == 0 && strings.Contains(world, "pidns") {
		// As the real set-up: root inside has no capability, or it could trace the cell.
		const noRoot = 1<<0 | 1<<1 // SECBIT_NOROOT and its lock, capabilities(7)
		if err := unix.Prctl(unix.PR_SET_SECUREBITS, noRoot, 0, 0, 0); err != nil {
			fmt.Fprintln(os.Stderr, "securebits:", err)
			return 2
		}
	}
	if !strings.Contains(world, "mask") {
		if err := cell.ClearSignalMask(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
	} else {
		mask := unix.Sigset_t{}
		mask.Val[0] = 1 << (unix.SIGUSR2 - 1)
		if err := unix.PthreadSigmask(unix.SIG_SETMASK, &mask, nil); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
	}
	if _, err := unix.FcntlInt(3, unix.F_SETFD, 0); err != nil {
		fmt.Fprintln(os.Stderr, "wire:", err)
		return 2
	}
	// A descriptor that nobody marked: no command may get it.
	if _, err := unix.FcntlInt(0, unix.F_DUPFD, 20); err != nil {
		fmt.Fprintln(os.Stderr, "stray descriptor:", err)
		return 2
	}
	// A test binary that uses cgo cannot be named by /proc/self/exe once /proc is another one.
	exe := os.Args[0]
	if strings.Contains(world, "withproc") || !strings.Contains(world, "pidns") {
		exe = "/proc/self/exe"
	}
	err := unix.Exec(exe, os.Args[:1], []string{roleVar + "=serve:" + world})
	fmt.Fprintln(os.Stderr, "execute again:", err)
	return 2
}

// serve is the cell. Exit code 0: the wire ended; 3: Serve says why; 4: a goroutine is left.
func serve(world string) int {
	conn, err := wire.Inherited(3, "wire")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	o := cell.Options{OwnPIDNamespace: strings.Contains(world, "pidns")}
	if strings.Contains(world, "claims") {
		o.OwnPIDNamespace = true
	}
	if strings.Contains(world, "few") {
		o.MaxCommands = 4
	}
	if err := cell.Serve(conn, o); err != nil {
		fmt.Fprintln(os.Stderr, "serve:", err)
		return 3
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 4
	}
	return 0
}
