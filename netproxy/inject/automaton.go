package inject

// automaton finds all patterns in one pass (Aho and Corasick, Efficient string matching, 1975). Each octet costs constant
// time on average, however hostile the text. It is not changed after it is made, so streams share it.
//
// A pattern counts as found from three quarters of it on: servers cut what they quote.
type automaton struct {
	first [256]int32 // children of the root
	nodes []node
}

// node is a prefix of a pattern. Children are a list, not a table: almost every node has one.
type node struct {
	octet          byte
	depth          int32
	child, sibling int32 // 0: none
	fail           int32 // the longest proper suffix that is a prefix of a pattern
	found          int32 // how many octets up to here are to be hidden
}

// newAutomaton gives nil for no values.
func newAutomaton(values []string) *automaton {
	if len(values) == 0 {
		return nil
	}
	a := &automaton{nodes: make([]node, 1)}
	for _, v := range values {
		for _, p := range patterns(v) {
			a.insert(p)
		}
	}
	a.link()
	return a
}

func (a *automaton) insert(pattern string) {
	at, enough := int32(0), len(pattern)-len(pattern)/4
	for i := range len(pattern) {
		next := a.childOf(at, pattern[i])
		if next == 0 {
			next = a.grow(at, pattern[i])
		}
		at = next
		if i+1 >= enough {
			a.nodes[at].found = int32(i + 1)
		}
	}
}

func (a *automaton) grow(parent int32, c byte) int32 {
	next := int32(len(a.nodes))
	a.nodes = append(a.nodes, node{octet: c, depth: a.nodes[parent].depth + 1})
	if parent == 0 {
		a.first[c] = next
		return next
	}
	a.nodes[next].sibling = a.nodes[parent].child
	a.nodes[parent].child = next
	return next
}

func (a *automaton) childOf(at int32, c byte) int32 {
	if at == 0 {
		return a.first[c]
	}
	next := a.nodes[at].child
	for next != 0 && a.nodes[next].octet != c {
		next = a.nodes[next].sibling
	}
	return next
}

// link sets fail and found, nearest to the root first: both are those of nodes that are less deep.
func (a *automaton) link() {
	var queue []int32
	for _, n := range a.first {
		if n != 0 {
			queue = append(queue, n)
		}
	}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for next := a.nodes[at].child; next != 0; next = a.nodes[next].sibling {
			n := &a.nodes[next]
			n.fail = a.step(a.nodes[at].fail, n.octet)
			n.found = max(n.found, a.nodes[n.fail].found)
			queue = append(queue, next)
		}
	}
}

func (a *automaton) step(state int32, c byte) int32 {
	for state != 0 {
		if next := a.childOf(state, c); next != 0 {
			return next
		}
		state = a.nodes[state].fail
	}
	return a.first[c]
}
