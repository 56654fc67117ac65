package house

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Exception lets one place break one rule up to a limit, for a stated reason.
type Exception struct {
	Rule, Key string
	Limit     int
	Reason    string
	Line      int
}

// ParseExceptions reads lines of "RULE KEY LIMIT REASON…". Import rules have no exceptions: a wrong rule is
// changed in DESIGN.md, a wrong import in the code.
func ParseExceptions(r io.Reader) ([]Exception, error) {
	var out []Exception
	sc := bufio.NewScanner(r)
	for n := 1; sc.Scan(); n++ {
		line := strings.TrimSpace(sc.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Fields(line)
		if len(f) < 7 {
			return nil, fmt.Errorf("line %d: want RULE KEY LIMIT and a reason of at least four words, have %q", n, line)
		}
		limit, err := strconv.Atoi(f[2])
		if err != nil || limit < 1 {
			return nil, fmt.Errorf("line %d: limit %q is not a positive number", n, f[2])
		}
		if f[0] == "direction" || len(f[0]) == 2 && f[0][0] == 'D' {
			return nil, fmt.Errorf("line %d: import rule %s has no exceptions", n, f[0])
		}
		out = append(out, Exception{Rule: f[0], Key: f[1], Limit: limit, Reason: strings.Join(f[3:], " "), Line: n})
	}
	return out, sc.Err()
}

// Apply removes what an exception covers and is a ratchet: a limit that is higher than needed, or an exception
// that nothing needs any more, is a complaint of its own, so the list only gets shorter.
func Apply(found []Violation, exceptions []Exception) []string {
	var complaints []string
	used := map[int]bool{}
	for _, v := range found {
		e := match(exceptions, v)
		switch {
		case e == nil:
			complaints = append(complaints, v.String())
			continue
		case v.Value > e.Limit:
			complaints = append(complaints, fmt.Sprintf("%s (the exception on line %d allows %d)", v, e.Line, e.Limit))
		case v.Value < e.Limit:
			complaints = append(complaints, fmt.Sprintf("%s: %s: is %d now, lower the limit on line %d from %d", v.Rule, v.Key, v.Value, e.Line, e.Limit))
		}
		used[e.Line] = true
	}
	for _, e := range exceptions {
		if !used[e.Line] {
			complaints = append(complaints, fmt.Sprintf("%s: %s: nothing needs the exception on line %d any more, remove it", e.Rule, e.Key, e.Line))
		}
	}
	return complaints
}

func match(exceptions []Exception, v Violation) *Exception {
	for i := range exceptions {
		if exceptions[i].Rule == v.Rule && exceptions[i].Key == v.Key {
			return &exceptions[i]
		}
	}
	return nil
}
