//go:build seccompgen

package main

import (
	"fmt"
	"slices"
	"syscall"
)

// action is what a leaf of a decision tree answers: zero allows the call, any other value refuses it with that errno.
// ENOSYS is the default action of every filter, so a leaf that says ENOSYS produces no rule at all.
type action syscall.Errno

const allow action = 0

// cube is a set of register values: all v with v&mask == value.
type cube struct{ mask, value uint64 }

func (c cube) contains(d cube) bool {
	return c.mask&^d.mask == 0 && d.value&c.mask == c.value
}

func (c cube) disjoint(d cube) bool {
	both := c.mask & d.mask
	return c.value&both != d.value&both
}

// node is one step of a decision about a call. A node without cases is a leaf.
//
// A value is compared only within domain, which is never wider than 32 bits: the kernel takes int and unsigned int
// arguments from the low half of a register, so a rule about the whole register can be walked round by setting a bit
// in the high half.
type node struct {
	do        action
	arg       uint
	domain    uint64
	cases     []branch
	otherwise *node
	sensible  uint64 // if not zero: values with other bits set get the default action instead of otherwise
}

type branch struct {
	when []cube
	then *node
}

func leaf(a action) *node { return &node{do: a} }

// values are exact values within the domain of the node that uses them; their masks are filled in by choose.
func values(vs ...uint64) []cube {
	cubes := make([]cube, len(vs))
	for i, v := range vs {
		cubes[i] = cube{value: v}
	}
	return cubes
}

func when(cubes []cube, then *node) branch { return branch{when: cubes, then: then} }

// choose looks at the bits of one argument that lie in domain.
func choose(arg uint, domain uint64, otherwise *node, cases ...branch) *node {
	for _, b := range cases {
		for i := range b.when {
			if b.when[i].mask == 0 {
				b.when[i].mask = domain
			}
		}
	}
	return &node{arg: arg, domain: domain, cases: cases, otherwise: otherwise}
}

// within makes otherwise answer for values within bits only. What lies above is no value of the kernel's and gets the
// default, which also refuses: writing out an errno for it would double the size of the filter and its time to load.
func (n *node) within(bits uint64) *node {
	n.sensible = bits
	return n
}

// without allows a call in which no bit of mask is set in the argument.
func without(arg uint, mask uint64, refusal action) *node {
	return choose(arg, mask, leaf(refusal), when(values(0), leaf(allow)))
}

// complement returns disjoint cubes that cover exactly the values of domain outside of taken, of those with no bits
// but the sensible ones.
//
// libseccomp has a masked comparison for equality only, none for inequality, and a chain of rules that overlap is
// resolved by the order in which the library happens to put them. So "anything else" is written out as cubes, and no
// two rules about one call ever overlap.
func complement(domain, sensible uint64, taken []cube) []cube {
	if sensible == 0 {
		sensible = domain
	}
	return carve(sensible, cube{mask: domain &^ sensible}, taken)
}

func carve(left uint64, at cube, taken []cube) []cube {
	hit := false
	for _, t := range taken {
		if t.contains(at) {
			return nil
		}
		hit = hit || !t.disjoint(at)
	}
	if !hit {
		return []cube{at}
	}
	bit := highest(left, taken)
	zero := cube{at.mask | bit, at.value}
	one := cube{at.mask | bit, at.value | bit}
	return append(carve(left&^bit, one, taken), carve(left&^bit, zero, taken)...)
}

// highest is the most significant bit of left that any of the cubes looks at.
func highest(left uint64, taken []cube) uint64 {
	var used uint64
	for _, t := range taken {
		used |= t.mask
	}
	for bit := uint64(1) << 63; bit != 0; bit >>= 1 {
		if left&used&bit != 0 {
			return bit
		}
	}
	panic("cubes cannot be told apart within their domain")
}

// condition is one comparison of a flat rule.
type condition struct {
	arg uint
	cube
}

// path is one flat rule: all conditions hold, then the action.
type path struct {
	conds []condition
	do    action
}

// flatten turns a tree into rules that do not overlap.
func (n *node) flatten() ([]path, error) {
	if n.cases == nil {
		return []path{{do: n.do}}, nil
	}
	var taken []cube
	var paths []path
	descend := func(c cube, to *node) error {
		below, err := to.flatten()
		for _, p := range below {
			conds := append([]condition{{n.arg, c}}, p.conds...)
			paths = append(paths, path{conds, p.do})
		}
		return err
	}
	for _, b := range n.cases {
		for _, c := range b.when {
			if c.mask&^n.domain != 0 || c.value&^c.mask != 0 {
				return nil, fmt.Errorf("argument %d: value %#x does not fit mask %#x of domain %#x", n.arg, c.value, c.mask, n.domain)
			}
			if slices.ContainsFunc(taken, func(t cube) bool { return !t.disjoint(c) }) {
				return nil, fmt.Errorf("argument %d: %#x/%#x is listed twice", n.arg, c.value, c.mask)
			}
			taken = append(taken, c)
			if err := descend(c, b.then); err != nil {
				return nil, err
			}
		}
	}
	for _, c := range complement(n.domain, n.sensible, taken) {
		if err := descend(c, n.otherwise); err != nil {
			return nil, err
		}
	}
	return paths, nil
}
