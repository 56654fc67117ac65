package vm

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"coworker/enforce"
	"coworker/enforce/redirect"
	"coworker/integration/vm/guest"
	"coworker/platform/selfconfine"
)

// redirectModules are what leads programs that know of no proxy to it. A guest loads no module by itself: it has no
// modprobe and no /lib/modules.
var redirectModules = []string{"nf_tables", "nft_chain_nat", "nft_redir"}

// Addresses of documentation (RFC 5737) on both ends of the pair of interfaces that leaves the guest's own network.
const (
	nearAddress = "203.0.113.1"
	farAddress  = "203.0.113.10"
)

// prepareNetwork makes the outside: a network namespace behind a pair of interfaces, and a name for its address.
const prepareNetwork = `set -e
ip netns add far
ip link add near type veth peer name far0
ip link set far0 netns far
ip address add ` + nearAddress + `/24 dev near; ip link set near up
ip -n far address add ` + farAddress + `/24 dev far0; ip -n far link set far0 up
echo ` + farAddress + ` ok.test >>/etc/hosts`

// serveScript runs the server outside for as long as a case. The case is root's, because nobody else gets into the
// namespace; what a case is about runs as its user.
const serveScript = `
ip netns exec far guestprobe serve ` + farAddress + ` >/run/served & SERVER=$!
trap 'kill $SERVER' EXIT
until grep -q listening /run/served || ! kill -0 $SERVER; do usleep 20000; done
`

// asUser is the script of a case of root's that goes on as a user.
func asUser(name, user, script string) Case {
	c := bash(name, guest.Root, serveScript+`bash -c "$SCRIPT"`)
	c.Env = []string{"SCRIPT=" + script}
	if user == guest.Worker {
		id := fmt.Sprint(guest.WorkerUID)
		c = bash(name, guest.Root, serveScript+"setpriv --reuid "+id+" --regid "+id+` --clear-groups bash -c "$SCRIPT"`)
		c.Env = []string{"SCRIPT=" + script, "HOME=/home/" + guest.Worker, "XDG_RUNTIME_DIR=/run/user/" + id}
	}
	c.Name = name + " as " + user
	return c
}

// A request is one thing that a program inside tries to reach.
type request struct {
	name, script string
	nat, none    string // part of the message with a redirect and without, whatever way the connection ends; empty when it must work
	outside      bool   // works outside, as the control
}

// Without a redirect a synthetic address is one that nothing leads to.
const unreachable = "network is unreachable"

var requests = []request{
	{"https without proxy variables", `guestprobe get https://ok.test/`, "", unreachable, true},
	{"http without proxy variables", `guestprobe get http://ok.test/`, "", unreachable, true},
	{"http by the C library", `exec 3<>/dev/tcp/ok.test/80 && printf 'GET / HTTP/1.0\r\nHost: ok.test\r\n\r\n' >&3 && grep -q hello <&3`, "", "Network is unreachable", true},
	{"https through the proxy", `guestprobe get-proxy https://ok.test/`, "", "", true},
	{"http through the proxy", `guestprobe get-proxy http://ok.test/`, "", "", true},
	{"resolver", `guestprobe look-up ok.test | grep -q ^198.18.`, "", "", false},
	{"another name", `guestprobe get https://evil.test/`, "no such host", "no such host", false},
	{"another name through the proxy", `guestprobe get-proxy https://evil.test/`, "not on the allow list", "not on the allow list", false},
	{"another port", `guestprobe get http://ok.test:8080/`, "ok.test:8080", unreachable, true},
	{"another port through the proxy", `guestprobe get-proxy http://ok.test:8080/`, "403 not on the allow list", "403 not on the allow list", true},
	{"address of the server", `guestprobe get http://` + farAddress + `/`, unreachable, unreachable, true},
}

func requestLines() string {
	var lines strings.Builder
	for _, r := range requests {
		lines.WriteString(trial{name: r.name, script: r.script}.line())
	}
	return lines.String()
}

