package bench

import (
	"os"
	"path/filepath"
	"testing"

	"coworker/integration/house/testuser"
)

// work is something that people do in a folder. It can be done again and again.
type work struct {
	name string
	make func(*testing.B, place)
	argv []string
}

const smallProgram = `package main

import (
	"encoding/json"
	"fmt"
	"os"
)

func main() { fmt.Fprintln(os.Stderr, json.Valid([]byte("{}"))) }
`

// reading is work that writes nothing, or little, in the workspace.
var reading = []work{
	{"git-status-20k", func(b *testing.B, p place) { p.makeRepository(b, 20_000) }, []string{"/usr/bin/git", "status", "--short"}},
	{"find-200k", func(b *testing.B, p place) { p.makeFiles(b, 200_000, nil) }, []string{"/usr/bin/find", ".", "-name", "none"}},
	{"1000-execs", func(b *testing.B, p place) { p.makeFiles(b, 0, nil) }, []string{"/bin/sh", "-c", "i=0; while [ $i -lt 1000 ]; do /bin/true; i=$((i+1)); done"}},
	{"go-build-cold", makeProgram, []string{"/bin/sh", "-c", "set -e; GOTOOLCHAIN=local GOFLAGS= GOCACHE=$HOME/.cache/cold go build -o /dev/null .; rm -rf $HOME/.cache/cold"}},
}

// writing is work that writes in the workspace, as scripts. Outside it is done in a copy of the folder: a staged session would
// see half of what is written in the real one.
var writing = []work{
	{"git-rebase-50", makeBranches, []string{"/bin/sh", "-c", "git checkout -q -B try side && git rebase -q main"}},
	{"checkout-20k", func(b *testing.B, p place) { p.makeRepository(b, 20_000) }, []string{"/bin/sh", "-c", "git worktree add -q -f copy && git worktree remove --force copy"}},
	{"go-build", makeProgram, []string{"/bin/sh", "-c", "GOTOOLCHAIN=local GOFLAGS= GOCACHE=$HOME/.cache/warm go build -o small ."}},
}

func makeProgram(b *testing.B, p place) {
	b.Helper()
	p.makeFiles(b, 0, nil)
	for name, data := range map[string]string{"go.mod": "module small\n\ngo 1.24\n", "main.go": smallProgram} {
		if err := os.WriteFile(filepath.Join(p.workspace, name), []byte(data), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	if err := p.user.Own(p.workspace); err != nil {
		b.Fatal(err)
	}
}

// makeBranches makes a branch with fifty commits beside main.
func makeBranches(b *testing.B, p place) {
	b.Helper()
	p.makeFiles(b, 1000, []byte("package none // a file with a line or two in it\n"))
	script := `set -e; git init -q -b main .; git config user.name a; git config user.email a@b; git add -A; git commit -q -m m; git checkout -q -b side
i=0; while [ $i -lt 50 ]; do echo $i >> d00/d00/f1.go; echo $i > n$i; git add -A; git commit -q -m c$i; i=$((i+1)); done
git checkout -q main; echo more > more; git add -A; git commit -q -m more`
	if out, err := p.command("/bin/sh", "-c", script).CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
}

// BenchmarkInside is ordinary work in an open session against the same work outside, as the unprivileged user. The ratio
// is that of the shortest rounds. A cell is a session of its own and so, where the kernel groups by session
// (sched(7), autogroup), it competes with other load as a group of its own, in either direction.
func BenchmarkInside(b *testing.B) {
	compare(b, reading, request{Open: 1}, "work inside: ", atMost(1.05, "≤ 1.05x"))
}

// BenchmarkStaged is the same in a staged session, with work that writes besides.
func BenchmarkStaged(b *testing.B) {
	compare(b, append(reading[:2:2], writing...), request{Open: 1, Staged: true}, "work staged: ", atMost(1.15, "≤ 1.15x"))
}

func compare(b *testing.B, all []work, open request, title string, limit budget) {
	for _, w := range all {
		b.Run(w.name, func(b *testing.B) {
			p := newPlace(b, testuser.Unprivileged(b))
			w.make(b, p)
			h := p.helper(b)
			h.ask(open)
			commands := map[string][]string{"bare": w.argv, inside: w.argv}
			if open.Staged {
				commands["bare"] = p.elsewhere(b, w.argv)
			}
			h.ask(request{Variants: commands, Order: []string{"bare", inside}}) // the caches of the kernel
			s := h.rounds(commands)
			s.metrics(b)
			x := s.best(inside, "bare")
			b.ReportMetric(x, "x-bare")
			report.add(result{what: title + w.name, ours: millis(s.median(inside)), peer: "bare " + millis(s.median("bare")), ratio: times(x),
				value: x, budget: limit})
		})
	}
}

// elsewhere makes a copy of the workspace and moves a command there.
func (p place) elsewhere(b *testing.B, argv []string) []string {
	b.Helper()
	if out, err := p.command("/bin/cp", "-a", ".", "../bare").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	return append([]string{"/bin/sh", "-c", `cd ../bare && exec "$0" "$@"`}, argv...)
}
