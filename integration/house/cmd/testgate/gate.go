package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"coworker/integration/house"
)

// event is one line of go test -json; see "go doc test2json" and, for builds, "go help buildjson".
type event struct {
	Action, Package, Test, Output, ImportPath string
	Elapsed                                   float64
}

type counts struct{ passed, failed, skipped int }

func (c *counts) add(o counts) {
	c.passed += o.passed
	c.failed += o.failed
	c.skipped += o.skipped
}

// gate turns events back into the output people know and keeps the score.
type gate struct {
	counts
	out     io.Writer
	verbose bool
	skips   []house.Skip

	open     map[string]*strings.Builder // output of running tests, by package and test
	order    []string                    // keys of open, oldest first
	red      map[string]bool             // packages with a failed test
	ran      map[string]bool             // packages that ran a test, or said that they have none
	unlisted []string
	silent   []string // packages that passed without running their tests: os.Exit(0) in TestMain
}

// read consumes the event stream. Lines that are no events (a tool's own words) are passed on.
func (g *gate) read(r io.Reader) error {
	g.open, g.red, g.ran = map[string]*strings.Builder{}, map[string]bool{}, map[string]bool{}
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil || e.Action == "" {
				fmt.Fprint(g.out, string(line))
			} else {
				g.take(e)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (g *gate) take(e event) {
	switch {
	case e.Action == "build-output":
		fmt.Fprint(g.out, e.Output)
	case e.Test == "":
		g.takePackage(e)
	default:
		g.takeTest(e)
	}
}

func (g *gate) takePackage(e event) {
	switch e.Action {
	case "output":
		if strings.Contains(e.Output, "[no tests to run]") {
			g.ran[e.Package] = true
		}
		// The bare words of the test binary; the line of go test itself ("ok …", "FAIL …") follows.
		if g.verbose || e.Output != "PASS\n" && e.Output != "FAIL\n" && e.Output != "testing: warning: no tests to run\n" {
			fmt.Fprint(g.out, e.Output)
		}
	case "pass":
		if !g.ran[e.Package] {
			g.silent = append(g.silent, e.Package)
		}
	case "fail":
		// A build that broke, a panic, a time-out, os.Exit in TestMain: no test says so, hence the package counts.
		for _, key := range slices.Clone(g.order) {
			if strings.HasPrefix(key, e.Package+" ") {
				g.flush(key, true)
			}
		}
		if !g.red[e.Package] {
			g.failed++
		}
	}
}

func (g *gate) takeTest(e event) {
	key := e.Package + " " + e.Test
	g.ran[e.Package] = true
	switch e.Action {
	case "output":
		if g.open[key] == nil {
			g.open[key] = &strings.Builder{}
			g.order = append(g.order, key)
		}
		g.open[key].WriteString(e.Output)
	case "pass":
		g.passed++
		g.flush(key, g.verbose)
	case "fail":
		g.failed++
		g.red[e.Package] = true
		g.flush(key, true)
	case "skip":
		g.skipped++
		listed := house.Allowed(g.skips, e.Package, e.Test, os.Geteuid() == 0)
		if !listed {
			g.unlisted = append(g.unlisted, key)
		}
		g.flush(key, g.verbose || !listed)
	}
}

// flush ends a test's output, printed without the progress lines that -json switches on.
func (g *gate) flush(key string, show bool) {
	text, ok := g.open[key]
	if !ok {
		return
	}
	delete(g.open, key)
	g.order = slices.DeleteFunc(g.order, func(k string) bool { return k == key })
	if !show {
		return
	}
	for line := range strings.Lines(text.String()) {
		if g.verbose || !strings.HasPrefix(line, "=== ") {
			fmt.Fprint(g.out, line)
		}
	}
}

// verdict lists what the exit code of go test does not say.
func (g *gate) verdict() []error {
	var out []error
	for _, key := range g.unlisted {
		out = append(out, fmt.Errorf("skipped and not listed in integration/skips.txt: %s", key))
	}
	for _, pkg := range g.silent {
		out = append(out, fmt.Errorf("passed without running its tests: %s", pkg))
	}
	if g.passed+g.failed+g.skipped == 0 {
		out = append(out, errors.New("no test ran"))
	}
	if g.failed > 0 {
		out = append(out, fmt.Errorf("%d failed", g.failed))
	}
	return out
}
