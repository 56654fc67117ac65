package walls

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"coworker/integration/house/testuser"
)

// TestConformance shows that no attempt is missing from the list, and that every case it names exists.
func TestConformance(t *testing.T) {
	all, err := parse(conformance)
	if err != nil {
		t.Fatal(err)
	}
	for _, complaint := range missing(all) {
		t.Error(complaint)
	}
	known := newIndex(t)
	used := map[string]bool{}
	for _, l := range all {
		if len(l.cases) == 0 && l.later == "" && l.declined == "" {
			t.Errorf("%s is tested nowhere, for no reason", l.id)
		}
		for _, name := range l.cases {
			found, err := known.find(name)
			if err != nil {
				t.Errorf("%s: %v", l.id, err)
			}
			for _, f := range found {
				used[f] = true
			}
		}
	}
	tested := 0
	for _, l := range all {
		if len(l.cases) > 0 {
			tested++
		}
	}
	t.Logf("%d attempts of the list, %d with cases; %d of %d attempts of the attacker are named", len(all), tested, len(used), len(known.attempts))
}

// TestConformanceNotices shows that each mistake is found.
func TestConformanceNotices(t *testing.T) {
	for _, bad := range []string{"001 | a", "1 | a | TestX", "001 | a | ", "001 | a | later: ", "001 | a | b c", "002 | a | TestX\n001 | b | TestX"} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	without := regexp.MustCompile(`(?m)^042 .*\n`).ReplaceAllString(conformance, "")
	all, err := parse(without + "400 | a | TestX\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := missing(all); len(got) != 2 || !strings.HasPrefix(got[0], "042") || !strings.HasPrefix(got[1], "400") {
		t.Errorf("complaints %q, want one on 042 and one on 400", got)
	}
	known := newIndex(t)
	for _, bad := range []string{"no-such-attempt", "no-such-*", "TestNoSuch", "TestGit/no-such", "enforce/probe.TestNoSuch", "no/such.TestMain", "egress:no-such", "egress:no-such-*"} {
		if _, err := known.find(bad); err == nil {
			t.Errorf("case %q was found", bad)
		}
	}
}

// index knows every case that can be named.
type index struct {
	attempts []string
	waysOut  []string                   // of integration/egress
	tests    map[string]bool            // of this package
	tables   map[string]map[string]bool // rows of the tests that have a table
}

var testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)

func newIndex(t testing.TB) *index {
	t.Helper()
	x := &index{attempts: attemptNames(t), tables: map[string]map[string]bool{}}
	var err error
	if x.tests, err = testsIn("."); err != nil {
		t.Fatal(err)
	}
	if x.waysOut, err = waysOut(); err != nil {
		t.Fatal(err)
	}
	add := func(test, row string) {
		if x.tables[test] == nil {
			x.tables[test] = map[string]bool{}
		}
		x.tables[test][row] = true
	}
	for _, a := range gitAttacks {
		add("TestGit", a.name)
	}
	for _, a := range toolAttacks {
		add("TestTools", a.name)
	}
	for _, job := range honestWork {
		add("TestHonestWork", job.name)
	}
	for _, r := range refusals {
		add("TestRefusals", r.name)
	}
	for _, e := range endings {
		add("TestLife", e.name)
	}
	return x
}

// waysOut lists the attempts of integration/egress, whose own test compares the list with its program.
func waysOut() ([]string, error) {
	data, err := os.ReadFile("../egress/ways.txt")
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(string(data)) {
		if name, _, ok := strings.Cut(line, " | "); ok && !strings.HasPrefix(line, "#") {
			names = append(names, name)
		}
	}
	return names, nil
}

// testsIn lists the test functions of a folder.
func testsIn(dir string) (map[string]bool, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, m := range testFunction.FindAllStringSubmatch(string(data), -1) {
			found[m[1]] = true
		}
	}
	return found, nil
}

// find resolves the name of a case and returns the attempts that it stands for.
func (x *index) find(name string) ([]string, error) {
	dir, test, elsewhere := strings.Cut(name, ".Test")
	switch {
	case elsewhere && !strings.Contains(dir, ":"):
		tests, err := testsIn(filepath.Join("../..", dir))
		if err != nil || !tests["Test"+test] {
			return nil, fmt.Errorf("there is no test %s (%v)", name, err)
		}
		return nil, nil
	case strings.HasPrefix(name, "Test"):
		return nil, x.findTest(name)
	}
	if way, ok := strings.CutPrefix(name, "egress:"); ok {
		if len(named(x.waysOut, way)) == 0 {
			return nil, fmt.Errorf("there is no way out %q", way)
		}
		return nil, nil
	}
	found := named(x.attempts, name)
	if len(found) == 0 && !(name == "setuid-program" && os.Geteuid() != 0) {
		return nil, fmt.Errorf("there is no attempt %q", name)
	}
	return found, nil
}

// named lists the names that a case stands for.
func named(all []string, name string) []string {
	prefix, wild := strings.CutSuffix(name, "*")
	var found []string
	for _, a := range all {
		if a == name || wild && strings.HasPrefix(a, prefix) {
			found = append(found, a)
		}
	}
	return found
}

func (x *index) findTest(name string) error {
	test, row, part := strings.Cut(name, "/")
	if !x.tests[test] {
		return fmt.Errorf("there is no test %s", test)
	}
	if part && row != "*" && !x.tables[test][row] {
		return fmt.Errorf("%s has no case %q", test, row)
	}
	return nil
}

// TestTwice runs sessions in one workspace, at once and one after the other: none sees what another left in its private
// places, and together they leave the tree as it was.
func TestTwice(t *testing.T) {
	eachUser(t, func(t *testing.T, u testuser.User) {
		w := newWorld(t, u)
		plant := `test ! -e /tmp/left -a ! -e /dev/shm/left -a ! -e ~/left -a ! -L /tmp/link || { echo LEAK; exit 9; }; touch /tmp/left /dev/shm/left ~/left; ln -s / /tmp/link; chmod 777 .env 2>/dev/null; echo evil >> ~/.gitconfig; cat .env; echo fine`
		before := take(t, w.base, "own")
		leftBefore := leftovers(t)
		delete(before, ".")
		var running sync.WaitGroup
		results := make([]ended, 6)
		for i := range results {
			running.Go(func() { results[i] = w.finish(t, nil, w.command(t.Context(), "exec", "-w", "--", "sh", "-c", plant)) })
		}
		running.Wait()
		results = append(results, w.exec(t, nil, "sh", "-c", plant))
		for i, e := range results {
			if e.code != 0 || e.out != "fine\n" {
				t.Errorf("session %d ended with %d and printed %q: %s", i, e.code, e.out, e.err)
			}
		}
		after := take(t, w.base, "own")
		delete(after, ".")
		if diff := before.changed(after); len(diff) > 0 {
			t.Errorf("LEAK: changed:\n%s", before.explain(after))
		}
		checkLeftovers(t, leftBefore)
		if e := w.exec(t, nil, "sh", "-c", "grep -c evil ~/.gitconfig"); strings.TrimSpace(e.out) != "0" {
			t.Errorf("LEAK: the git configuration of one session is in the next: %q", e.out)
		}
	})
}