// networkCases run as both users: one session with the clients inside, and what is told about it.
func networkCases() []Case {
	cases := []Case{bash("prepare network", guest.Root, prepareNetwork)}
	for _, user := range everyone {
		inside := asUser("clients", user, `cd ~/repo; coworker exec -w --report ~/net.json \
			--allow ok.test:443=203.0.113.0/24 --allow ok.test:80=203.0.113.0/24 -- bash -c "$REQUESTS"`)
		inside.Env = append(inside.Env, "REQUESTS="+requestLines())
		outside := asUser("clients outside", user, requestLines())
		cases = append(cases, inside, outside,
			bash("net report", user, `cat ~/net.json`),
			bash("net log", user, `coworker net log --json --limit 200`),
			bash("confinement", user, confinementPath+" -test.v"))
	}
	return cases
}

// netReport is what the cases read of --report.
type netReport struct {
	Level    string   `json:"level"`
	Watching []string `json:"watching"`
	Egress   []struct {
		Host    string `json:"host"`
		Addr    string `json:"addr"`
		Port    uint16 `json:"port"`
		Verdict string `json:"verdict"`
		Rule    string `json:"rule"`
		Source  string `json:"source"`
		BytesIn int64  `json:"bytes_in"`
	} `json:"egress"`
	Denials []struct {
		Wall   string `json:"wall"`
		What   string `json:"what"`
		Needed string `json:"needed"`
		Source string `json:"source"`
	} `json:"denials"`
}

// netRow is what the cases read of `coworker net log`.
type netRow struct {
	Host    string `json:"host"`
	Verdict string `json:"verdict"`
	Source  string `json:"source"`
	Level   string `json:"level"`
}

// refusedByProgram: where root's sessions have kernel programs, those answer before the routes do.
func refusedByProgram(user, want, text string) bool {
	return user == guest.Root && want == unreachable && strings.Contains(text, "operation not permitted")
}

// checkNetwork holds what the clients of one user met, and what was told about it, against what the redirect allows.
func checkNetwork(t *testing.T, user string, mode redirect.Mode, got map[string]Result) {
	t.Helper()
	r := got["clients as "+user]
	inside, outside := trialLines(r), trialLines(got["clients outside as "+user])
	failed := r.Exit != 0
	for _, q := range requests {
		want := q.nat
		if mode == redirect.ModeNone {
			want = q.none
		}
		if want == "" {
			want = "worked"
		}
		if text := inside[q.name]; text == "" || !strings.Contains(text, want) && !refusedByProgram(user, want, text) {
			failed = true
			t.Errorf("%q as %s inside: %q, want %q", q.name, user, text, want)
		}
		if works := outside[q.name] == "worked"; works != q.outside {
			failed = true
			t.Errorf("control %q as %s outside: %q", q.name, user, outside[q.name])
		}
	}
	if said := strings.Contains(string(r.Stderr), "programs that ignore the proxy variables reach nothing"); said != (mode == redirect.ModeNone) {
		failed = true
		t.Errorf("the missing redirect is told: %t", said)
	}
	if failed {
		t.Logf("%v\n%v", r, got["clients outside as "+user])
	}
	if r := got["confinement as "+user]; r.Exit != 0 || !strings.Contains(string(r.Stdout), "--- PASS: TestApply") {
		t.Errorf("the proxy's confinement of itself: %v", r)
	}
	checkTold(t, got["net report as "+user], func(r netReport) []string { return reportDiffs(mode, r) })
	checkTold(t, got["net log as "+user], func(rows []netRow) []string { return logDiffs(mode, rows) })
}

// sourcesOf are the ways on which clients reach what is allowed.
func sourcesOf(mode redirect.Mode) []string {
	if mode == redirect.ModeNone {
		return []string{"proxy"}
	}
	return []string{"proxy", "transparent"}
}

