package protect

import (
	"slices"
	"testing"
	"unicode"
	"unicode/utf8"
)

// TestFolds: the list is what Fold does to every character there is.
func TestFolds(t *testing.T) {
	list := Folds()
	for r := rune(utf8.RuneSelf); r <= unicode.MaxRune; r++ {
		if r >= 0xd800 && r <= 0xdfff || r >= 0xe0000 && r <= 0xe0fff {
			continue
		}
		got := Fold("a" + string(r) + "b")
		to, listed := list[r]
		if ascii := isASCII(got); ascii != listed || listed && got != "a"+to+"b" {
			t.Errorf("%U: folds to %q, list has %q, %v", r, got, to, listed)
		}
	}
}

// TestNames: with the names of the list and one other every answer of Enter is known.
func TestNames(t *testing.T) {
	names := Names()
	if len(names) < 20 || !slices.Contains(names, ".git") || !slices.Contains(names, "git-rebase-todo") {
		t.Errorf("%q", names)
	}
	for s := State(0); int(s) < States; s++ {
		for _, table := range append(special[:], anywhere) {
			for name := range table {
				if !slices.Contains(names, name) || Fold(name) != name {
					t.Errorf("%q is not listed, or not as it is compared", name)
				}
			}
		}
		for _, dir := range []bool{false, true} {
			rule, below := s.Enter("other", dir)
			if again, same := s.Enter("another", dir); again != rule || same != below {
				t.Errorf("state %d: two unknown names differ", s)
			}
		}
	}
}
