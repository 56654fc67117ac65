package guard

import (
	"math/rand/v2"
	"strings"
	"testing"

	"coworker/enforce"
	"coworker/enforce/protect"
)

// What walk answers.
const (
	refused = 1 << iota
	hides
	pins
	links
	left
)

// kernel is what the programs have of a plan.
type kernel struct {
	machine *machine
	table   [baseStates][tableClasses]step
	edges   map[edge]step
	root    *node
}

func kernelOf(m *machine, p *plan) *kernel { return &kernel{m, m.table(), p.edges(), p.root} }

// walk is walk of the programs, in Go.
func (k *kernel) walk(rel string, folder, seal bool) uint8 {
	state, base := k.root.id, k.root.base
	names := strings.Split(rel, "/")
	var above, last uint8
	for i, name := range names {
		c := k.machine.known(name)
		st, ok := k.edges[edge{state, c}]
		if !ok {
			st = k.table[base][otherClass]
			if c < tableClasses {
				st = k.table[base][c]
			}
		}
		state, base = st.Next, st.Base
		if st.Flags&resets != 0 {
			above = 0
		}
		if c == untold {
			above |= always
		}
		switch depth := len(names) - 1 - i; {
		case depth == 0 && folder:
			last = st.Dir
		case depth == 0:
			last = st.File
		default:
			above |= st.Dir
			if depth > 1 && st.Dir&hooks != 0 {
				above |= always
			}
		}
	}
	return verdict(above, last, names[len(names)-1], folder, seal)
}

func verdict(above, last uint8, name string, folder, seal bool) (answer uint8) {
	if (above|last)&always != 0 {
		answer |= refused
	}
	if (above|last)&hidden != 0 {
		answer |= hides | refused
	}
	if last&pinned != 0 {
		answer |= pins
	}
	if last&redirect != 0 {
		answer |= links
	}
	if (above|last)&(honest|hooks) != 0 {
		if seal {
			answer |= refused | left
		} else if above&hooks != 0 && (folder || !strings.HasSuffix(name, ".sample")) {
			answer |= refused
		}
	}
	return answer
}

// names that random paths are made of.
var vocabulary = append([]string{
	"a", "src", "HEAD", "objects", ".GIT", ".git.", ".git . ", ".git:x", "git~1", "GIT~1", ".gıt", ".gİt", "\u200b.git", ".\u200cgit", "HOOK\u017f",
	".claude\u00ad", "\xff.git", ".git\xff", "\xe2\x80", ".vscode::$DATA", "conﬁg", "info.", "x:y", "...", ". .", ":", ":.git", ".\u212aube", "pre-commit", "pre-commit.sample",
	".git:日本", "日本", "Ärger", "modules", "tasks.json.", "git-rebase-todo ",
}, protect.Names()...)

func randomPath(r *rand.Rand) string {
	parts := make([]string, 1+r.IntN(6))
	for i := range parts {
		parts[i] = vocabulary[r.IntN(len(vocabulary))]
		if r.IntN(8) == 0 {
			parts[i] = strings.ToUpper(parts[i])
		}
	}
	return strings.Join(parts, "/")
}

// TestMachineIsProtect: in a sealed tree the tables refuse exactly what enforce/protect says is protected, but for what is
// judged at the end only.
func TestMachineIsProtect(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	m := newMachine()
	p, err := m.planOf(enforce.Tree{})
	if err != nil {
		t.Fatal(err)
	}
	k, matched := kernelOf(m, p), 0
	for range 200000 {
		rel, folder := randomPath(r), r.IntN(2) == 0
		want := protectedHere(rel, folder)
		if want {
			matched++
		}
		if got := k.walk(rel, folder, true)&refused != 0; got != want {
			t.Fatalf("%q, folder %v: machine %v, protect %v", rel, folder, got, want)
		}
		if lenient := k.walk(rel, folder, false)&refused != 0; lenient && !want {
			t.Fatalf("%q is refused in a tree that is not sealed only", rel)
		}
	}
	if matched < 20000 || matched > 180000 {
		t.Errorf("%d of 200000 paths are protected: the test shows little", matched)
	}
}

// protectedHere is Match without what is judged at the end only.
func protectedHere(rel string, folder bool) bool {
	s := protect.Tree
	names := strings.Split(rel, "/")
	for i, name := range names {
		rule, below := s.Enter(name, folder || i < len(names)-1)
		if rule != nil && !rule.AtEnd {
			return true
		}
		s = below
	}
	return false
}