// reportDiffs holds what --report says against what the requests of one session must leave there.
func reportDiffs(mode redirect.Mode, report netReport) []string {
	var diffs []string
	if report.Level != enforce.Enforced.String() {
		diffs = append(diffs, fmt.Sprintf("level %q", report.Level))
	}
	for _, source := range []string{"proxy", "dns", "transparent"} {
		if watched := slices.Contains(report.Watching, source); watched != (source != "transparent" || mode == redirect.ModeNAT) {
			diffs = append(diffs, fmt.Sprintf("watching %q: %t", source, watched))
		}
	}
	for _, source := range sourcesOf(mode) {
		for _, port := range []uint16{80, 443} {
			if !report.reached(source, port) {
				diffs = append(diffs, fmt.Sprintf("no flow to port %d by the source %s", port, source))
			}
		}
	}
	for _, source := range []string{"dns", "proxy"} {
		if !report.refused(source, "evil.test") {
			diffs = append(diffs, "no denial of evil.test by the source "+source)
		}
	}
	return diffs
}

// reached looks for a flow to the server by its name.
func (r netReport) reached(source string, port uint16) bool {
	rule, addr := fmt.Sprintf("ok.test:%d=203.0.113.0/24", port), fmt.Sprintf("%s:%d", farAddress, port)
	for _, e := range r.Egress {
		if e.Host == "ok.test" && e.Port == port && e.Source == source && e.Verdict == "allow" && e.Addr == addr && e.Rule == rule && e.BytesIn > 0 {
			return true
		}
	}
	return false
}

// refused looks for a denial that names the smallest flag.
func (r netReport) refused(source, host string) bool {
	for _, d := range r.Denials {
		if d.Wall == string(enforce.NetEgress) && d.Source == source && strings.Contains(d.What, host) && d.Needed == "--allow "+host {
			return true
		}
	}
	return false
}

// logDiffs does the same for `coworker net log`.
func logDiffs(mode redirect.Mode, rows []netRow) []string {
	wanted := []netRow{{"evil.test", "deny", "dns", "enforced"}, {"evil.test:443", "deny", "proxy", "enforced"}, {"ok.test:8080", "deny", "proxy", "enforced"}}
	for _, source := range sourcesOf(mode) {
		wanted = append(wanted, netRow{"ok.test:80", "allow", source, "enforced"}, netRow{"ok.test:443", "allow", source, "enforced"})
	}
	var diffs []string
	for _, want := range wanted {
		if !slices.Contains(rows, want) {
			diffs = append(diffs, fmt.Sprintf("net log lacks %+v", want))
		}
	}
	return diffs
}

// checkTold reads what a case printed as JSON and complains about what differs.
func checkTold[T any](t *testing.T, r Result, diffs func(T) []string) {
	t.Helper()
	var told T
	if err := json.Unmarshal(r.Stdout, &told); err != nil {
		t.Errorf("%v: %v", r, err)
		return
	}
	found := diffs(told)
	for _, diff := range found {
		t.Errorf("%s: %s", r.Name, diff)
	}
	if len(found) > 0 {
		t.Logf("%s", r.Stdout)
	}
}

