package credential

import (
	"crypto/rand"
	"encoding/base64"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"coworker/integration/house/testuser"
)

// lent are the credentials of a person: new values each time, of the kinds that providers hand out, with characters that
// have other spellings.
type lent struct{ api, npm, git secret }

func newLent() lent {
	git := "ghp_" + rand.Text()
	return lent{newSecret("cw-API/77+tok=" + rand.Text()), newSecret("npm_" + rand.Text()), newSecret(git, basic("ada", git))}
}

func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

// all is what none of the three may be found by.
func (l lent) all() secret {
	return secret{"", slices.Concat(l.api.forms, l.npm.forms, l.git.forms)}
}

// lend stores three credentials, and has the servers want them.
func (p *person) lend(t testing.TB) lent {
	t.Helper()
	l := newLent()
	p.must(t, l.api.value+"\n", "secrets", "set", "api", "--host", "ok.test")
	p.must(t, l.npm.value+"\n", "secrets", "set", "npm", "--host", "npm.test")
	p.must(t, l.git.value+"\n", "secrets", "set", "git", "--host", "git.test", "--basic", "ada")
	p.want("ok.test", "Bearer "+l.api.value)
	p.want("npm.test", "Bearer "+l.npm.value)
	p.want("git.test", basic("ada", l.git.value))
	return l
}

const nodeFetch = `fetch('https://ok.test/x').then(r => r.text()).then(console.log, e => { console.error(e.cause ?? e); process.exit(1) })`

const nodeGet = `require('https').get('https://ok.test/x', r => { if (r.statusCode != 200) process.exit(1); r.pipe(process.stdout) })`

const pythonGet = `import urllib.request; print(urllib.request.urlopen('https://ok.test/x').read().decode())`

// pythonRequests is the copy that pip carries, which has a bundle of certificates of its own, where there is no other.
const pythonRequests = `
try: import requests
except ImportError: from pip._vendor import requests
r = requests.get('https://ok.test/x'); r.raise_for_status(); print(r.text)`

// pythonSocket knows no proxy variable.
const pythonSocket = `import http.client; c = http.client.HTTPSConnection('ok.test'); c.request('GET', '/x'); print(c.getresponse().read().decode())`

const javaGet = `import java.net.*; import java.net.http.*;
public class Get { public static void main(String[] a) throws Exception {
  var r = HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create("https://ok.test/x")).build(), HttpResponse.BodyHandlers.ofString());
  System.out.println(r.statusCode() + " " + r.body());
} }
`

// gitPush clones over https, pushes, clones over an ssh address and pushes there too.
const gitPush = `set -e
git clone -q https://git.test/repo.git one
cat one/README
cd one
git config user.name ada; git config user.email ada@example.com
echo second > second; git add second; git commit -q -m second
git push -q origin HEAD:from-https
cd ..
git clone -q git@git.test:repo.git two
cd two
git config user.name ada; git config user.email ada@example.com
git fetch -q ssh://git@git.test/repo.git from-https
echo third > third; git add third; git commit -q -m third
git push -q origin HEAD:from-ssh
git ls-remote --heads git@git.test:repo.git
`

// client is an unmodified program, and what it says when the server answered 200.
type client struct {
	name string
	host string
	argv []string
	says string
	// needs is a command that shows whether the program is there, as the person has it; nil: it always is.
	needs []string
}

