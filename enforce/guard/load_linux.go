package guard

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// ErrUnsupported is why a kernel, or the rights of this process, have no guard.
var ErrUnsupported = errors.New("no BPF-LSM guard")

// Guard is the programs of this process. Its methods may be called from several goroutines.
type Guard struct {
	objects programsObjects
	hash    hasher
	links   []attached
	missing []string
	news    *news

	mu       sync.Mutex // of the rest, and of the maps with what is asked in two steps
	machine  *machine
	sessions map[uint32]*Session
	last     uint32 // session id given away last
	levels   []uint32
}

// attached is a program at its hook.
type attached struct {
	hook string
	link link.Link
	id   link.ID
	prog ebpf.ProgramID
	info *ebpf.Program
}

// Load puts the programs on the hooks, once per process, and proves that the kernel calls them. The error says why this
// kernel cannot: it is ErrUnsupported, with the reason in words.
func Load() (*Guard, error) {
	g := &Guard{machine: newMachine(), sessions: map[uint32]*Session{}}
	if err := g.load(); err != nil {
		return nil, errors.Join(unsupported(err), g.Close())
	}
	return g, nil
}

// unsupported says in words what the kernel said with a number.
func unsupported(err error) error {
	switch {
	case errors.Is(err, ErrUnsupported):
		return err
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: the kernel has no BPF-LSM or no BTF: %w", ErrUnsupported, err)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: the kernel refuses to load the programs (EPERM): this process lacks CAP_BPF and CAP_PERFMON, or this kernel allows no BPF-LSM: %w", ErrUnsupported, err)
	}
	return fmt.Errorf("%w: %w", ErrUnsupported, err)
}

func (g *Guard) load() error {
	if err := Allowed(); err != nil {
		return err
	}
	// Maps count as locked memory before Linux 5.11.
	if err := rlimit.RemoveMemlock(); err != nil {
		return err
	}
	spec, err := loadPrograms()
	if err != nil {
		return err
	}
	if err := g.fit(spec); err != nil {
		return err
	}
	if err := spec.LoadAndAssign(&g.objects, &ebpf.CollectionOptions{}); err != nil {
		return explained(err)
	}
	if err := g.fill(); err != nil {
		return err
	}
	for _, h := range append(slices.Clone(hookTable), teach) {
		if err := g.attach(h); err != nil {
			return err
		}
	}
	if err := g.prove(); err != nil {
		return err
	}
	g.news, err = g.listen()
	return err
}

// explained cuts the verifier's log down to its end.
func explained(err error) error {
	var ve *ebpf.VerifierError
	if errors.As(err, &ve) && len(ve.Log) > 3 {
		ve.Log = ve.Log[len(ve.Log)-3:]
	}
	return err
}

// fit makes the programs those of this kernel.
func (g *Guard) fit(spec *ebpf.CollectionSpec) error {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return fmt.Errorf("%w: %w", ebpf.ErrNotSupported, err)
	}
	var secret [16]byte
	if _, err := rand.Read(secret[:]); err != nil {
		return err
	}
	g.hash = hasher{seed: binary.NativeEndian.Uint64(secret[:]) | 1, factor: binary.NativeEndian.Uint64(secret[8:]) | 1}
	setattr, err := argumentOf(kernel, "inode_setattr")
	if err != nil {
		return err
	}
	xattr, err := argumentOf(kernel, "inode_setxattr")
	if err != nil {
		return err
	}
	for name, value := range map[string]any{
		"seed": g.hash.seed, "factor": g.hash.factor, "setattr_dentry": setattr, "xattr_dentry": xattr,
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return err
		}
	}
	for _, h := range hookTable {
		if !h.newer {
			continue
		}
		if _, err := argumentOf(kernel, h.name); err != nil {
			g.missing = append(g.missing, h.name+": since Linux 6.2")
			// Loaded nowhere then: the same program on a hook that every kernel has, unattached.
			spec.Programs["guard_"+strings.TrimPrefix(h.name, "inode_")].AttachTo = "inode_setxattr"
		}
	}
	return nil
}

