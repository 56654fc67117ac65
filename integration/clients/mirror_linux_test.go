package clients

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"coworker/integration/house/testuser"
)

// mirrors are managers whose person has set the company's mirror in the own settings; the project names none.
var mirrors = []struct {
	client
	settings map[string]string // files of the home
}{
	{client{name: "npm", env: nodeEnvironment, files: map[string]string{"package.json": "{}"},
		argv: []string{"sh", "-c", "npm install --silent --no-audit --no-fund far-greeting && node -p 'require(\"far-greeting\")'"}},
		map[string]string{".npmrc": "registry=https://user:sesame@HOST/npm/\n"}},
	{client{name: "pip", env: []string{"PIP_CERT=" + bundle},
		argv: []string{"sh", "-c", "/usr/bin/python3 -m pip install -q --disable-pip-version-check --target lib far-greeting && PYTHONPATH=lib /usr/bin/python3 -c 'import far_greeting; print(far_greeting.TEXT)'"}},
		map[string]string{".config/pip/pip.conf": "[install]\nindex-url: https://HOST/pypi/simple/\n"}},
	{client{name: "go", env: []string{"GOTOOLCHAIN=local"}, files: map[string]string{"go.mod": "module example.org/project\n\ngo 1.21\n\nrequire " + goModule + " v1.0.0\n"},
		argv: []string{"sh", "-c", "go mod download && cat \"$(go env GOMODCACHE)/" + goModule + "@v1.0.0/greeting.go\""}},
		map[string]string{".config/go/env": "GOPROXY=https://HOST/go\nGOSUMDB=off\n"}},
}

// TestMirror is --allow registries on a machine that is set up to use a mirror: the managers inside know it without being
// told, and its host is allowed without being named. The range is named beside it, because the addresses of the test are
// special-purpose ones as a company's are private.
func TestMirror(t *testing.T) {
	needRoot(t)
	w := newWorld(t)
	for _, u := range testuser.All(t) {
		for _, m := range mirrors {
			t.Run(u.String()+"/"+m.name, func(t *testing.T) {
				p := newPerson(t, w, u)
				for name, text := range m.settings {
					file := filepath.Join(p.home, name)
					if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(file, []byte(p.fill(allowed, text)[0]), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				if err := u.Own(p.home); err != nil {
					t.Fatal(err)
				}
				c := m.client
				c.port, c.flags = "443", []string{"--allow", "registries"}
				e := p.behind(t, c, allowed)
				if e.code != 0 || !strings.Contains(e.out, greeting) {
					t.Fatalf("ended with %d after %v\n%s%s", e.code, e.took, e.out, e.err)
				}
				if !e.passed() || strings.Contains(e.err, "sesame") {
					t.Errorf("%+v\n%s", e.report, e.err)
				}
			})
		}
	}
}