func TestMeaningOfNames(t *testing.T) {
	m := newMachine()
	p, err := m.planOf(enforce.Tree{
		Pins:      []string{".git", "bare", "sub"},
		Protected: []string{".git/config", ".git/hooks", "bare/config", "sub/other-name"},
		Masks:     []string{".env", "sub/Ärger"}, MaskDirs: []string{"private"},
		Lifted: []string{".mcp.json", ".claude/skills", "new/.git"},
	})
	if err != nil {
		t.Fatal(err)
	}
	k := kernelOf(m, p)
	for _, c := range []struct {
		rel          string
		folder, seal bool
		want         uint8
	}{
		{".git", true, false, pins}, {"sub", true, false, pins}, {"src", true, false, 0},
		{".git/config", false, false, refused}, {".git/hooks/x.sample", false, false, refused}, {".git/index", false, false, 0},
		{".git/commondir", false, false, refused}, {".git/config.worktree", false, false, refused},
		{".git/worktrees/w/gitdir", false, false, 0}, {".git/modules/m/config", false, false, 0},
		{"bare/config", false, false, refused}, {"bare/commondir", false, false, refused}, {"bare/hooks", true, false, refused},
		{"sub/other-name", false, false, refused}, {"SUB/OTHER-NAME", false, false, refused},
		{".env", false, false, hides | refused}, {"sub/Ärger", false, false, hides | refused}, {"private/a/b", false, false, hides | refused},
		{".mcp.json", false, true, 0}, {"sub/.mcp.json", false, false, refused},
		{".claude", true, false, refused}, {".claude/settings.json", false, false, refused}, {".claude/skills/x/y", false, false, 0},
		{"new/.git", true, true, 0}, {"new/.git/config", false, true, 0}, {"new/.git/hooks/pre-commit", false, true, 0},
		// What honest git makes: left to the sweep, unless the tree is sealed.
		{"nested/.git", true, true, 0}, {"nested/.git/HEAD", false, true, 0},
		{"nested/.git/config", false, false, 0}, {"nested/.git/config", false, true, refused | left},
		{"nested/.git/hooks", true, false, 0}, {"nested/.git/hooks/pre-commit.sample", false, false, 0},
		{"nested/.git/hooks/pre-commit", false, false, refused}, {"nested/.git/hooks/d", true, false, refused},
		{"nested/.git/hooks/d/x.sample", false, false, refused}, {"nested/.git/hooks/pre-commit.sample", false, true, refused | left},
		{"wt/.git", false, false, 0}, {"wt/.git", false, true, refused | left},
		{".vscode", true, true, 0}, {".vscode", false, true, links}, {".vscode/tasks.json", false, false, refused},
		{"nested/.git/rebase-merge/git-rebase-todo", false, true, 0},
	} {
		if got := k.walk(c.rel, c.folder, c.seal); got != c.want {
			t.Errorf("%q, folder %v, sealed %v: %b, want %b", c.rel, c.folder, c.seal, got, c.want)
		}
	}
}

// TestMountsInside: the root of a mount inside a tree has the state and the meaning of its place.
func TestMountsInside(t *testing.T) {
	m := newMachine()
	p, err := m.planOf(enforce.Tree{Pins: []string{"sub"}, MaskDirs: []string{"private"}, Lifted: []string{".claude/skills"}})
	if err != nil {
		t.Fatal(err)
	}
	for rel, want := range map[string]struct{ base, meaning uint8 }{
		"sub":              {uint8(protect.Tree), pinned},
		"sub/deep":         {uint8(protect.Tree), pinned},
		"private/x":        {uint8(protect.Tree), hidden},
		".git/hooks/deep":  {uint8(protect.Inside), hooks},
		".claude/x":        {uint8(protect.Inside), always},
		".claude/skills/x": {free, 0},
		"n/.git":           {uint8(protect.GitDir), 0},
	} {
		if _, base, meaning := p.enter(rel); base != want.base || meaning != want.meaning {
			t.Errorf("%q: base %d meaning %b, want %+v", rel, base, meaning, want)
		}
	}
}

// TestSigns: names that fold to one ASCII name have the same signs, and only they do. Bytes that are no UTF-8 may be taken
// for a name that they are not.
func TestSigns(t *testing.T) {
	for _, a := range vocabulary {
		for _, b := range protect.Names() {
			same, want := key(signs(a)) == key(signs(b)), protect.Fold(a) == b
			if a == gitAlias || a == "GIT~1" {
				same = same || b == ".git"
			}
			if same != want {
				t.Errorf("%q and %q: same %v, want %v", a, b, same, want)
			}
		}
	}
}

// TestLongNames: none that a file system may take for a protected one is taken for another, and honest ones differ.
func TestLongNames(t *testing.T) {
	m := newMachine()
	git := m.known(".git")
	for name, want := range map[string]uint32{
		".git" + strings.Repeat(".", 200): git, ".GIT" + strings.Repeat(" .", 100): git, ".git:" + strings.Repeat("x", 200): git,
		".g\u200bit" + strings.Repeat("\u200b", 20):     untold,
		strings.Repeat("\u200b", 20) + ".git":           untold,
		"application-production-settings-long.json":     otherClass,
		strings.Repeat("\U0001f469\u200d", 10) + ".git": otherClass,
		strings.Repeat("\u00e4", 100):                   otherClass,
	} {
		if got := m.known(name); got != want {
			t.Errorf("%q: class %d, want %d", name, got, want)
		}
	}
	if key(signs("application-production-settings-long-a.json")) == key(signs("application-production-settings-long-b.json")) {
		t.Error("two long names count as one")
	}
}

func FuzzSigns(f *testing.F) {
	for _, v := range vocabulary {
		f.Add(v)
	}
	m := newMachine()
	byName := map[string]uint32{}
	for _, n := range protect.Names() {
		byName[n] = m.known(n)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if want, ok := byName[protect.Fold(name)]; ok && m.known(name) != want && m.known(name) != untold {
			t.Errorf("%q folds to %q, and is not known as it", name, protect.Fold(name))
		}
	})
}
