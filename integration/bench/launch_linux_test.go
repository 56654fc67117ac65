package bench

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"coworker/integration/house/testuser"
)

// BenchmarkWarmCall is one tool call in an open session, wire included, against fork and exec by the same process and
// against bubblewrap's whole cost.
func BenchmarkWarmCall(b *testing.B) {
	for _, u := range testuser.All(b) {
		b.Run(u.String(), func(b *testing.B) {
			p := newPlace(b, u)
			p.makeRepository(b, 1000)
			h := p.helper(b)
			h.ask(request{Open: 1})
			commands := map[string][]string{"bare": {"/bin/true"}, inside: {"/bin/true"}}
			p.addPeer(commands, "bwrap", p.bwrap("/bin/true"))
			h.ask(request{Variants: commands, Order: []string{"bare", inside, "bare", inside}})
			s := h.rounds(commands)
			s.metrics(b)
			b.ReportMetric(s.over(inside, "bare"), "x-bare")
			added := s.added(inside, "bare")
			b.ReportMetric(added, "added-ms")
			report.add(result{what: "warm call as " + u.String() + ", added", ours: millis(s.median(inside)), peer: "bare " + millis(s.median("bare")),
				ratio: times(s.over(inside, "bare")), value: added, budget: atMost(1, "≤ 1 ms added: "+millis(added))})
			if len(s["bwrap"]) > 0 {
				x := s.over(inside, "bwrap")
				b.ReportMetric(x, "x-bwrap")
				report.add(result{what: "warm call as " + u.String(), ours: millis(s.median(inside)), peer: "bwrap " + millis(s.median("bwrap")),
					ratio: times(x), value: x, budget: atMost(0.5, "< 0.5x bwrap")})
			}
		})
	}
}

// BenchmarkSweep is what a call costs more that leaves something to look at: a new file in a folder, and what git status
// and git commit do in .git. The tree is looked at from outside before the result is returned.
func BenchmarkSweep(b *testing.B) {
	for _, files := range []int{1_000, 20_000} {
		b.Run(strconv.Itoa(files), func(b *testing.B) {
			p := newPlace(b, testuser.Unprivileged(b))
			p.makeRepository(b, files)
			h := p.helper(b)
			h.ask(request{Open: 1})
			sh := func(script string) []string { return []string{"/bin/sh", "-c", script} }
			s := h.rounds(map[string][]string{
				"bare-nothing": sh("true"), "inside-nothing": sh("true"),
				"bare-file": sh(": > d00/new; rm d00/new"), "inside-file": sh(": > d00/new; rm d00/new"),
				"bare-status": sh("git status --short"), "inside-status": sh("git status --short"),
			})
			s.metrics(b)
			// A sweep takes less than the noise of git status, so the shortest rounds are compared.
			quiet := s.bestAdded("inside-nothing", "bare-nothing")
			for _, what := range []string{"file", "status"} {
				sweep := s.bestAdded("inside-"+what, "bare-"+what) - quiet
				b.ReportMetric(sweep, what+"-sweep-ms")
				report.add(result{what: "sweep after " + map[string]string{"file": "a new file", "status": "git status"}[what] + ", " + strconv.Itoa(files) + " files",
					ours: millis(sweep), peer: "quiet call " + millis(quiet) + " added"})
			}
		})
	}
}

// allowed is a network for sessions in which nothing uses it.
var allowed = []string{"example.com"}

// BenchmarkExec is the whole process `coworker exec -- true`, walls proved, in a repository of 1,000 files.
func BenchmarkExec(b *testing.B) {
	for _, u := range testuser.All(b) {
		b.Run(u.String(), func(b *testing.B) {
			p := newPlace(b, u)
			p.makeRepository(b, 1000)
			commands := map[string][]string{
				"bare": {"/bin/true"}, "exec": {filepath.Join(p.bin, "coworker"), "exec", "--", "true"},
				"version":  {filepath.Join(p.bin, "coworker"), "version"},
				"exec-net": {filepath.Join(p.bin, "coworker"), "exec", "--allow", allowed[0], "--", "true"},
			}
			p.addPeer(commands, "bwrap", p.bwrap("/bin/true"))
			p.addPeer(commands, "firejail", []string{"firejail", "--quiet", "--noprofile", "--net=none", "--read-only=/", "--read-write=" + p.workspace, "/bin/true"})
			p.addPeer(commands, "runc", p.runc(b))
			if text, err := p.command(commands["exec"][0], commands["exec"][1:]...).CombinedOutput(); err != nil {
				b.Fatalf("%v\n%s", err, text)
			}
			s := p.rounds(b, commands)
			s.metrics(b)
			ours := s.median("exec")
			what := "exec -- true as " + u.String()
			report.add(result{what: what, ours: millis(ours), peer: "bare " + millis(s.median("bare")), ratio: times(s.over("exec", "bare")),
				value: ours, budget: atMost(40, "≤ 40 ms")})
			b.ReportMetric(s.over("exec", "bare"), "x-bare")
			for _, peer := range []string{"bwrap", "firejail", "runc"} {
				limit := atMost(1, "faster")
				if peer == "bwrap" {
					limit = atMost(2.5, "stretch ≤ 2.5x")
				}
				if x := s.over("exec", peer); x > 0 {
					b.ReportMetric(x, "x-"+peer)
					report.add(result{what: what, ours: millis(ours), peer: peer + " " + millis(s.median(peer)), ratio: times(x), value: x, budget: limit})
				}
			}
			report.add(result{what: what + ", with a network (--allow)", ours: millis(s.median("exec-net")), peer: "without " + millis(ours),
				ratio: "adds " + millis(s.added("exec-net", "exec"))})
			report.add(result{what: what + ", of which Go start-up and command line", ours: millis(s.median("version")), ratio: times(s.over("version", "exec"))})
		})
	}
}