var clients = []client{
	{"curl", "ok.test", []string{"curl", "-sSf", "https://ok.test/x"}, "welcome GET /x", nil},
	{"curl without proxy variables", "ok.test", []string{"env", "-u", "https_proxy", "-u", "HTTPS_PROXY", "-u", "all_proxy", "-u", "ALL_PROXY", "curl", "-sSf", "https://ok.test/x"}, "welcome GET /x", nil},
	{"curl asking for HTTP/2", "ok.test", []string{"curl", "-sSf", "--http2", "https://ok.test/x"}, "welcome GET /x", nil},
	{"curl through SOCKS", "ok.test", []string{"sh", "-c", `exec curl -sSf --proxy "socks5h://${https_proxy#http://}" https://ok.test/x`}, "welcome GET /x", nil},
	{"wget", "ok.test", []string{"wget", "-q", "-O", "-", "https://ok.test/x"}, "welcome GET /x", []string{"wget", "--version"}},
	{"git", "git.test", []string{"sh", "-c", gitPush}, "refs/heads/from-ssh", nil},
	{"npm view", "npm.test", []string{"npm", "view", "left", "version", "--registry=https://npm.test/"}, "1.0.0", nil},
	{"npm install", "npm.test", []string{"sh", "-c", "npm install --no-audit --no-fund --registry=https://npm.test/ left >&2 && node -p 'require(\"left\")'"}, "left is here", nil},
	{"pip download", "npm.test", []string{"/usr/bin/python3", "-m", "pip", "download", "-q", "--no-deps", "--no-build-isolation", "--no-cache-dir", "--disable-pip-version-check", "--index-url=https://npm.test/simple/", "right"}, "", []string{"/usr/bin/python3", "-m", "pip", "--version"}},
	{"python urllib", "ok.test", []string{"/usr/bin/python3", "-c", pythonGet}, "welcome GET /x", nil},
	{"python http.client", "ok.test", []string{"/usr/bin/python3", "-c", pythonSocket}, "welcome GET /x", nil},
	{"python requests", "ok.test", []string{"/usr/bin/python3", "-c", pythonRequests}, "welcome GET /x", []string{"/usr/bin/python3", "-m", "pip", "--version"}},
	{"node https", "ok.test", []string{"node", "-e", nodeGet}, "welcome GET /x", nil},
	{"node fetch", "ok.test", []string{"node", "-e", nodeFetch}, "welcome GET /x", nil},
	{"java", "ok.test", []string{"java", "Get.java"}, "200 welcome GET /x", []string{"java", "--version"}},
}

// TestClients has each program reach its host with the credential and without any setting of its own.
func TestClients(t *testing.T) {
	eachUser(t, func(t *testing.T, p *person) {
		l := p.lend(t)
		p.write(t, filepath.Join(p.work, "Get.java"), javaGet)
		for _, c := range clients {
			if !p.has(t, c.needs) {
				t.Logf("%s is not installed", c.name)
				continue
			}
			t.Run(c.name, func(t *testing.T) { p.oneClient(t, c) })
		}
		t.Run("Go", func(t *testing.T) {
			exe := testuser.Install(t, filepath.Join(built, "seeker"))
			p.write(t, filepath.Join(p.work, "forms"), l.api.masked())
			e := p.exec(t, append(allow("ok.test"), "--read", exe), filepath.Join(exe, "seeker"), "forms", "https://ok.test/x")
			if e.code != 0 || !strings.Contains(e.out, `"held":`) || len(to("ok.test:443", p.take())) != 1 {
				t.Error(e)
			}
		})
	})
}

// has says whether a program is there for the person.
func (p *person) has(t *testing.T, argv []string) bool {
	t.Helper()
	if argv == nil {
		return true
	}
	cmd := p.user.Command(t.Context(), p.home, argv[0], argv[1:]...)
	cmd.Env = []string{"PATH=" + searchPath, "HOME=" + p.home}
	if path, err := exec.LookPath(argv[0]); err == nil {
		cmd.Path, cmd.Err = path, nil
	}
	return cmd.Run() == nil
}

func (p *person) oneClient(t *testing.T, c client) {
	p.take()
	e := p.exec(t, allow(c.host), c.argv...)
	if e.code != 0 || !strings.Contains(e.out, c.says) {
		t.Fatal(e)
	}
	got := to(c.host+":443", p.take())
	if len(got) == 0 {
		t.Error("the server saw no request")
	}
	used := false
	for _, one := range e.report.Egress {
		used = used || one.Host == c.host && one.Credential != "" && one.Verdict == "allow" && one.Inspected
	}
	if !used {
		t.Errorf("the report names no credential: %s", e.rawText)
	}
	if len(e.report.Denials) > 0 {
		t.Errorf("denied: %+v", e.report.Denials)
	}
}

// TestClientsWithout is the control: without the credential the same servers say no, and say it as themselves.
func TestClientsWithout(t *testing.T) {
	eachUser(t, func(t *testing.T, p *person) {
		e := p.exec(t, allow("ok.test"), "curl", "-sS", "-o", "/dev/null", "-w", "%{http_code} %{ssl_verify_result}", "https://ok.test/x")
		if e.code != 0 || e.out != "401 0" {
			t.Error(e)
		}
		if len(e.report.Egress) != 1 || e.report.Egress[0].Credential != "" {
			t.Errorf("egress: %+v", e.report.Egress)
		}
	})
}
