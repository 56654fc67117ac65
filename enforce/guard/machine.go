package guard

import (
	"fmt"
	"slices"
	"strings"

	"coworker/enforce"
	"coworker/enforce/protect"
)

// What a name in a folder means; the same numbers are in guard.bpf.c.
const (
	always   = 1 << iota // the name alone decides
	honest               // honest git makes it in a new repository
	hooks                // the hooks folder, in which honest git makes *.sample
	hidden               // not to be read
	pinned               // a folder that may not be renamed or removed
	redirect             // not as a symbolic link
)

// resets in step.flags: what the folders above mean does not count from here on.
const resets = 1

// States of which the programs know the names by a table; numbers from baseStates on are states of a session.
const (
	baseStates   = 16
	free         = 14 // nothing is protected below
	covered      = 15 // everything is hidden below
	tableClasses = 64
	otherClass   = 1     // of every name that means nothing; 0 is no name
	untold       = 65535 // of a name that the programs refuse to tell
)

// step is what a name means, and the state of the folder with this name. The layout is that of the kernel side.
type step struct {
	Next  uint32
	Base  uint8
	Dir   uint8 // for a folder
	File  uint8 // for anything else
	Flags uint8
}

// edge is the key of a step of a session's own states.
type edge struct{ State, Class uint32 }

// machine turns names into the classes and states that the programs compute with. Names of sessions that have ended
// stay: they are few, and a class must not change its meaning.
type machine struct {
	classes map[string]uint32 // by key of the signs of a name
	fresh   []name            // what the kernel does not know yet
	last    uint32            // state given away last
}

type name struct {
	signs []uint64
	class uint32
}

// maxClasses bounds the names of all sessions; the map of the programs has as many entries.
const maxClasses = 1 << 15

// gitAlias is what NTFS calls .git; protect.Fold makes .git of it, but only of the whole name.
const gitAlias = "git~1"

func newMachine() *machine {
	m := &machine{classes: map[string]uint32{}, last: baseStates}
	for _, name := range protect.Names() {
		m.add(signs(name), otherClass+1+uint32(len(m.classes)))
	}
	m.add(signs(gitAlias), m.known(".git"))
	return m
}

func (m *machine) add(signs []uint64, class uint32) {
	m.classes[key(signs)] = class
	m.fresh = append(m.fresh, name{signs, class})
}

// known is the class of a name; that of no special name if it has none.
func (m *machine) known(name string) uint32 {
	list := signs(name)
	if list == nil {
		return untold
	}
	if c, ok := m.classes[key(list)]; ok {
		return c
	}
	return otherClass
}

// class of a name of a session, which gets one if it has none.
func (m *machine) class(name string) (uint32, error) {
	if c := m.known(name); c != otherClass {
		return c, nil
	}
	if len(m.classes) >= maxClasses-tableClasses {
		return 0, fmt.Errorf("guard: more than %d different names to watch", maxClasses-tableClasses)
	}
	c := uint32(tableClasses + len(m.classes))
	m.add(signs(name), c)
	return c, nil
}

func (m *machine) state() uint32 {
	m.last++
	return m.last
}

// table is what every name of enforce/protect means in every state.
func (m *machine) table() [baseStates][tableClasses]step {
	var t [baseStates][tableClasses]step
	for s := range t {
		for c := range t[s] {
			t[s][c] = baseStep(uint8(s), "other")
		}
		for _, name := range protect.Names() {
			t[s][m.known(name)] = baseStep(uint8(s), name)
		}
	}
	return t
}

// baseStep asks enforce/protect.
func baseStep(base uint8, name string) step {
	switch base {
	case free:
		return step{Next: free, Base: free}
	case covered:
		return step{Next: covered, Base: covered, Dir: hidden, File: hidden}
	}
	s := protect.State(base)
	dirRule, below := s.Enter(name, true)
	fileRule, _ := s.Enter(name, false)
	st := step{Next: uint32(below), Base: uint8(below), Dir: meaning(dirRule, true), File: meaning(fileRule, false)}
	if s.Redirects(name) != nil {
		st.File |= redirect
	}
	return st
}

// meaning of a rule for a name that appears. What only the end of a session judges may be written.
func meaning(r *protect.Rule, dir bool) uint8 {
	switch {
	case r == nil, r.AtEnd:
		return 0
	case r.Check == protect.HoldHooks && dir:
		return hooks
	case r.Check == protect.HoldAlways, r.Check == protect.HoldHooks, dir:
		return always
	}
	return honest
}

// node is a folder of a tree in which some path has a meaning of its own.
type node struct {
	id   uint32
	base uint8
	kids map[uint32]*branch // by class
}

type branch struct {
	step
	node *node // nil: the folder goes on as Next says
}

// plan is what one tree adds to the machine.
type plan struct {
	machine *machine
	root    *node
	leaves  map[uint32]bool // classes of hidden names
}

