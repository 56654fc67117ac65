package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"coworker/integration/egress/marker"
	"coworker/integration/house/testuser"
	"coworker/integration/netns"
)

// patience bounds a run of the whole battery.
const patience = 5 * time.Minute

// sentinel is the marker that the test itself sends when everything else has been sent.
const sentinel = "sentinel"

// allowRules open what the attempts named allowed-… use. The rest of the battery tries to get further.
var allowRules = []string{
	"ok.test:443=203.0.113.0/24", "plain.test:80=203.0.113.0/24", "raw.test:7000=203.0.113.0/24", "rebind-loopback.test:7000=203.0.113.0/24",
	"*.wild.test:7000=203.0.113.0/24", "203.0.113.16:7000", "rebind-metadata.test:7000=203.0.113.0/24", "rebind-private.test:7000=203.0.113.0/24", "rebind-host.test:7000=203.0.113.0/24",
}

func ways(t testing.TB) []way {
	t.Helper()
	all, err := parseWays(waysText)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func namesOf(all []way) []string {
	var names []string
	for _, w := range all {
		names = append(names, w.name)
	}
	return names
}

// TestWays makes every attempt inside a cell, without a network and with rules, and then outside of any.
func TestWays(t *testing.T) {
	all := ways(t)
	eachUser(t, func(t *testing.T, u testuser.User) {
		t.Run("none", func(t *testing.T) { inside(t, u, all, setting{}) })
		t.Run("allow", func(t *testing.T) { inside(t, u, all, setting{allow: true}) })
		t.Run("control", func(t *testing.T) { control(t, u, all) })
	})
}

// outcome is one line of the smuggler.
type outcome struct {
	Name   string `json:"name"`
	Worked bool   `json:"worked"`
	Errno  string `json:"errno"`
	Detail string `json:"detail"`
}

// battery is one run of the smuggler with everything that was seen of it.
type battery struct {
	world     *world
	finder    *marker.Finder
	host, far *capture
	cell      *capture // nil outside
	outcomes  map[string]outcome
	stderr    bytes.Buffer
	report    report // of a run inside
}

func newBattery(t testing.TB, u testuser.User, all []way) *battery {
	t.Helper()
	seed := make([]byte, 16)
	rand.Read(seed)
	run := marker.Run(seed)
	b := &battery{world: newWorld(t, u, run), finder: marker.NewFinder(run, append(namesOf(all), sentinel)), outcomes: map[string]outcome{}}
	start := func(c **capture, what string, ns *os.File) {
		if err := netns.In(ns, func() (err error) { *c, err = newCapture(what, b.finder); return err }); err != nil {
			t.Fatal(err)
		}
	}
	start(&b.host, "the host", b.world.hosts.n.host)
	start(&b.far, "the network", b.world.hosts.n.far)
	return b
}

// run starts a command that runs the smuggler, lets it begin when the captures run, and reads what it says.
func (b *battery) run(t testing.TB, cmd *exec.Cmd, last string) {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = &b.stderr
	if err := b.world.hosts.n.onHost(cmd.Start); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stdout)
	if line, err := lines.ReadString('\n'); line != "ready\n" {
		cmd.Wait()
		t.Fatalf("the smuggler said %q (%v): %s", line, err, b.stderr.String())
	}
	if last != "" {
		b.captureCell(t, cmd)
	}
	if _, err := io.WriteString(stdin, "\n"); err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(lines)
	for {
		var o outcome
		if err := d.Decode(&o); err != nil {
			break
		}
		b.outcomes[o.Name] = o
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v after %d attempts: %v: %.2000s", cmd.Args[:3], len(b.outcomes), err, b.stderr.String())
	}
	if b.cell != nil {
		b.cell.await(t, last)
	}
}

