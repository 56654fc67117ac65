package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"

	"coworker/enforce/redirect"
)

// Programs are the attached programs of one session. Its methods may be called from several goroutines.
type Programs struct {
	group    *os.File
	objects  []*ebpf.Collection
	attached []attached // in the order of hooks
	missing  []string   // "hook: why"
	reader   *ringbuf.Reader
	cell     cellVariables
	once     sync.Once
}

// attached is a program in its place. The link keeps it there, and goes with its descriptor.
type attached struct {
	hook *hook
	id   ebpf.ProgramID
	link link.Link
}

// cellVariables are what the programs and this process share.
type cellVariables struct{ net, mounts, settled, unheard *ebpf.Variable }

// Attach puts the programs on a folder of control groups v2. From then on everything is refused to what is in it, until
// Permit, but making inet sockets and binding them to loopback. literals are the addresses that rules consist of. On an
// error nothing is left behind.
func Attach(group string, literals []netip.Addr) (*Programs, error) {
	p := &Programs{}
	if err := p.attachAll(group, literals); err != nil {
		return nil, errors.Join(fmt.Errorf("attach programs to the control group %s: %w", group, err), p.Close())
	}
	return p, nil
}

func (p *Programs) attachAll(group string, literals []netip.Addr) error {
	var err error
	if p.group, err = os.Open(group); err != nil {
		return err
	}
	if err := p.load(literals); err != nil {
		return err
	}
	for i := range hooks {
		if err := p.attach(&hooks[i]); err != nil {
			return fmt.Errorf("%s: %w", hooks[i].name, err)
		}
	}
	p.reader, err = ringbuf.NewReader(p.objects[0].Maps[programsMapRing])
	return err
}

// load brings the programs into the kernel: all at once where it has every hook, otherwise one by one.
func (p *Programs) load(literals []netip.Addr) error {
	spec, err := loadPrograms()
	if err != nil {
		return err
	}
	if err := p.configure(spec, literals); err != nil {
		return err
	}
	defer raiseMemlock()()
	if err := p.loadAll(spec); err != nil {
		return err
	}
	maps, variables := p.objects[0].Maps, p.objects[0].Variables
	p.cell = cellVariables{variables[programsVarCellNet], variables[programsVarCellMounts], variables[programsVarSettled], variables[programsVarUnheard]}
	for _, a := range literals {
		if err := maps[programsMapLiterals].Put(a.As16(), uint8(1)); err != nil {
			return fmt.Errorf("store the address %s: %w", a, err)
		}
	}
	return nil
}

func (p *Programs) loadAll(spec *ebpf.CollectionSpec) error {
	all, err := ebpf.NewCollection(only(spec, func(h *hook) []string { return h.programs[:1] }))
	if err == nil {
		p.objects = []*ebpf.Collection{all}
		return nil
	}
	// Those that every kernel has make the maps.
	first, err := ebpf.NewCollection(only(spec, func(h *hook) []string {
		if h.optional || len(h.programs) > 1 {
			return nil
		}
		return h.programs
	}))
	if err != nil {
		return err
	}
	p.objects = []*ebpf.Collection{first}
	for i := range hooks {
		if h := &hooks[i]; h.optional || len(h.programs) > 1 {
			if err := p.loadOne(spec, h); err != nil {
				return fmt.Errorf("%s: %w", h.name, err)
			}
		}
	}
	return nil
}

// only is a spec with some of the programs.
func only(spec *ebpf.CollectionSpec, programs func(h *hook) []string) *ebpf.CollectionSpec {
	part := &ebpf.CollectionSpec{Maps: spec.Maps, Variables: spec.Variables, Types: spec.Types, ByteOrder: spec.ByteOrder, Programs: map[string]*ebpf.ProgramSpec{}}
	for i := range hooks {
		for _, name := range programs(&hooks[i]) {
			if program := spec.Programs[name]; program != nil {
				part.Programs[name] = program
			}
		}
	}
	return part
}

