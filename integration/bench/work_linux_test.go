package bench

import (
	"os"
	"path/filepath"
	"testing"

	"coworker/integration/house/testuser"
)

// BenchmarkInside is ordinary work in an open session against the same work outside, as the unprivileged user. The ratio
// is that of the shortest rounds. A cell is a session of its own and so, where the kernel groups by session
// (sched(7), autogroup), it competes with other load as a group of its own, in either direction.
func BenchmarkInside(b *testing.B) {
	const program = `package main

import (
	"encoding/json"
	"fmt"
	"os"
)

func main() { fmt.Fprintln(os.Stderr, json.Valid([]byte("{}"))) }
`
	tests := []struct {
		name string
		make func(*testing.B, place)
		argv []string
	}{
		{"git-status-20k", func(b *testing.B, p place) { p.makeRepository(b, 20_000) }, []string{"/usr/bin/git", "status", "--short"}},
		{"find-200k", func(b *testing.B, p place) { p.makeFiles(b, 200_000, nil) }, []string{"/usr/bin/find", ".", "-name", "none"}},
		{"1000-execs", func(b *testing.B, p place) { p.makeFiles(b, 0, nil) }, []string{"/bin/sh", "-c", "i=0; while [ $i -lt 1000 ]; do /bin/true; i=$((i+1)); done"}},
		{"go-build-cold", func(b *testing.B, p place) {
			p.makeFiles(b, 0, nil)
			for name, data := range map[string]string{"go.mod": "module small\n\ngo 1.24\n", "main.go": program} {
				if err := os.WriteFile(filepath.Join(p.workspace, name), []byte(data), 0o644); err != nil {
					b.Fatal(err)
				}
			}
			if err := p.user.Own(p.workspace); err != nil {
				b.Fatal(err)
			}
		}, []string{"/bin/sh", "-c", "set -e; GOTOOLCHAIN=local GOFLAGS= GOCACHE=$HOME/.cache/cold go build -o /dev/null .; rm -rf $HOME/.cache/cold"}},
	}
	for _, tt := range tests {
		b.Run(tt.name, func(b *testing.B) {
			p := newPlace(b, testuser.Unprivileged(b))
			tt.make(b, p)
			h := p.helper(b)
			h.ask(request{Open: 1})
			commands := map[string][]string{"bare": tt.argv, inside: tt.argv}
			h.ask(request{Variants: commands, Order: []string{"bare", inside}}) // the caches of the kernel
			s := h.rounds(commands)
			s.metrics(b)
			x := s.best(inside, "bare")
			b.ReportMetric(x, "x-bare")
			report.add(result{what: "work inside: " + tt.name, ours: millis(s.median(inside)), peer: "bare " + millis(s.median("bare")), ratio: times(x),
				value: x, budget: atMost(1.05, "≤ 1.05x")})
		})
	}
}