// argumentOf finds the dentry among the arguments of a hook: later kernels have one more in front.
func argumentOf(kernel *btf.Spec, hook string) (uint32, error) {
	var f *btf.Func
	if err := kernel.TypeByName("bpf_lsm_"+hook, &f); err != nil {
		return 0, fmt.Errorf("hook %s: %w: %w", hook, ebpf.ErrNotSupported, err)
	}
	proto, ok := f.Type.(*btf.FuncProto)
	if !ok {
		return 0, fmt.Errorf("hook %s has no prototype", hook)
	}
	for i, p := range proto.Params {
		if p.Name == "dentry" {
			return uint32(i), nil
		}
	}
	return 0, fmt.Errorf("hook %s has no argument dentry: %w", hook, ebpf.ErrNotSupported)
}

// fill writes the tables that all sessions share.
func (g *Guard) fill() error {
	for s, row := range g.machine.table() {
		for c, st := range row {
			if err := g.objects.Bases.Put(uint32(s*tableClasses+c), st); err != nil {
				return err
			}
		}
	}
	for r, to := range packedFolds() {
		if err := g.objects.Folds.Put(r, to); err != nil {
			return err
		}
	}
	return g.writeNames()
}

// writeNames tells the kernel the classes of names that it does not know yet.
func (g *Guard) writeNames() error {
	for _, n := range g.machine.fresh {
		if err := g.objects.Classes.Put(g.hash.hash(n.signs), n.class); err != nil {
			return fmt.Errorf("guard: a name to watch: %w", err)
		}
	}
	g.machine.fresh = nil
	return nil
}

func (g *Guard) attach(h hook) error {
	if slices.ContainsFunc(g.missing, func(m string) bool { return strings.HasPrefix(m, h.name+":") }) {
		return nil
	}
	p := h.program(&g.objects.programsPrograms)
	l, err := link.AttachLSM(link.LSMOptions{Program: p})
	if err != nil {
		return fmt.Errorf("hook %s: %w", h.name, err)
	}
	g.links = append(g.links, attached{hook: h.name, link: l, info: p})
	info, err := l.Info()
	if err != nil {
		return fmt.Errorf("hook %s: %w", h.name, err)
	}
	last := &g.links[len(g.links)-1]
	last.id, last.prog = info.ID, info.Program
	return nil
}

// Hooks lists the hooks that have their program, and those that this kernel does not have.
func (g *Guard) Hooks() (names, missing []string) {
	for _, a := range g.links {
		if a.hook != teach.name {
			names = append(names, a.hook)
		}
	}
	return byName(names), byName(slices.Clone(g.missing))
}

// check asks the kernel for every link and what it leads to, and whether a program was ever left out: kernels before
// 6.2 run none that is running on the same processor already, which preemption makes possible.
func (g *Guard) check() error {
	for _, a := range g.links {
		l, err := link.NewFromID(a.id)
		if err != nil {
			return fmt.Errorf("guard: the program on hook %s is gone: %w", a.hook, err)
		}
		info, err := l.Info()
		err = errors.Join(err, l.Close())
		if err != nil {
			return fmt.Errorf("guard: hook %s: %w", a.hook, err)
		}
		if info.Program != a.prog {
			return fmt.Errorf("guard: hook %s has program %d instead of %d", a.hook, info.Program, a.prog)
		}
		about, err := a.info.Stats()
		if err != nil {
			return fmt.Errorf("guard: hook %s: %w", a.hook, err)
		}
		if about.RecursionMisses > 0 {
			return fmt.Errorf("guard: the kernel left out the program on hook %s %d times", a.hook, about.RecursionMisses)
		}
	}
	return nil
}

// Close takes the programs off the hooks. Sessions that are still open have no guard any more.
func (g *Guard) Close() error {
	var errs []error
	if g.news != nil {
		errs = append(errs, g.news.close())
	}
	for _, a := range g.links {
		errs = append(errs, a.link.Close())
	}
	g.links = nil
	if g.objects.Events != nil {
		errs = append(errs, g.objects.Close())
	}
	return errors.Join(errs...)
}