// configure sets what the programs know from the start.
func (p *Programs) configure(spec *ebpf.CollectionSpec, literals []netip.Addr) error {
	var st syscall.Stat_t
	if err := syscall.Fstat(int(p.group.Fd()), &st); err != nil {
		return err
	}
	four, six := redirect.Synthetic4, redirect.Synthetic6
	for name, value := range map[string]any{
		programsVarGroup:          st.Ino, // the id of a group is its inode (kernfs, on 64 bits)
		programsVarSynthetic4:     four.Masked().Addr().As4(),
		programsVarSynthetic4Mask: mask(four.Bits(), 4),
		programsVarSynthetic6:     six.Masked().Addr().As16(),
		programsVarSynthetic6Mask: mask(six.Bits(), 16),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	// Without them a program would read somewhere else, so those that need them are left out.
	if err := setPlaces(spec); err != nil {
		for i := range hooks {
			if h := &hooks[i]; h.places {
				delete(spec.Programs, h.programs[0])
				p.lacks(h, err)
			}
		}
	}
	spec.Maps[programsMapLiterals].MaxEntries = uint32(max(1, len(literals)))
	return nil
}

// mask is the mask of a prefix, in network byte order.
func mask(bits, size int) []byte {
	m := make([]byte, size)
	for i := range bits {
		m[i/8] |= 0x80 >> (i % 8)
	}
	return m
}

// loadOne loads the first of a hook's programs that this kernel takes.
func (p *Programs) loadOne(spec *ebpf.CollectionSpec, h *hook) error {
	var errs []error
	for _, name := range h.programs {
		one := only(spec, func(other *hook) []string {
			if other == h {
				return []string{name}
			}
			return nil
		})
		if len(one.Programs) == 0 {
			return nil // left out by configure
		}
		c, err := ebpf.NewCollectionWithOptions(one, ebpf.CollectionOptions{MapReplacements: p.objects[0].Maps})
		if err == nil {
			p.objects = append(p.objects, c)
			return nil
		}
		errs = append(errs, err)
	}
	if !h.optional {
		return errors.Join(errs...)
	}
	p.lacks(h, errs[len(errs)-1])
	return nil
}

// lacks notes a hook that this kernel does not have.
func (p *Programs) lacks(h *hook, why error) { p.missing = append(p.missing, h.name+": "+plain(why)) }

// program finds the loaded program of a hook.
func (p *Programs) program(h *hook) *ebpf.Program {
	for _, c := range p.objects {
		for _, name := range h.programs {
			if program := c.Programs[name]; program != nil {
				return program
			}
		}
	}
	return nil
}

func (p *Programs) attach(h *hook) error {
	program := p.program(h)
	if program == nil {
		return nil // in missing
	}
	info, err := program.Info()
	if err != nil {
		return err
	}
	id, _ := info.ID()
	l, err := p.linkTo(h, program)
	if err != nil && h.optional {
		p.lacks(h, err)
		return nil
	}
	if err != nil {
		return err
	}
	p.attached = append(p.attached, attached{h, id, l})
	return nil
}

func (p *Programs) linkTo(h *hook, program *ebpf.Program) (link.Link, error) {
	if h.attach == 0 && h.wall == "" {
		return link.AttachRawTracepoint(link.RawTracepointOptions{Name: "sched_process_exec", Program: program})
	}
	// A real link, not the older attachment that stays when this process is gone and that others can replace.
	return link.AttachRawLink(link.RawLinkOptions{Target: int(p.group.Fd()), Program: program, Attach: h.attach})
}

// Hooks lists where programs are attached, and "hook: why" for those that this kernel does not have.
func (p *Programs) Hooks() (names, missing []string) {
	for _, a := range p.attached {
		names = append(names, a.hook.name)
	}
	slices.Sort(names)
	return names, slices.Clone(p.missing)
}

// Check asks the kernel whether every program is still attached.
func (p *Programs) Check() error {
	for _, a := range p.attached {
		if a.hook.wall == "" {
			continue // no wall, and a raw tracepoint cannot be detached from outside
		}
		now, err := link.QueryPrograms(link.QueryOptions{Target: int(p.group.Fd()), Attach: a.hook.attach})
		if err != nil {
			return &DetachedError{Hook: a.hook.name, Err: err}
		}
		if !slices.ContainsFunc(now.Programs, func(q link.AttachedProgram) bool { return q.ID == a.id }) {
			return &DetachedError{Hook: a.hook.name}
		}
	}
	return nil
}

// DetachedError says that a program is not on the session's control group any more.
type DetachedError struct {
	Hook string
	Err  error // why the kernel could not be asked, or nil
}

func (e *DetachedError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("it is not known any more whether the program %s is on the control group: %v", e.Hook, e.Err)
	}
	return fmt.Sprintf("the program %s was taken off the control group", e.Hook)
}

func (e *DetachedError) Unwrap() error { return e.Err }

// Close takes the programs down. Whatever runs in the group then is held by the other walls alone.
func (p *Programs) Close() (err error) {
	p.once.Do(func() {
		var errs []error
		if p.reader != nil {
			errs = append(errs, p.reader.Close())
		}
		for _, a := range p.attached {
			errs = append(errs, a.link.Close())
		}
		for _, c := range p.objects {
			c.Close()
		}
		if p.group != nil {
			errs = append(errs, p.group.Close())
		}
		err = errors.Join(errs...)
	})
	return err
}