// TestDiffs shows that what is missing in a report or a log is noticed.
func TestDiffs(t *testing.T) {
	const report = `{"level":"enforced","watching":["dns","proxy","transparent"],"egress":[
		{"host":"ok.test","addr":"203.0.113.10:80","port":80,"verdict":"allow","rule":"ok.test:80=203.0.113.0/24","source":"transparent","bytes_in":9},
		{"host":"ok.test","addr":"203.0.113.10:443","port":443,"verdict":"allow","rule":"ok.test:443=203.0.113.0/24","source":"transparent","bytes_in":9},
		{"host":"ok.test","addr":"203.0.113.10:80","port":80,"verdict":"allow","rule":"ok.test:80=203.0.113.0/24","source":"proxy","bytes_in":9},
		{"host":"ok.test","addr":"203.0.113.10:443","port":443,"verdict":"allow","rule":"ok.test:443=203.0.113.0/24","source":"proxy","bytes_in":9}],
		"denials":[{"wall":"net.egress","what":"no rule allows evil.test","needed":"--allow evil.test","source":"dns"},
		{"wall":"net.egress","what":"no rule allows evil.test:443","needed":"--allow evil.test","source":"proxy"}]}`
	for _, c := range []struct{ old, new, want string }{
		{"", "", ""},
		{"enforced", "partial", `level "partial"`},
		{`,"transparent"]`, `]`, `watching "transparent": false`},
		{`"dns",`, ``, `watching "dns": false`},
		{`"addr":"203.0.113.10:80","port":80`, `"addr":"203.0.113.1:80","port":80`, "no flow to port 80 by the source transparent"},
		{`"port":443,"verdict":"allow"`, `"port":443,"verdict":"deny"`, "no flow to port 443 by the source transparent"},
		{`"needed":"--allow evil.test","source":"dns"`, `"needed":"--net open","source":"dns"`, "no denial of evil.test by the source dns"},
	} {
		var r netReport
		if err := json.Unmarshal([]byte(strings.Replace(report, c.old, c.new, 1)), &r); err != nil {
			t.Fatal(err)
		}
		if diffs := strings.Join(reportDiffs(redirect.ModeNAT, r), "\n"); diffs != c.want {
			t.Errorf("%q for %q: %q, want %q", c.new, c.old, diffs, c.want)
		}
		if c.old == "" && len(reportDiffs(redirect.ModeNone, r)) != 1 {
			t.Error("a redirect where none can be is not noticed")
		}
	}
	if diffs := logDiffs(redirect.ModeNAT, nil); len(diffs) != 7 {
		t.Errorf("an empty log: %q", diffs)
	}
}

// confinementPath is the test of the proxy's confinement of itself, which knows what each Landlock ABI takes.
const confinementPath = "/usr/local/bin/selfconfine.test"

func confinementTest(t *testing.T) File {
	t.Helper()
	file := filepath.Join(t.TempDir(), "selfconfine.test")
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", file, "coworker/platform/selfconfine")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return File{Path: confinementPath, Mode: 0o755, Source: file}
}

// checkProxyNote wants the report to tell what the proxy's process keeps where Landlock is not there or takes less.
func checkProxyNote(t *testing.T, k Kernel, row Expectation, r Result) {
	t.Helper()
	report, err := ParseReport(r.Stdout)
	if err != nil {
		return // Check has said so
	}
	notes := strings.Join(report.Notes, "\n")
	lacking := selfconfine.Lacking(k.LandlockABI)
	if told := strings.Contains(notes, "the process of the proxy is less confined"); told != (lacking != "") || !strings.Contains(notes, lacking) {
		t.Errorf("%s: notes %q, want %q", row.verifyName(), notes, lacking)
	}
}

// stages load what the redirect needs, piece by piece. Below each a session must start, without a redirect until the
// last; says is what the report tells about the cause.
var stages = []struct{ modules, says string }{
	{"", "open NETLINK_NETFILTER: "},
	{"nfnetlink", "list the tables of nf_tables: "},
	{"libcrc32c nf_tables", "redirect TCP with nf_tables: "},
	{"nf_defrag_ipv4 nf_defrag_ipv6 nf_conntrack nf_nat nft_chain_nat", "redirect TCP with nf_tables: "},
	{"nft_redir", ""},
}

// loadScript loads modules of guest.ModuleDir. What is built into the kernel has no file there.
func loadScript(modules string) string {
	return "for m in " + modules + "; do f=" + guest.ModuleDir + `/$m.ko; [ ! -e $f ] || insmod $f || exit; done`
}

// networkRow is the row of a kernel for a session with a network, and what becomes of it without a redirect.
func networkRow(t *testing.T, k Kernel, user string, mode redirect.Mode) Expectation {
	t.Helper()
	row, err := Expected(k.Name, user, enforce.Native, enforce.NetAllowlist)
	if err != nil {
		t.Fatal(err)
	}
	row.Redirect = mode
	return row
}