func (b *battery) captureCell(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	ns, err := cellNamespace(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	if err := netns.In(ns, func() (err error) { b.cell, err = newCapture("the cell", b.finder); return err }); err != nil {
		t.Fatal(err)
	}
}

// end sends the last word and stops the captures. It returns what the host and the network behind it saw, and what the
// cell's loopback saw.
func (b *battery) end(t testing.TB) (outside, loopback map[string]string) {
	t.Helper()
	for _, to := range []string{b.world.hosts.targets.Net["udp-far4"], b.world.hosts.targets.Net["udp-loopback4"]} {
		err := netns.In(b.world.hosts.n.host, func() error {
			c, err := net.Dial("udp", to)
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = io.WriteString(c, marker.Of(b.world.hosts.targets.Run, sentinel))
			return err
		})
		if err != nil {
			t.Errorf("send the last word: %v", err)
		}
	}
	b.host.await(t, sentinel)
	b.far.await(t, sentinel)
	outside, loopback = map[string]string{}, map[string]string{}
	for _, c := range []*capture{b.host, b.far, b.cell} {
		if c == nil {
			continue
		}
		seen, err := c.close()
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		for name, where := range seen {
			if c == b.cell {
				loopback[name] = where
			} else if name != sentinel {
				outside[name] = where
			}
		}
	}
	return outside, loopback
}

// setting says what the battery runs in.
type setting struct {
	allow bool   // with rules, and so with a proxy
	fault string // the wall that a build for tests leaves out
	level string // "partial"; empty: a session that proved all of its walls
}

// inside runs the battery in a cell.
func inside(t *testing.T, u testuser.User, all []way, in setting) *battery {
	b := newBattery(t, u, all)
	w, allow, programs := b.world, in.allow, built
	args := []string{"exec", "-w", "--report", w.reportFile()}
	if in.fault != "" {
		var err error
		if programs, err = faulty(); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--level", "partial")
	}
	if allow {
		for _, rule := range allowRules {
			args = append(args, "--allow", rule)
		}
	} else {
		args = append(args, "--net", "none")
	}
	args = append(append(args, "--", w.smuggler(), w.aim(t)), namesOf(all)...)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	defer neighbour(ctx, t, w)()
	cmd := w.command(ctx, filepath.Join(programs, "coworker"), args...)
	cmd.Env = append(cmd.Env, "COWORKER_TEST_FAULT="+in.fault)
	last := all[len(all)-1].name
	if in.fault == "net.egress" {
		last = "" // there is no loopback of a cell to look at
	}
	b.run(t, cmd, last)
	outside, loopback := b.end(t)
	for _, way := range all {
		for _, text := range b.complaints(way, allow, outside[way.name], loopback[way.name]) {
			t.Error(text)
		}
	}
	for _, seen := range []map[string]string{outside, loopback} {
		if where := seen[marker.Unknown]; where != "" {
			t.Errorf("LEAK: a word of the run that belongs to no attempt: %s", where)
		}
	}
	for _, name := range w.hosts.reached() {
		// The test's own last word goes to one of them.
		if name != "udp-loopback4 (1 times)" {
			t.Errorf("LEAK: the server %s of the host was reached", name)
		}
	}
	b.report = w.report(t, &b.stderr)
	if fine := b.report.Level == "enforced" || b.report.Level == "hardened"; fine == (in.level == "partial") {
		t.Errorf("level %q", b.report.Level)
	}
	w.hosts.asked.Range(func(name, _ any) bool {
		if !allow || !named(strings.TrimSuffix(name.(string), ".")) {
			t.Errorf("LEAK: the world's name server was asked for %s", name)
		}
		return true
	})
	return b
}

// named says whether a rule of the battery allows a name, and so lets the proxy ask for it.
func named(name string) bool {
	return slices.ContainsFunc(allowRules, func(rule string) bool {
		host, _, _ := strings.Cut(rule, ":")
		if domain, star := strings.CutPrefix(host, "*"); star {
			return strings.HasSuffix(name, domain)
		}
		return host == name
	})
}

// neighbour starts another session of the same person, with a rule of its own, and returns what ends it: neither its
// rules nor its proxy are of use to the session beside it.
func neighbour(ctx context.Context, t *testing.T, w *world) func() {
	t.Helper()
	cmd := w.command(ctx, filepath.Join(built, "coworker"), "exec", "--allow", "other.test:443=203.0.113.0/24", "--", "sh", "-c", "echo ready; cat")
	cmd.Dir = w.outside
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := w.hosts.n.onHost(cmd.Start); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		cmd.Wait()
		t.Fatalf("the session beside said %q: %v: %s", line, err, errs.String())
	}
	return func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the session beside: %v: %s", err, errs.String())
		}
	}
}

// complaints compares one attempt with what is expected of it.
func (b *battery) complaints(w way, allow bool, outside, loopback string) (all []string) {
	add := func(format string, args ...any) { all = append(all, w.name+": "+fmt.Sprintf(format, args...)) }
	o, made := b.outcomes[w.name]
	opened := allow && w.inside == "allowed"
	switch {
	case !made:
		add("it was not made")
	case opened && (!o.Worked || outside == ""):
		add("worked %v, seen %q (%s), want it to leave: a rule allows it", o.Worked, outside, o.Detail)
	case o.Worked && !opened && !strings.HasPrefix(w.inside, "any"):
		add("it got what it wanted")
	}
	if outside != "" && !opened {
		add("LEAK: its word left: %s", outside)
	}
	if loopback != "" && !w.loopback {
		add("its word was on the cell's loopback, which this way need not use: %s", loopback)
	}
	return all
}

// control runs the battery as an ordinary program of the host. Where a word leaves nothing shows that it could.
func control(t *testing.T, u testuser.User, all []way) {
	b := newBattery(t, u, all)
	b.world.hosts.targets.Names = resolver + ":53"
	var names []string
	for _, w := range all {
		if !strings.HasPrefix(w.outside, "none") {
			names = append(names, w.name)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	b.run(t, b.world.command(ctx, b.world.smuggler(), append([]string{b.world.aim(t)}, names...)...), "")
	outside, _ := b.end(t)
	for _, w := range all {
		o, seen := b.outcomes[w.name], outside[w.name] != ""
		want := w.outside == "seen" || w.outside == "root" && u.Root()
		if want && !seen || w.outside == "made" && u.Root() && !o.Worked {
			t.Errorf("%s outside: its word was not seen (worked %v, %s): inside that shows nothing", w.name, o.Worked, o.Detail)
		}
	}
}

// TestWaysAreListed wants ways.txt to name the attempts of the smuggler, each once, and mistakes in it to be noticed.
func TestWaysAreListed(t *testing.T) {
	out, err := exec.Command(filepath.Join(built, "smuggler"), "-list").Output()
	if err != nil {
		t.Fatal(err)
	}
	made, listed := strings.Fields(string(out)), namesOf(ways(t))
	for _, name := range made {
		if !slices.Contains(listed, name) {
			t.Errorf("the attempt %s is not in ways.txt", name)
		}
	}
	for _, name := range listed {
		if !slices.Contains(made, name) {
			t.Errorf("ways.txt names %s, and there is no such attempt", name)
		}
	}
	if len(listed) < 60 {
		t.Errorf("%d ways, want 60 at least", len(listed))
	}
	for _, bad := range []string{"a | no | -", "a | maybe | - | seen", "a | no | x | seen", "a | no | - | other", " | no | - | seen", "a | any: | - | seen",
		"a | no | - | none: ", "a* | no | - | seen", "a | no | - | seen\na | no | - | seen"} {
		if _, err := parseWays(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