// planOf makes the states of a tree: what was found there keeps its meaning by name, also when the host replaces it.
func (m *machine) planOf(t enforce.Tree) (*plan, error) {
	p := &plan{machine: m, leaves: map[uint32]bool{}}
	p.root = p.node(uint8(protect.Tree))
	// Lifted paths first: they change what the names below them mean.
	for _, list := range []struct {
		rels []string
		mark func(*branch)
	}{
		{t.Lifted, func(b *branch) {
			b.Dir, b.File, b.Flags = 0, 0, resets
			b.Base, b.node.base = free, free
		}},
		{bareRepositories(t), func(b *branch) { b.Base, b.node.base = uint8(protect.GitDir), uint8(protect.GitDir) }},
		{t.Pins, func(b *branch) { b.Dir |= pinned }},
		{t.Protected, func(b *branch) { b.Dir, b.File = b.Dir|always, b.File|always }},
		{slices.Concat(t.Masks, t.MaskDirs), func(b *branch) { b.Dir, b.File = b.Dir|hidden, b.File|hidden }},
	} {
		for _, rel := range list.rels {
			b, err := p.path(rel)
			if err != nil {
				return nil, err
			}
			if b != nil {
				list.mark(b)
			} else {
				p.root.base = uint8(protect.GitDir)
			}
		}
	}
	for _, rel := range slices.Concat(t.Masks, t.MaskDirs) {
		c, err := m.class(rel[strings.LastIndexByte(rel, '/')+1:])
		if err != nil {
			return nil, err
		}
		p.leaves[c] = true
	}
	p.seal(p.root)
	return p, nil
}

func (p *plan) node(base uint8) *node {
	return &node{id: p.machine.state(), base: base, kids: map[uint32]*branch{}}
}

// path makes the states on the way to a path; nil for the tree itself.
func (p *plan) path(rel string) (*branch, error) {
	n, last := p.root, (*branch)(nil)
	for name := range strings.SplitSeq(rel, "/") {
		if name == "" || name == "." {
			continue
		}
		c, err := p.machine.class(name)
		if err != nil {
			return nil, err
		}
		if last = n.kids[c]; last == nil {
			st := baseStep(n.base, name)
			last = &branch{step: st, node: p.node(st.Base)}
			last.Next = last.node.id
			n.kids[c] = last
		}
		n = last.node
	}
	return last, nil
}

// bareRepositories are folders that the scan took for a repository by what is in them: something in them is protected
// that no name says.
func bareRepositories(t enforce.Tree) []string {
	var list []string
	for _, rel := range t.Protected {
		if _, known := protect.Match(rel, true); known {
			continue
		}
		cut := max(0, strings.LastIndexByte(rel, '/'))
		name := strings.TrimPrefix(rel[cut:], "/")
		if rule, _ := protect.GitDir.Enter(name, true); rule != nil {
			list = append(list, rel[:cut])
		}
	}
	return list
}

// seal makes always of what honest git writes, in folders of repositories that are there already.
func (p *plan) seal(n *node) {
	for _, b := range n.kids {
		if b.node != nil {
			p.seal(b.node)
		}
	}
	if n.base == uint8(protect.Tree) || n.base == free || n.base == covered {
		return
	}
	for _, name := range protect.Names() {
		c := p.machine.known(name)
		b := n.kids[c]
		if b == nil {
			b = &branch{step: baseStep(n.base, name)}
		}
		if (b.Dir|b.File)&(honest|hooks) == 0 {
			continue
		}
		b.Dir, b.File = sealed(b.Dir), sealed(b.File)
		n.kids[c] = b
	}
}

func sealed(meaning uint8) uint8 {
	if meaning&(honest|hooks) != 0 {
		meaning = meaning&^(honest|hooks) | always
	}
	return meaning
}

// edges lists the steps of the plan's own states.
func (p *plan) edges() map[edge]step {
	list := map[edge]step{}
	var visit func(*node)
	visit = func(n *node) {
		for c, b := range n.kids {
			list[edge{n.id, c}] = b.step
			if b.node != nil {
				visit(b.node)
			}
		}
	}
	visit(p.root)
	return list
}

// enter says which state and meaning a path below the root leads to, for mounts inside the tree.
func (p *plan) enter(rel string) (state uint32, base uint8, meaning uint8) {
	n, state, base := p.root, p.root.id, p.root.base
	for name := range strings.SplitSeq(rel, "/") {
		c := p.machine.known(name)
		st := baseStep(base, name)
		var next *node
		if n != nil && n.kids[c] != nil {
			st, next = n.kids[c].step, n.kids[c].node
		}
		if st.Flags&resets != 0 {
			meaning = 0
		}
		n, state, base, meaning = next, st.Next, st.Base, meaning|st.Dir
	}
	return state, base, meaning
}
