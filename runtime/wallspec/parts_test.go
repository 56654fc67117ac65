package wallspec

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"coworker/enforce"
	"coworker/platform/config"
)

func homeFile(p Plan, name string) string {
	for _, f := range p.Spec.HomeFiles {
		if f.Path == name {
			return string(f.Data)
		}
	}
	return "-"
}

func TestGivenHomeFiles(t *testing.T) {
	m := newMachine()
	m.file("/home/ada/.npmrc", "registry=https://npm.corp/\n", 1000)
	given := []enforce.File{{Path: ".npmrc", Data: []byte("registry=https://other.corp/\n")}, {Path: ".gemrc", Data: []byte("x\n")}}
	p := mustBuild(t, Request{Net: Net{HomeFiles: given}}, m.host(1000))
	for _, want := range given {
		if got := homeFile(p, want.Path); got != string(want.Data) {
			t.Errorf("%s: got %q, want %q", want.Path, got, want.Data)
		}
	}
	count := 0
	for _, f := range p.Spec.HomeFiles {
		if f.Path == ".npmrc" {
			count++
		}
	}
	if count != 1 {
		t.Errorf(".npmrc stands there %d times", count)
	}
}

func TestHomeFiles(t *testing.T) {
	m := newMachine()
	m.file("/home/ada/.gitconfig", "[user]\n\tname = Ada\n[core]\n\tfsmonitor = /evil\n[credential]\n\thelper = store\n", 1000)
	m.file("/home/ada/.ssh/known_hosts", "h ssh-ed25519 AAAA comment\n# c\n@revoked * ssh-rsa AAAA\n-----BEGIN KEY-----\nh ssh-rsa not*base64\n|1|a=|b= ecdsa-sha2-nistp256 AAAA\n", 1000)
	m.file("/home/ada/.npmrc", "registry=https://npm.corp/\n//npm.corp/:_authToken=abc\n@a:registry = \"https://x.y/z\"\n@b:registry=https://u:p@x/\n@c:registry=https://x/?t=1\n_auth=zzz\n", 1000)
	m.file("/home/ada/.config/pip/pip.conf", "[global]\nindex-url = https://u:p@pypi.corp/simple\nextra-index-url=https://pypi.corp/simple\n", 1000)
	m.file("/home/ada/.rustup/settings.toml", "default_toolchain = \"stable-x86_64\"\nversion = \"12\"\n[overrides]\n\"/secret\" = \"x\"\n", 1000)
	m.file("/home/ada/.pyenv/version", "3.12.1\n../x y\n", 1000)
	p := mustBuild(t, Request{}, m.host(1000))
	git := homeFile(p, ".gitconfig")
	if !strings.Contains(git, "Ada") || strings.Contains(git, "evil") || strings.Contains(git, "helper") || !strings.Contains(git, `directory = "/home/ada/src/proj"`) {
		t.Errorf(".gitconfig:\n%s", git)
	}
	for name, want := range map[string]string{
		".ssh/known_hosts":      "h ssh-ed25519 AAAA\n@revoked * ssh-rsa AAAA\n|1|a=|b= ecdsa-sha2-nistp256 AAAA\n",
		".npmrc":                "registry=https://npm.corp/\n@a:registry=https://x.y/z\n",
		".config/pip/pip.conf":  "[global]\nextra-index-url = https://pypi.corp/simple\n",
		".pyenv/version":        "3.12.1\n",
		".rustup/settings.toml": "default_toolchain = \"stable-x86_64\"\nversion = \"12\"\n",
	} {
		if got := homeFile(p, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if b := homeFile(p, ".bashrc"); !strings.Contains(b, "[walled]") || !strings.Contains(b, "export PATH='/usr/bin:/bin:") {
		t.Errorf(".bashrc:\n%s", b)
	}
	for _, d := range []string{".config", ".ssh", ".gnupg", ".cargo", ".m2", ".gradle"} {
		if slices.Contains(p.Spec.HomeDirs, d) {
			t.Errorf("%s persists, with start-up or credential files in it", d)
		}
	}
}

// Root reads the home of somebody who can put links there.
func TestRootDoesNotReadForOthers(t *testing.T) {
	m := newMachine()
	m.file("/root/.npmrc", "registry=https://root.corp/\n", 0)
	m.link("/home/ada/.npmrc", "/root/.npmrc")
	p := mustBuild(t, Request{}, m.host(0))
	if got := homeFile(p, ".npmrc"); got != "-" || !strings.Contains(strings.Join(p.Summary.Notes, "\n"), "belongs to uid 0") {
		t.Fatalf(".npmrc %q, notes %q", got, p.Summary.Notes)
	}
	m.file("/home/ada/dots/npmrc", "registry=https://ada.corp/\n", 1000)
	m.link("/home/ada/.npmrc", "dots/npmrc")
	if got := homeFile(mustBuild(t, Request{}, m.host(0)), ".npmrc"); got == "-" {
		t.Fatal("a person's own link is not followed")
	}
}

func TestNothingIsMadeInATree(t *testing.T) {
	m := newMachine("/home/ada/go/pkg/mod")
	h := m.host(1000)
	h.Cwd = "/home/ada/go"
	p := mustBuild(t, Request{Write: true}, h)
	for _, d := range p.Spec.HomeDirs {
		if strings.HasPrefix(d, "go/") {
			t.Errorf("%s would be mounted in the workspace", d)
		}
	}
	if len(p.Spec.Caches) != 0 {
		t.Errorf("caches %+v", p.Spec.Caches)
	}
}

func TestCaches(t *testing.T) {
	m := newMachine("/home/ada/go/pkg/mod", "/home/ada/.cache/pip", "/data/npm/_cacache", "/home/ada/src/proj/.gocache", "/data/pip", "/home/ada/.gradle/caches")
	m.link("/home/ada/.cache/uv", "/data/pip")
	m.dir("/home/ada/.cargo/registry", 1001)
	m["/home/ada/.cargo/registry"] = node{mode: fs.ModeDir | 0o755, uid: 1001}
	show := func(h Host, c config.Config) string {
		var out []string
		for _, c := range mustBuild(t, Request{Config: c}, h).Spec.Caches {
			out = append(out, c.Dir+"="+c.Lower)
		}
		return strings.Join(out, " ")
	}
	// Not: GOCACHE (in the workspace), uv (a link out of the home), cargo (somebody else's).
	want := "go/pkg/mod=/home/ada/go/pkg/mod .npm/_cacache=/data/npm/_cacache .cache/pip=/home/ada/.cache/pip .gradle/caches=/home/ada/.gradle/caches"
	env := []string{"npm_config_cache=/data/npm", "GOCACHE=/home/ada/src/proj/.gocache"}
	if got := show(m.host(1000, env...), config.Config{}); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	// Root's variables say nothing about ada.
	if got := show(m.host(0, env...), config.Config{}); strings.Contains(got, "/data/npm") {
		t.Errorf("root's npm cache for ada: %s", got)
	}
	no := false
	if got := show(m.host(1000, env...), config.Config{Cache: config.Cache{Share: &no}}); got != "" {
		t.Errorf("switched off, yet %s", got)
	}
	if got := show(m.host(1000), config.Config{Exec: config.Exec{Hide: listPaths("~/go/pkg/mod/x", "~/.gradle")}}); strings.Contains(got, "gradle") {
		t.Errorf("hidden, yet %s", got)
	}
	for _, c := range cacheTable {
		if c.free == "" {
			t.Errorf("%s: why it holds no credential is not said", c.dir)
		}
	}
}

func TestToolchainsAndPath(t *testing.T) {
	m := newMachine("/home/ada/.local/bin", "/home/ada/go/bin", "/home/ada/.rustup/toolchains", "/home/ada/bin", "/home/ada/src/proj/bin",
		"/home/ada/src/proj/node_modules/.bin", "/srv/app/bin", "/data/go/bin", "/data/go/pkg/tool", "/data/w/bin", "/home/bob/bin", "/opt/x/bin", "/data/open")
	m.file("/data/go/VERSION", "go1", 0)
	m["/data/open"] = node{mode: fs.ModeDir | 0o777}
	m.link("/home/ada/.volta", "/home/ada/src/proj")
	m.dir("/home/ada/src/proj/tools", 1000)
	path := "PATH=bin:/usr/local/bin::/home/ada/.local/bin:./x:/home/ada/bin:/home/ada/src/proj/bin:/home/ada/src/proj/node_modules/.bin:/srv/app/bin:/data/go/bin:/tmp:/home/bob/bin:/opt/x/bin:/data/w/bin:/data/open:/usr/bin:/usr/bin:/nowhere:/bin"
	h := m.host(1000, path)
	h.Environ = slices.DeleteFunc(h.Environ, func(e string) bool { return e == "PATH=/usr/bin:/bin" })
	p := mustBuild(t, Request{WritePaths: []string{"/data/w"}}, h)
	want := "/usr/local/bin:/home/ada/.local/bin:/srv/app/bin:/data/go/bin:/opt/x/bin:/usr/bin:/bin:/home/ada/.tools/bin:/home/ada/go/bin:/home/ada/.cargo/bin:/home/ada/.bun/bin"
	if got := envOf(p)["PATH"]; got != want {
		t.Errorf("PATH\n%s\nwant\n%s", got, want)
	}
	if got, want := strings.Join(p.Spec.Toolchains, " "), "/data/go /home/ada/.local/bin /home/ada/.rustup/toolchains /home/ada/go/bin /opt /srv/app/bin"; got != want {
		t.Errorf("toolchains\n%s\nwant\n%s", got, want)
	}
	if e := envOf(p); e["GOBIN"] != "/home/ada/.tools/bin" || e["PYTHONUSERBASE"] != "/home/ada/.tools" || e["CARGO_INSTALL_ROOT"] != "" {
		t.Errorf("installers: %q %q %q", e["GOBIN"], e["PYTHONUSERBASE"], e["CARGO_INSTALL_ROOT"])
	}
	if slices.Contains(p.Spec.HomeDirs, ".local/bin") || !slices.Contains(p.Spec.HomeDirs, ".cargo/bin") {
		t.Errorf("home dirs %q", p.Spec.HomeDirs)
	}
	for dir, want := range map[string]string{"/opt/x": "/opt/x", "/home/ada/src/proj": "", "/nowhere": "", "x": ""} {
		if got := envOf(mustBuild(t, Request{}, m.host(1000, "JAVA_HOME="+dir)))["JAVA_HOME"]; got != want {
			t.Errorf("JAVA_HOME=%s gives %q, want %q", dir, got, want)
		}
	}
	// What a person hides is not a toolchain, nor is a folder that holds it.
	p = mustBuild(t, Request{HidePaths: []string{"/opt/x"}}, h)
	if slices.Contains(p.Spec.Toolchains, "/opt") || strings.Contains(envOf(p)["PATH"], "/opt") {
		t.Errorf("/opt shows: %q", p.Spec.Toolchains)
	}
	for _, c := range toolchainTable {
		if c.free == "" {
			t.Errorf("%s: why it holds no credential is not said", c.dir)
		}
	}
}

func TestEtc(t *testing.T) {
	etc := func(p Plan, name string) string {
		for _, f := range p.Spec.Etc {
			if f.Path == name {
				return string(f.Data)
			}
		}
		return "-"
	}
	m := newMachine("/etc/ssl/certs/corp")
	m.file("/etc/issue", "", 0)
	p := mustBuild(t, Request{HidePaths: []string{"/etc/ssl/certs/corp", "/etc/issue"}}, m.host(1000))
	if got := etc(p, "passwd"); !strings.Contains(got, "ada:x:1000:1000::/home/ada:/bin/bash\n") || !strings.HasPrefix(got, "root:x:0:") || strings.Contains(got, "bob") {
		t.Errorf("passwd:\n%s", got)
	}
	if etc(p, "hostname") != "coworker\n" || !strings.HasPrefix(etc(p, "resolv.conf"), "#") || strings.Contains(etc(p, "profile"), "PATH") {
		t.Error("hostname, resolv.conf or profile")
	}
	if slices.Contains(p.Spec.EtcAllow, "ssl/certs") || slices.Contains(p.Spec.EtcAllow, "issue") || !slices.Contains(p.Spec.EtcAllow, "ld.so.cache") {
		t.Errorf("allow %q", p.Spec.EtcAllow)
	}
	for _, never := range []string{"shadow", "gshadow", "sudoers", "gitconfig", "environment", "profile", "profile.d", "machine-id", "ssl/private", "ssl", "pki", "ssh", "apt", "ld.so.preload", "passwd", "mailcap"} {
		if slices.Contains(EtcAllow, never) {
			t.Errorf("%s is on the list", never)
		}
	}
	root := mustBuild(t, Request{Workspace: "/root"}, m.host(0))
	if got := etc(root, "passwd"); strings.Count(got, ":0:0:") != 1 {
		t.Errorf("passwd of root:\n%s", got)
	}
}

func TestLimits(t *testing.T) {
	m := newMachine()
	c := config.Config{Limits: config.Limits{Memory: 4 << 30, OpenFiles: 99}, Ceiling: config.Limits{Processes: 10, CPUs: 2}}
	tests := []struct {
		name    string
		req     Request
		want    enforce.Limits
		wantErr string
	}{
		{"defaults", Request{}, enforce.Limits{Processes: 4096, Memory: 12 << 30, OpenFiles: 65536, FileSize: 64 << 30, Tmp: 4 << 30}, ""},
		{"settings and project", Request{Config: c}, enforce.Limits{Processes: 10, Memory: 4 << 30, CPUs: 2, OpenFiles: 99, FileSize: 64 << 30, Tmp: (4 << 30) / 3,
			Named: []string{"cpus", "memory", "open_files", "processes"}}, ""},
		{"flags", Request{Config: c, Memory: "8g", Pids: "20", CPU: "3.5"}, enforce.Limits{Processes: 20, Memory: 8 << 30, CPUs: 3.5, OpenFiles: 99, FileSize: 64 << 30, Tmp: (8 << 30) / 3,
			Named: []string{"cpus", "memory", "open_files", "processes"}}, ""},
		{"bad memory", Request{Memory: "lots"}, enforce.Limits{}, "--memory"},
		{"bad pids", Request{Pids: "0"}, enforce.Limits{}, "--pids"},
		{"bad cpu", Request{CPU: "NaN"}, enforce.Limits{}, "--cpu"},
		{"bad timeout", Request{Timeout: "5"}, enforce.Limits{}, "--timeout"},
		{"bad level", Request{Level: "max"}, enforce.Limits{}, "--level"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.wantErr != "" {
				wantError(t, tt.req, m.host(1000), tt.wantErr)
				return
			}
			l := mustBuild(t, tt.req, m.host(1000)).Spec.Limits
			if !slices.Equal(l.Named, tt.want.Named) {
				t.Errorf("named %q", l.Named)
			}
			l.Named, tt.want.Named = nil, nil
			if l.Processes != tt.want.Processes || l.Memory != tt.want.Memory || l.CPUs != tt.want.CPUs || l.OpenFiles != tt.want.OpenFiles || l.FileSize != tt.want.FileSize || l.Tmp != tt.want.Tmp {
				t.Errorf("got %+v\nwant %+v", l, tt.want)
			}
		})
	}
	h := m.host(1000)
	h.Cores = 4
	if p := mustBuild(t, Request{Level: "hardened"}, h); p.Timeout != 24*time.Hour || p.Spec.Limits.Time != 86400 || p.Spec.Limits.CPUs != 3.75 {
		t.Errorf("hardened is not bounded: %v %+v", p.Timeout, p.Spec.Limits)
	}
	if p := mustBuild(t, Request{Level: "hardened", Timeout: "1500ms", CPU: "2"}, h); p.Spec.Limits.Time != 2 || p.Spec.Limits.CPUs != 2 {
		t.Errorf("what a person asked for is not kept: %+v", p.Spec.Limits)
	}
	p := mustBuild(t, Request{Timeout: "90s", Level: "partial"}, m.host(1000))
	if p.Timeout != 90*time.Second || p.Level != enforce.Partial {
		t.Errorf("%v %v", p.Timeout, p.Level)
	}
}

func TestProfiles(t *testing.T) {
	none := func(string) ([]byte, error) { return nil, fs.ErrNotExist }
	if got := ProfileNames(); !slices.Equal(got, []string{"claude", "codex", "gemini", "go", "node", "python", "rust"}) {
		t.Fatalf("shipped %q", got)
	}
	for _, name := range ProfileNames() {
		pr, err := FindProfile(name, "/c", none)
		if err != nil || pr.About == "" {
			t.Fatalf("%s: %v", name, err)
		}
		mustBuild(t, Request{Profile: pr}, newMachine().host(1000))
	}
	pr, err := FindProfile("claude", "/c", none)
	if err != nil {
		t.Fatal(err)
	}
	p := mustBuild(t, Request{Profile: pr}, newMachine("/home/ada/.claude").host(1000, "ANTHROPIC_API_KEY=sk-x"))
	if envOf(p)["CLAUDE_CONFIG_DIR"] != "/home/ada/.claude" || !slices.Contains(p.Spec.HomeDirs, ".claude") || !slices.Equal(p.Summary.NamedSecrets, []string{"ANTHROPIC_API_KEY"}) {
		t.Fatalf("%+v", p.Summary)
	}
	if len(p.Spec.Trees) != 1 {
		t.Fatal("the real ~/.claude is visible")
	}
	own := func(text string) func(string) ([]byte, error) {
		return func(f string) ([]byte, error) {
			if f != "/c/profiles/go.toml" {
				return nil, errors.New(f)
			}
			return []byte(text), nil
		}
	}
	if pr, err := FindProfile("go", "/c", own("about = \"mine\"")); err != nil || pr.About != "mine" {
		t.Fatalf("the person's own profile does not win: %v", err)
	}
	for text, want := range map[string]string{"hme = []": `did you mean "home"`, "home = [\"../x\"]": "not a folder in the home", "home = [\".ssh\"]": "made anew", "read = [\"x\"]": "relative"} {
		if _, err := FindProfile("go", "/c", own(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	for _, name := range []string{"../go", "", "nope", "a/b", ".x", "a\nb"} {
		if _, err := FindProfile(name, "/c", none); err == nil {
			t.Errorf("%q found", name)
		}
	}
}