func named(c Case, name string) Case {
	c.Name = name + ": " + c.Name
	return c
}

// TestNetworkWithoutModules: a kernel that cannot redirect still has sessions with a network, for programs that look at
// the proxy variables.
func TestNetworkWithoutModules(t *testing.T) {
	k := Kernels()[1]
	cases := append([]Case{bash("prepare", guest.Root, prepareScript)}, networkCases()...)
	for i, s := range stages {
		stage := fmt.Sprint("stage ", i)
		cases = append(cases, bash(stage, guest.Root, loadScript(s.modules)))
		for _, user := range everyone {
			cases = append(cases, named(verifyCase(networkRow(t, k, user, "")), stage))
		}
	}
	got := boot(t, k, Guest{Files: standardFiles(t), Modules: []string{"overlay", "veth"}, Loadable: redirectModules, Cases: cases})
	for _, user := range everyone {
		checkNetwork(t, user, redirect.ModeNone, got)
	}
	for i, s := range stages {
		stage := fmt.Sprint("stage ", i)
		if r := got[stage+" as root"]; r.Exit != 0 {
			t.Errorf("loading: %v", r)
		}
		mode := redirect.ModeNone
		if i == len(stages)-1 {
			mode = redirect.ModeNAT
		}
		for _, user := range everyone {
			row := networkRow(t, k, user, mode)
			r := got[stage+": "+row.verifyName()]
			for _, diff := range Check(row, r) {
				t.Errorf("%s: %s: %s", stage, row.verifyName(), diff)
			}
			checkCause(t, stage, s.says, r)
		}
	}
}

// checkCause wants the missing redirect explained, or not mentioned where there is one.
func checkCause(t *testing.T, stage, says string, r Result) {
	t.Helper()
	report, err := ParseReport(r.Stdout)
	if err != nil {
		t.Errorf("%s: %v", stage, err)
		return
	}
	const about = "programs that ignore the proxy variables reach nothing: "
	told := ""
	for _, note := range report.Notes {
		if text, ok := strings.CutPrefix(note, about); ok {
			told = text
		}
	}
	if !strings.HasPrefix(told, says) || (told == "") != (says == "") {
		t.Errorf("%s: the report tells the cause %q, want %q", stage, told, says)
	}
}

// TestNetworkWithoutIPv6: on a kernel that was booted without IPv6 everything is there in IPv4.
func TestNetworkWithoutIPv6(t *testing.T) {
	k := Kernels()[0]
	cases := append([]Case{bash("prepare", guest.Root, prepareScript)}, networkCases()...)
	for _, user := range everyone {
		cases = append(cases, verifyCase(networkRow(t, k, user, redirect.ModeNAT)))
	}
	got := boot(t, k, Guest{
		Files: standardFiles(t), Modules: slices.Concat([]string{"overlay", "veth"}, redirectModules), Cmdline: []string{"ipv6.disable=1"},
		Cases: append(cases, shell("ipv6", guest.Root, "ls /proc/net/if_inet6")),
	})
	if r := got["ipv6"]; r.Exit == 0 {
		t.Errorf("the kernel has IPv6: %v", r)
	}
	for _, user := range everyone {
		checkNetwork(t, user, redirect.ModeNAT, got)
		row := networkRow(t, k, user, redirect.ModeNAT)
		r := got[row.verifyName()]
		for _, diff := range Check(row, r) {
			t.Errorf("%s: %s", row.verifyName(), diff)
		}
		report, err := ParseReport(r.Stdout)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"proxy-connect6", "dns-allowed6", "redirect6", "redirect-unnamed6"} {
			if got := report.outcome("net.egress/" + name); got != "" {
				t.Errorf("%s as %s without IPv6: %s", name, user, got)
			}
		}
	}
}
