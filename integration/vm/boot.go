package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"coworker/integration/vm/guest"
)

// A Guest is one boot: what the machine holds and what it does.
type Guest struct {
	Files []File
	Cases []Case
	// Modules are loaded before the first case, with what they depend on.
	Modules []string
	// Loadable modules lie in guest.ModuleDir with what they depend on, for cases that load them.
	Loadable []string
	// Cgroups is the control group layout; Unified when empty.
	Cgroups guest.Cgroups
	// Memory is in MiB; 1024 when zero. The initramfs lies in it twice for a moment.
	Memory int
	// Cmdline is added to the kernel command line, such as "lsm=landlock,bpf".
	Cmdline []string
	// Timeout bounds the whole life of the guest; DefaultLife when zero.
	Timeout time.Duration
}

// DefaultLife of a guest. A boot takes seconds; this is for the cases.
const DefaultLife = 4 * time.Minute

// bootAllowance is what the host waits beyond the deadline that init keeps.
const bootAllowance = 30 * time.Second

const initPackage = "coworker/integration/vm/guestinit"

func (g Guest) timeout() time.Duration {
	if g.Timeout > 0 {
		return g.Timeout
	}
	return DefaultLife
}

// Boot runs the guest to its end and returns one result for each case, in order.
// On error the results are those that arrived; a guest that did not do its work
// is a *BootError.
func Boot(ctx context.Context, image Image, g Guest) ([]Result, error) {
	qemu, err := lookTool(emulator)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "coworker-vm-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	initrd, err := prepare(ctx, dir, image, g)
	if err != nil {
		return nil, fmt.Errorf("guest for kernel %s: %w", image.Kernel.Name, err)
	}
	for attempt := 1; ; attempt++ {
		said, err := bootOnce(ctx, exec.Command(qemu, arguments(image, g, initrd)...), image, g)
		if attempt == maxBoots || !errors.Is(err, ErrPanic) || said.Ready != nil {
			return said.Results, err
		}
	}
}

// maxBoots bounds the boots of one guest whose kernel panicked before init ran. The emulator of
// Debian 12 (QEMU 7.2, two emulated processors) now and then executes an instruction that the
// kernel is just patching ("Oops: int3" in a jump label); that says nothing about our code, which
// has not started by then. A panic after init has spoken is never tried again.
const maxBoots = 3

// bootOnce runs the emulator once.
func bootOnce(ctx context.Context, emulator *exec.Cmd, image Image, g Guest) (guest.Transcript, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, g.timeout()+bootAllowance, ErrTimeout)
	defer cancel()
	m := machine{cmd: exec.CommandContext(ctx, emulator.Path, emulator.Args[1:]...)}
	said, err := m.run(len(g.Cases))
	if err != nil {
		return said, m.failure(ctx, image, err)
	}
	if said.Ready == nil || said.Ready.Release != image.Release {
		return said, m.failure(ctx, image, fmt.Errorf("%w: booted %+v instead of %s", ErrSetup, said.Ready, image.Release))
	}
	return said, nil
}

// prepare builds init and packs the initramfs.
func prepare(ctx context.Context, dir string, image Image, g Guest) (string, error) {
	init := filepath.Join(dir, "init")
	if err := BuildStatic(ctx, initPackage, init); err != nil {
		return "", err
	}
	loaded, rest, err := modulesOf(ctx, image, g)
	if err != nil {
		return "", err
	}
	initrd := filepath.Join(dir, "initrd")
	return initrd, writeInitramfs(initrd, init, g, loaded, rest)
}