// runc makes a bundle with the same promises: system read-only, workspace writable, no network.
func (p place) runc(b *testing.B) []string {
	b.Helper()
	dir := filepath.Join(p.home, "bundle")
	if err := os.MkdirAll(filepath.Join(dir, "rootfs"), 0o755); err != nil {
		b.Fatal(err)
	}
	if err := p.user.Own(dir); err != nil {
		b.Fatal(err)
	}
	argv := []string{"runc", "--root", filepath.Join(p.home, "runc"), "run", "--bundle", dir, "bench" + strconv.Itoa(os.Getpid())}
	spec := []string{"runc", "spec", "--bundle", dir}
	if !p.user.Root() {
		spec = append(spec, "--rootless")
	}
	if p.command(spec[0], spec[1:]...).Run() != nil {
		return argv // addPeer says what is wrong
	}
	if err := p.editBundle(filepath.Join(dir, "config.json")); err != nil {
		b.Fatal(err)
	}
	return argv
}

func (p place) editBundle(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var c map[string]any
	if err := json.Unmarshal(data, &c); err != nil {
		return err
	}
	process, ok := c["process"].(map[string]any)
	if !ok {
		return os.ErrInvalid
	}
	process["terminal"], process["args"], process["cwd"] = false, []string{"/bin/true"}, p.workspace
	mounts, ok := c["mounts"].([]any)
	if !ok {
		return os.ErrInvalid
	}
	// The root file system is an empty folder that runc may write to: it makes the mount points itself.
	c["root"] = map[string]any{"path": "rootfs", "readonly": false}
	for _, dir := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", p.workspace} {
		options := []string{"rbind", "ro"}
		if dir == p.workspace {
			options = []string{"rbind", "rw"}
		}
		mounts = append(mounts, map[string]any{"destination": dir, "source": dir, "type": "bind", "options": options})
	}
	c["mounts"] = mounts
	if data, err = json.Marshal(c); err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
}

// BenchmarkPhases is what opening a session for one command consists of, in a process that has done it before: without
// Go's start-up, the record, and the check of the cell's binary. Phases in brackets happen inside the one before them.
func BenchmarkPhases(b *testing.B) {
	for _, u := range testuser.All(b) {
		b.Run(u.String(), func(b *testing.B) {
			p := newPlace(b, u)
			p.makeRepository(b, 1000)
			h := p.helper(b)
			first := h.ask(request{Open: 1, Once: true})
			h.ask(request{Open: 1, Once: true, Allow: allowed, Close: true})
			s, net := series{}, series{}
			for b.Loop() {
				s.add(h.ask(request{Open: 1, Once: true, Close: true}))
				net.add(h.ask(request{Open: 1, Once: true, Allow: allowed, Close: true}))
			}
			s.metrics(b)
			what := "start of a session as " + u.String() + ": "
			report.add(result{what: what + "check and copy the binaries of cell and proxy", ours: millis(first["program"])})
			for _, label := range slices.Sorted(maps.Keys(net)) {
				if label == "open" || label == "session" {
					continue // sums
				}
				name := label
				if strings.HasPrefix(label, "cell-") {
					name = "(" + label + ")"
				}
				report.add(result{what: what + name, ours: millis(s.median(label)), peer: "with a network " + millis(net.median(label)), ratio: times(s.over(label, "session"))})
			}
			report.add(result{what: what + "whole", ours: millis(s.median("session")), peer: "with a network " + millis(net.median("session"))})
		})
	}
}
