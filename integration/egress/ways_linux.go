package egress

import (
	"fmt"
	"slices"
	"strings"
)

// way is what is expected of one attempt of the smuggler.
type way struct {
	name string
	// inside is what the attempt may say of itself in a cell: "no" (it is refused), "allowed" (a rule opens it), or "any:
	// why" (it gets something that leads nowhere).
	inside string
	// loopback: the way leads over the cell's loopback, so its word may be seen there.
	loopback bool
	// outside is the control without a cell: "seen" (the word leaves), "root" (it does so for root), "made" (root gets what it
	// wants), "maybe" (the kernel may be built without it), or "none: why".
	outside string
}

// parseWays reads ways.txt. Every line has four cells and every name stands once.
func parseWays(text string) ([]way, error) {
	var all []way
	for n, row := range strings.Split(text, "\n") {
		if row == "" || strings.HasPrefix(row, "#") {
			continue
		}
		w, err := parseWay(row)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
		if slices.ContainsFunc(all, func(o way) bool { return o.name == w.name }) {
			return nil, fmt.Errorf("line %d: %s stands twice", n+1, w.name)
		}
		all = append(all, w)
	}
	return all, nil
}

func parseWay(row string) (way, error) {
	cells := strings.Split(row, " | ")
	if len(cells) != 4 {
		return way{}, fmt.Errorf("%d cells, want name, inside, loopback, outside", len(cells))
	}
	w := way{name: cells[0], inside: cells[1], loopback: cells[2] == "lo", outside: cells[3]}
	if w.name == "" || strings.ContainsAny(w.name, " *") {
		return way{}, fmt.Errorf("%q is no name", w.name)
	}
	if cells[2] != "lo" && cells[2] != "-" {
		return way{}, fmt.Errorf("loopback %q, want lo or -", cells[2])
	}
	if !oneOf(w.inside, "any: ", "no", "allowed") {
		return way{}, fmt.Errorf("inside %q, want no, allowed or any with a reason", w.inside)
	}
	if !oneOf(w.outside, "none: ", "seen", "root", "made", "maybe") {
		return way{}, fmt.Errorf("outside %q, want seen, root, made, maybe or none with a reason", w.outside)
	}
	return w, nil
}

// oneOf takes one of the words, or a prefix with a reason behind it.
func oneOf(text, prefix string, words ...string) bool {
	reason, ok := strings.CutPrefix(text, prefix)
	return ok && strings.TrimSpace(reason) != "" || slices.Contains(words, text)
}