// modulesOf returns the modules that init loads, in load order, and those that only lie there.
func modulesOf(ctx context.Context, image Image, g Guest) (loaded, rest []File, err error) {
	if len(g.Modules)+len(g.Loadable) == 0 {
		return nil, nil, nil
	}
	set, err := readModuleSet(image.modulesDir())
	if err != nil {
		return nil, nil, err
	}
	if loaded, err = set.order(ctx, g.Modules); err != nil {
		return nil, nil, err
	}
	// The order of a longer list begins with that of its beginning.
	all, err := set.order(ctx, slices.Concat(g.Modules, g.Loadable))
	if err != nil {
		return nil, nil, err
	}
	return loaded, all[len(loaded):], nil
}

// consoleFD is the descriptor of the console pipe in the emulator.
const consoleFD = 3

// arguments has software emulation (-accel tcg) with every processor feature it
// knows (-cpu max), no devices but two serial ports, and no network.
func arguments(image Image, g Guest, initrd string) []string {
	memory := g.Memory
	if memory == 0 {
		memory = 1024
	}
	// panic=-1 resets at once, and -no-reboot turns the reset into an exit.
	cmdline := append([]string{"console=ttyS0", "panic=-1", "oops=panic", "quiet", "loglevel=4"}, image.Kernel.Cmdline...)
	cmdline = append(cmdline, g.Cmdline...)
	return []string{
		"-accel", "tcg", "-cpu", "max", "-smp", "2", "-m", strconv.Itoa(memory),
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-nic", "none",
		"-kernel", image.Vmlinuz(), "-initrd", initrd, "-append", strings.Join(cmdline, " "),
		"-chardev", "file,id=console,path=/dev/fd/" + strconv.Itoa(consoleFD), "-serial", "chardev:console",
		"-chardev", "stdio,id=results,signal=off", "-serial", "chardev:results",
	}
}

// A machine is one run of the emulator.
type machine struct {
	cmd     *exec.Cmd
	console tail
	stderr  tail
}

// run returns when the emulator is gone and both its streams are read.
func (m *machine) run(want int) (guest.Transcript, error) {
	results, err := m.cmd.StdoutPipe()
	if err != nil {
		return guest.Transcript{}, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return guest.Transcript{}, err
	}
	defer read.Close()
	m.cmd.ExtraFiles = []*os.File{write}
	m.cmd.Stderr = &m.stderr
	err = m.cmd.Start()
	write.Close()
	if err != nil {
		return guest.Transcript{}, err
	}
	var console sync.WaitGroup
	console.Go(func() { _, _ = io.Copy(&m.console, read) })

	said, err := guest.Receive(results, want)
	if !errors.Is(err, guest.ErrCut) {
		// Nothing that follows the last message matters; do not wait for the
		// machine to power off.
		_ = m.cmd.Process.Kill()
	}
	_, _ = io.Copy(io.Discard, results)
	waitErr := m.cmd.Wait()
	console.Wait()
	if errors.Is(err, guest.ErrCut) && waitErr != nil {
		err = fmt.Errorf("%w; emulator: %w %s", err, waitErr, lastWords(m.stderr.String()))
	}
	return said, err
}

// failure says what kind of end it was. ErrIncomplete and ErrSetup come from the
// protocol; the others explain why it broke off.
func (m *machine) failure(ctx context.Context, image Image, err error) error {
	console := m.console.String()
	switch {
	case strings.Contains(console, "Kernel panic - not syncing"):
		err = fmt.Errorf("%w: %w", ErrPanic, err)
	case errors.Is(context.Cause(ctx), ErrTimeout), strings.Contains(console, guest.DeadlineText):
		err = fmt.Errorf("%w: %w", ErrTimeout, err)
	case ctx.Err() != nil:
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return &BootError{Kernel: image.Release, Err: err, Console: console}
}

// tail keeps the last part of what is written to it. A guest may print without
// end; its last words are the ones that count.
type tail struct{ data []byte }

const tailLimit = 256 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.data = append(t.data, p...)
	if len(t.data) > 2*tailLimit {
		t.data = append(t.data[:0], t.data[len(t.data)-tailLimit:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	return string(t.data[max(0, len(t.data)-tailLimit):])
}
