package clients

import (
	"os"
	"strings"
	"testing"
	"time"

	"coworker/integration/house/testuser"
)

// client is a program with a task that needs the network. HOST, KEY and KNOWN are replaced.
type client struct {
	name  string
	port  string
	files map[string]string // of the project
	env   []string
	flags []string // of coworker, beside --allow
	argv  []string
	says  string        // what stdout holds if it worked; the greeting if empty
	sign  string        // what stderr shows of a refusal first; the name of the host if empty
	limit time.Duration // until a refused client gives up, atOnce if 0
}

// A refusal is there within a second; the bound is wide because machines are slow, and still below what a lost question to a
// name server or a lost packet costs. Some clients try again by themselves after they have said why.
const (
	atOnce   = 8 * time.Second
	retrying = time.Minute
)

const bundle = "/etc/ssl/certs/ca-certificates.crt"

// Node has authorities of its own; this variable is its documented way to use the machine's.
var nodeEnvironment = []string{"NODE_EXTRA_CA_CERTS=" + bundle}

const sshOptions = "-o BatchMode=yes -o UserKnownHostsFile=KNOWN -i KEY"

var clients = []client{
	{name: "curl", argv: []string{"curl", "-sS", "--fail", "https://HOST/hello"}},
	{name: "wget", argv: []string{"wget", "-q", "-O", "-", "https://HOST/hello"}},
	{name: "git-https", argv: []string{"sh", "-c", "git clone -q https://HOST/git/repo.git clone && cat clone/greeting.txt"}},
	{name: "git-ssh", port: "22", flags: []string{"--read", "KEY"}, env: []string{"GIT_SSH_COMMAND=ssh " + sshOptions},
		argv: []string{"sh", "-c", "git clone -q ssh://git@HOST/repo.git clone && cat clone/greeting.txt"}},
	{name: "ssh", port: "22", flags: []string{"--read", "KEY"}, argv: append(append([]string{"ssh"}, strings.Fields(sshOptions)...), "git@HOST", "greet")},
	{name: "node-fetch", env: nodeEnvironment, argv: []string{"node", "-e", "fetch('https://HOST/hello').then(r => r.text()).then(console.log)"}},
	{name: "node-http", env: nodeEnvironment, argv: []string{"node", "-e", "require('https').get('https://HOST/hello', r => r.pipe(process.stdout))"}},
	{name: "npm", env: nodeEnvironment, files: map[string]string{"package.json": "{}", ".npmrc": "registry=https://HOST/npm/\n"},
		argv: []string{"sh", "-c", "npm install --silent --no-audit --no-fund far-greeting && node -p 'require(\"far-greeting\")'"}},
	{name: "pip", env: []string{"PIP_CERT=" + bundle}, limit: retrying,
		argv: []string{"sh", "-c", "/usr/bin/python3 -m pip install -q --disable-pip-version-check --index-url https://HOST/pypi/simple/ --target lib far-greeting && PYTHONPATH=lib /usr/bin/python3 -c 'import far_greeting; print(far_greeting.TEXT)'"}},
	{name: "python-urllib", argv: []string{"/usr/bin/python3", "-c", "import urllib.request; print(urllib.request.urlopen('https://HOST/hello').read().decode())"}},
	{name: "go", env: []string{"GOPROXY=https://HOST/go", "GOSUMDB=off", "GOFLAGS=-mod=mod", "GOTOOLCHAIN=local"},
		files: map[string]string{"go.mod": "module example.org/project\n\ngo 1.21\n\nrequire " + goModule + " v1.0.0\n"},
		argv:  []string{"sh", "-c", "go mod download && cat \"$(go env GOMODCACHE)/" + goModule + "@v1.0.0/greeting.go\""}},
}

// TestWorld runs the clients where they will run, but without coworker: both hosts answer all of them. What coworker
// refuses later is refused by it and by nothing else.
func TestWorld(t *testing.T) {
	needRoot(t)
	w := newWorld(t)
	u := testuser.Unprivileged(t)
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) { c.checkDirect(t, w, u) })
	}
}

func (c client) checkDirect(t *testing.T, w *world, u testuser.User) {
	for _, host := range []string{allowed, existing} {
		e := newPerson(t, w, u).direct(t, c, host)
		if e.code != 0 || !strings.Contains(e.out, c.wants()) {
			t.Errorf("%s: ended with %d after %v\n%s%s", host, e.code, e.took, e.out, e.err)
		}
	}
}

func (c client) wants() string {
	if c.says != "" {
		return c.says
	}
	return greeting
}

// needRoot: a network of the test's own with servers on its ports needs root. CI has it.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("without-root: the network of the test needs root")
	}
}

func TestClients(t *testing.T) {
	needRoot(t)
	w := newWorld(t)
	for _, u := range testuser.All(t) {
		t.Run(u.String(), func(t *testing.T) {
			for _, c := range clients {
				t.Run(c.name, func(t *testing.T) { c.check(t, w, u) })
			}
		})
	}
}

// check runs a client against the host that is allowed and against one that exists too.
func (c client) check(t *testing.T, w *world, u testuser.User) {
	if c.port == "" {
		c.port = "443"
	}
	t.Run("allowed", func(t *testing.T) {
		e := newPerson(t, w, u).behind(t, c, allowed)
		if e.code != 0 || !strings.Contains(e.out, c.wants()) {
			t.Fatalf("ended with %d after %v\n%s%s", e.code, e.took, e.out, e.err)
		}
		if !e.passed() {
			t.Errorf("the report knows of no flow to %s: %+v", allowed, e.report)
		}
	})
	t.Run("refused", func(t *testing.T) {
		e := newPerson(t, w, u).behind(t, c, existing)
		if e.code == 0 || strings.Contains(e.out, c.wants()) {
			t.Fatalf("ended with %d\n%s%s", e.code, e.out, e.err)
		}
		t.Logf("told after %v, ended after %v", e.told, e.took)
		if limit := max(c.limit, atOnce); e.told == 0 || e.told > atOnce || e.took > limit {
			t.Errorf("told after %v, want %v; ended after %v, want %v: the client waited for an answer", e.told, atOnce, e.took, limit)
		}
		if !e.explained() {
			t.Errorf("stderr and report do not say that %s was refused:\n%s\n%+v", existing, e.err, e.report.Denials)
		}
	})
}

// passed says that the report has a flow to the allowed host, at its address, with bytes from there.
func (e ended) passed() bool {
	for _, flow := range e.report.Egress {
		if flow.Host == allowed && strings.HasPrefix(flow.Addr, "203.0.113.10") && flow.Verdict == "allow" && flow.BytesIn > 0 {
			return true
		}
	}
	return false
}

// explained says that a line of stderr names the refused host and the flag that would allow it, and the report too.
func (e ended) explained() bool {
	line, row := false, false
	for _, text := range strings.Split(e.err, "\n") {
		line = line || strings.Contains(text, "--allow "+existing)
	}
	for _, d := range e.report.Denials {
		row = row || d.Wall == "net.egress" && strings.Contains(d.Needed, existing)
	}
	return line && row
}
