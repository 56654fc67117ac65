package registries

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"coworker/netproxy/hostmatch"
)

// checkRule says that an address gives no rule or a good one, and one that is not raw and names no network.
func checkRule(t *testing.T, address string) {
	t.Helper()
	at, err := locate(address)
	if err != nil || at.rule == "" {
		return
	}
	if _, err := hostmatch.ParseAllow(at.rule); err != nil || strings.ContainsAny(at.rule, "+=*@/ ") {
		t.Errorf("%q gives the rule %q: %v", address, at.rule, err)
	}
}

// tree makes a file system; a value that begins with "->" is a symbolic link, and names in a bin folder are executable.
func tree(files map[string]string) fstest.MapFS {
	root := fstest.MapFS{}
	for p, content := range files {
		file := &fstest.MapFile{Data: []byte(content), Mode: 0o644}
		if target, ok := strings.CutPrefix(content, "->"); ok {
			file.Data, file.Mode = []byte(target), fs.ModeSymlink|0o777
		} else if strings.Contains(p, "/bin/") || strings.Contains(p, "/shims/") {
			file.Mode = 0o755
		}
		root[strings.TrimPrefix(p, "/")] = file
	}
	return root
}

func archive(t *testing.T, name, content string) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, err := z.Create(name)
	if err == nil {
		_, err = w.Write([]byte(content))
	}
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

const (
	npmSource  = "registry: new Definition('registry', {\n    default: 'https://npm.default.example/',"
	pypiSource = "PyPI = PackageIndex(\"https://py.default.example/\", file_storage_domain=\"files.default.example\")\n"
	superPom   = "<project><repositories><repository><id>central</id><url>https://central.default.example/m2</url></repository></repositories></project>"
)

// machine has every manager installed and nothing configured.
func machine(t *testing.T) map[string]string {
	return map[string]string{
		"/home/me/.keep": "",
		"/usr/bin/node":  "",
		"/usr/bin/npm":   "->../lib/node_modules/npm/bin/npm-cli.js",
		"/usr/lib/node_modules/npm/bin/npm-cli.js":                                             "",
		"/usr/lib/node_modules/npm/node_modules/@npmcli/config/lib/definitions/definitions.js": npmSource,
		"/usr/bin/pnpm":                                "",
		"/usr/bin/yarn":                                "->/usr/share/yarn/bin/yarn.js",
		"/usr/share/yarn/bin/yarn.js":                  "",
		"/usr/share/yarn/lib/cli.js":                   "const YARN_REGISTRY = exports.YARN_REGISTRY = 'https://yarn.default.example';",
		"/usr/bin/python3":                             "->python3.13",
		"/usr/bin/python3.13":                          "",
		"/usr/bin/uv":                                  "",
		"/usr/lib/python3/dist-packages/" + pipModule:  pypiSource,
		"/opt/go/bin/go":                               "",
		"/opt/go/go.env":                               "# c\nGOPROXY=https://go.default.example,direct\nGOSUMDB=sum.default.example\n",
		"/home/me/.cargo/bin/cargo":                    "",
		"/home/me/.rustup/toolchains/stable/bin/cargo": "\x00sparse+https://index.default.example/\x00https://git.default.example/x.io-index\x00",
		"/home/me/.cargo/registry/index/index.default.example-0123/config.json": `{"dl":"https://dl.default.example/crates"}`,
		"/usr/bin/mvn":             "->/usr/share/maven/bin/mvn",
		"/usr/share/maven/bin/mvn": "",
		"/usr/share/maven/lib/maven-model-builder-3.8.jar": archive(t, "org/apache/maven/model/pom-4.0.0.xml", superPom),
		"/usr/bin/gem": "",
		"/usr/lib/ruby/3.1.0/rubygems/defaults.rb": "def self.default_sources\n  [\"https://gem.default.example/\"]\nend",
	}
}

const searchPath = "PATH=/opt/go/bin:/home/me/.cargo/bin:/usr/bin"

func discover(t *testing.T, files map[string]string, environ ...string) List {
	t.Helper()
	list, err := Discover(context.Background(), Host{
		Environ: append([]string{searchPath}, environ...), Home: "/home/me", Root: tree(files), Workspaces: []string{"/home/me/work/repo"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range list.Rules() {
		if _, err := hostmatch.ParseAllow(rule); err != nil {
			t.Errorf("rule %q: %v", rule, err)
		}
	}
	return list
}

// of shows the entries of one manager as "scope rule+extra".
func (l List) of(manager string) string {
	var out []string
	for _, e := range l.Entries {
		if e.Manager == manager {
			out = append(out, strings.TrimSpace(e.Scope+" "+strings.Join(append([]string{e.Rule}, e.Extra...), "+")))
		}
	}
	return strings.Join(out, ", ")
}

var defaults = map[string]string{
	"npm": "npm.default.example", "pnpm": "npm.default.example", "yarn": "yarn.default.example",
	"pip": "py.default.example+files.default.example", "uv": "py.default.example+files.default.example",
	"go": "go.default.example, checksums sum.default.example", "cargo": "index.default.example+dl.default.example",
	"maven": "central central.default.example", "gem": "gem.default.example",
}

func TestDefaultsComeFromTheInstalledTools(t *testing.T) {
	list := discover(t, machine(t))
	for manager, want := range defaults {
		if got := list.of(manager); got != want {
			t.Errorf("%s: got %q, want %q", manager, got, want)
		}
	}
	for _, e := range list.Entries {
		if !e.Default || e.Credential || e.Source == "" {
			t.Errorf("%+v", e)
		}
	}
	if len(list.Notes) > 0 {
		t.Errorf("notes: %q", list.Notes)
	}
}

func TestNothingInstalled(t *testing.T) {
	list := discover(t, map[string]string{"/home/me/.keep": "", "/usr/bin/ls": ""})
	if len(list.Entries)+len(list.Notes) > 0 {
		t.Errorf("%+v", list)
	}
}

// TestUnreadableDefault: a tool that does not tell its default gives a note and never a guess.
func TestUnreadableDefault(t *testing.T) {
	files := machine(t)
	for p := range files {
		if !strings.Contains(p, "/bin/") {
			delete(files, p)
		}
	}
	files["/home/me/.keep"] = ""
	files["/home/me/.rustup/toolchains/stable/bin/cargo"] = "nothing here"
	list := discover(t, files)
	if len(list.Entries) > 0 {
		t.Errorf("%+v", list.Entries)
	}
	for manager := range defaults {
		if !slices.ContainsFunc(list.Notes, func(n Note) bool { return n.Manager == manager && strings.Contains(n.Text, "--allow HOST") }) {
			t.Errorf("no note for %s: %q", manager, list.Notes)
		}
	}
}

func TestConfigured(t *testing.T) {
	for _, tt := range []struct {
		name    string
		files   map[string]string
		environ []string
		manager string
		want    string
	}{
		{"user npmrc", map[string]string{"/home/me/.npmrc": "registry=https://a.example/\n@s:registry=http://b.example:4873/\n//a.example/:_authToken=x"}, nil,
			"npm", "a.example, @s b.example:4873"},
		{"npm scope only", map[string]string{"/home/me/.npmrc": "@s:registry=https://b.example/"}, nil, "npm", "@s b.example, npm.default.example"},
		{"npm environment first", map[string]string{"/home/me/.npmrc": "registry=https://a.example/"}, []string{"NPM_CONFIG_REGISTRY=https://e.example"}, "npm", "e.example"},
		{"npm environment lower case", nil, []string{"npm_config_@s:registry=https://e.example", "npm_config_registry=https://f.example"}, "npm", "f.example, @s e.example"},
		{"npm user before global", map[string]string{"/home/me/.npmrc": "registry=https://a.example/", "/usr/etc/npmrc": "registry=https://g.example\n@g:registry=https://h.example"}, nil,
			"npm", "a.example, @g h.example"},
		{"npm prefix", map[string]string{"/pre/etc/npmrc": "registry=https://g.example"}, []string{"PREFIX=/pre"}, "npm", "g.example"},
		{"npm userconfig", map[string]string{"/cfg/npmrc": "registry=https://a.example"}, []string{"npm_config_userconfig=/cfg/npmrc"}, "npm", "a.example"},
		{"npm globalconfig", map[string]string{"/home/me/.npmrc": "globalconfig=/cfg/g", "/cfg/g": "registry=https://g.example"}, nil, "npm", "g.example"},
		{"npm builtin", map[string]string{"/usr/lib/node_modules/npm/npmrc": "registry=https://d.example"}, nil, "npm", "d.example"},
		{"npm variable", map[string]string{"/home/me/.npmrc": "registry=https://${NPM_HOST}/${NONE?}"}, []string{"NPM_HOST=v.example"}, "npm", "v.example"},
		{"npm last line", map[string]string{"/home/me/.npmrc": "registry=https://a.example\nregistry=https://z.example"}, nil, "npm", "z.example"},
		{"npm linked dotfile", map[string]string{"/home/me/.npmrc": "->dotfiles/npmrc", "/home/me/dotfiles/npmrc": "registry=https://a.example"}, nil, "npm", "a.example"},
		{"pnpm", map[string]string{"/home/me/.config/pnpm/rc": "registry=https://p.example", "/home/me/.npmrc": "@s:registry=https://a.example"}, nil, "pnpm", "p.example, @s a.example"},
		{"yarn 1", map[string]string{"/home/me/.yarnrc": "registry \"https://y.example\""}, nil, "yarn", "y.example"},
		{"yarn 4", map[string]string{"/home/me/.yarnrc.yml": "npmRegistryServer: https://y.example\nnpmScopes:\n  s:\n    npmRegistryServer: https://z.example"}, nil, "yarn", "y.example, npmScopes z.example"},
		{"pip user", map[string]string{"/home/me/.config/pip/pip.conf": "[global]\nindex-url=https://a.example/simple\nextra-index-url=\n  https://b.example\n  https://py.default.example/simple"}, nil,
			"pip", "a.example, b.example, py.default.example+files.default.example"},
		{"pip user beats machine", map[string]string{"/home/me/.config/pip/pip.conf": "[global]\nindex-url=https://a.example", "/etc/pip.conf": "[global]\nindex-url=https://m.example\nextra-index-url=https://x.example"}, nil,
			"pip", "a.example, x.example"},
		{"pip environment", map[string]string{"/etc/pip.conf": "[install]\nindex-url=https://m.example"}, []string{"PIP_INDEX_URL=https://e.example", "PIP_EXTRA_INDEX_URL=https://f.example https://g.example"}, "pip", "e.example, f.example, g.example"},
		{"pip section", map[string]string{"/etc/pip.conf": "[install]\nindex-url=https://m.example\n[list]\nindex-url=https://n.example"}, nil, "pip", "m.example"},
		{"pip files off", map[string]string{"/etc/pip.conf": "[global]\nindex-url=https://m.example"}, []string{"PIP_CONFIG_FILE=/dev/null"}, "pip", defaults["pip"]},
		{"pip no index", map[string]string{"/etc/pip.conf": "[global]\nno-index=true\nfind-links=https://w.example/wheels /opt/wheels"}, nil, "pip", "w.example"},
		{"pip legacy", map[string]string{"/home/me/.pip/pip.conf": "[global]\nindex-url=https://l.example"}, nil, "pip", "l.example"},
		{"uv files", map[string]string{"/home/me/.config/uv/uv.toml": "[[index]]\nname='corp'\nurl='https://a.example'\n[[index]]\nurl='https://d.example'\ndefault=true", "/etc/uv/uv.toml": "index-url='https://m.example'\nextra-index-url=['https://x.example']"}, nil,
			"uv", "d.example, corp a.example, x.example"},
		{"uv pip table", map[string]string{"/etc/uv/uv.toml": "[pip]\nindex-url='https://m.example'"}, nil, "uv", "m.example"},
		{"uv environment", nil, []string{"UV_DEFAULT_INDEX=https://d.example", "UV_INDEX=a=https://a.example https://b.example", "UV_INDEX_URL=https://old.example"}, "uv", "d.example, a.example, b.example"},
		{"uv config file", map[string]string{"/cfg": "index-url='https://c.example'", "/etc/uv/uv.toml": "index-url='https://m.example'"}, []string{"UV_CONFIG_FILE=/cfg"}, "uv", "c.example"},
		{"go environment", map[string]string{"/home/me/.config/go/env": "GOPROXY=https://u.example"}, []string{"GOPROXY=https://e.example", "GOSUMDB=off"}, "go", "e.example"},
		{"go env -w", map[string]string{"/home/me/.config/go/env": "GOPROXY=https://u.example,direct\nGOFLAGS=-x"}, nil, "go", "u.example, checksums sum.default.example"},
		{"go GOENV", map[string]string{"/cfg": "GOPROXY=https://c.example"}, []string{"GOENV=/cfg", "GONOSUMDB=*"}, "go", "c.example"},
		{"go GOENV off", map[string]string{"/home/me/.config/go/env": "GOPROXY=https://u.example"}, []string{"GOENV=off"}, "go", defaults["go"]},
		{"go off", nil, []string{"GOPROXY=off"}, "go", ""},
		{"cargo replacement", map[string]string{"/home/me/.cargo/config.toml": "[source.crates-io]\nreplace-with='a'\n[source.a]\nreplace-with='b'\n[source.b]\nregistry='sparse+https://c.example/index/'"}, nil, "cargo", "c.example"},
		{"cargo replacement by registry", map[string]string{"/home/me/.cargo/config.toml": "[source.crates-io]\nreplace-with='corp'\n[registries.corp]\nindex='sparse+https://c.example/'"}, nil, "cargo", "corp c.example, c.example"},
		{"cargo vendored", map[string]string{"/home/me/.cargo/config.toml": "[source.crates-io]\nreplace-with='v'\n[source.v]\ndirectory='vendor'"}, nil, "cargo", ""},
		{"cargo circle", map[string]string{"/home/me/.cargo/config.toml": "[source.crates-io]\nreplace-with='a'\n[source.a]\nreplace-with='crates-io'"}, nil, "cargo", defaults["cargo"]},
		{"cargo registries", map[string]string{"/home/me/.cargo/config": "[registries.mine]\nindex='https://git.example/index.git'"}, []string{"CARGO_REGISTRIES_OTHER_INDEX=sparse+https://o.example/"}, "cargo",
			"o.example, mine git.example, " + defaults["cargo"]},
		{"cargo git protocol", map[string]string{"/home/me/.cargo/config.toml": "[registries.crates-io]\nprotocol='git'"}, nil, "cargo", "git.default.example"},
		{"cargo home", map[string]string{"/ch/config.toml": "[source.crates-io]\nreplace-with='a'\n[source.a]\nregistry='sparse+https://h.example/'"}, []string{"CARGO_HOME=/ch"}, "cargo", "h.example"},
		{"maven mirror", map[string]string{"/home/me/.m2/settings.xml": "<settings><mirrors><mirror><id>m</id><mirrorOf>*</mirrorOf><url>https://${env.MV}/m2</url></mirror></mirrors><profiles><profile><repositories><repository><id>r</id><url>https://r.example</url></repository></repositories></profile></profiles></settings>"}, []string{"MV=m.example"}, "maven", "m m.example"},
		{"maven repositories", map[string]string{"/usr/share/maven/conf/settings.xml": "<settings><mirrors><mirror><id>block</id><mirrorOf>external:http:*</mirrorOf><url>http://0.0.0.0/</url><blocked>true</blocked></mirror></mirrors><profiles><profile><repositories><repository><id>r</id><url>https://r.example</url></repository><repository><id>h</id><url>http://h.example</url></repository></repositories></profile></profiles></settings>"}, nil,
			"maven", "r r.example, central central.default.example"},
		{"maven replaces central", map[string]string{"/home/me/.m2/settings.xml": "<settings><profiles><profile><repositories><repository><id>central</id><url>https://r.example</url></repository></repositories></profile></profiles></settings>"}, nil, "maven", "central r.example"},
		{"maven offline", map[string]string{"/home/me/.m2/settings.xml": "<settings><offline>true</offline></settings>"}, nil, "maven", ""},
		{"gem user", map[string]string{"/home/me/.gemrc": ":sources:\n- https://g.example/", "/etc/gemrc": ":sources:\n- https://m.example/"}, nil, "gem", "g.example"},
		{"gem GEMRC", map[string]string{"/cfg": ":sources: ['https://c.example']"}, []string{"GEMRC=/cfg"}, "gem", "c.example"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			files := machine(t)
			for p, content := range tt.files {
				files[p] = content
			}
			if got := discover(t, files, tt.environ...).of(tt.manager); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

// TestShims: pyenv's pip and python are scripts; the versions lie beside them.
func TestShims(t *testing.T) {
	files := map[string]string{
		"/home/me/.pyenv/shims/pip": "#!/bin/sh", "/home/me/.pyenv/versions/3.13.0/lib/python3.13/ensurepip/_bundled/pip-25-py3-none-any.whl": archive(t, pipModule, pypiSource),
	}
	if got := discover(t, files, "PATH=/home/me/.pyenv/shims").of("pip"); got != defaults["pip"] {
		t.Errorf("got %q", got)
	}
}

// TestWorkspaceNeverWidens: whatever leads into the workspace gives no rule.
func TestWorkspaceNeverWidens(t *testing.T) {
	const repo = "/home/me/work/repo"
	hostile := map[string]string{
		repo + "/.npmrc": "registry=https://evil.example", repo + "/pip.conf": "[global]\nindex-url=https://evil.example", repo + "/uv.toml": "index-url='https://evil.example'",
		repo + "/.cargo/config.toml": "[source.crates-io]\nreplace-with='e'\n[source.e]\nregistry='https://evil.example'", repo + "/env": "GOPROXY=https://evil.example",
		repo + "/settings.xml": "<settings><mirrors><mirror><mirrorOf>*</mirrorOf><url>https://evil.example</url></mirror></mirrors></settings>", repo + "/gemrc": ":sources:\n- https://evil.example",
		repo + "/bin/npm": "", repo + "/node_modules/@npmcli/config/lib/definitions/definitions.js": strings.ReplaceAll(npmSource, "npm.default", "evil"),
		repo + "/bin/go": "", repo + "/go.env": "GOPROXY=https://evil.example", repo + "/lib/python3/dist-packages/" + pipModule: strings.ReplaceAll(pypiSource, "default", "evil"), repo + "/bin/python3": "",
		repo + "/share/gemlink": "",
	}
	for name, tt := range map[string]struct {
		files   map[string]string
		environ []string
	}{
		"just there": {},
		"links": {files: map[string]string{"/home/me/.npmrc": "->work/repo/.npmrc", "/etc/pip.conf": "->" + repo + "/pip.conf", "/home/me/.config": "->work/repo", "/home/me/.m2": "->./work/x/../repo",
			"/home/me/.gemrc": "->/l1", "/l1": "->l2", "/l2": "->" + repo + "/gemrc"}},
		"variables": {environ: []string{"npm_config_userconfig=" + repo + "/.npmrc", "PIP_CONFIG_FILE=" + repo + "/../repo/pip.conf", "UV_CONFIG_FILE=" + repo + "/uv.toml", "CARGO_HOME=" + repo + "/.cargo",
			"GOENV=" + repo + "/env", "GEMRC=" + repo + "/gemrc", "MAVEN_HOME=" + repo, "GOROOT=" + repo, "VIRTUAL_ENV=" + repo, "PREFIX=" + repo}},
		"relative":  {environ: []string{"npm_config_userconfig=.npmrc", "PIP_CONFIG_FILE=pip.conf", "UV_CONFIG_FILE=uv.toml", "CARGO_HOME=.cargo", "GOENV=env", "GEMRC=gemrc", "VIRTUAL_ENV=."}},
		"PATH":      {environ: []string{"PATH=" + repo + "/bin:bin::.:/lnk:/opt/go/bin:/usr/bin"}, files: map[string]string{"/lnk": "->" + repo + "/bin"}},
		"tool link": {environ: []string{"PATH=/tools/bin:/opt/go/bin:/usr/bin"}, files: map[string]string{"/tools/bin/npm": "->" + repo + "/bin/npm", "/tools/bin/go": "->" + repo + "/bin/go", "/tools/bin/python3": "->" + repo + "/bin/python3"}},
		"circle":    {files: map[string]string{"/home/me/.npmrc": "->.npmrc", "/home/me/.gemrc": "->/a", "/a": "->/home/me/.gemrc"}},
	} {
		t.Run(name, func(t *testing.T) {
			files := machine(t)
			for _, m := range []map[string]string{hostile, tt.files} {
				for p, content := range m {
					files[p] = content
				}
			}
			list := discover(t, files, tt.environ...)
			for _, line := range append(list.Lines(), list.Rules()...) {
				if strings.Contains(line, "evil") {
					t.Errorf("%s", line)
				}
			}
		})
	}
	// The same files count where no workspace is: the check above can fail.
	files := machine(t)
	files["/home/me/.npmrc"], files[repo+"/.npmrc"] = "->work/repo/.npmrc", hostile[repo+"/.npmrc"]
	list, err := Discover(context.Background(), Host{Environ: []string{searchPath}, Home: "/home/me", Root: tree(files)})
	if err != nil || !slices.Contains(list.Rules(), "evil.example") {
		t.Errorf("%v %v", list.Rules(), err)
	}
}

func TestHomeAsWorkspace(t *testing.T) {
	files := machine(t)
	files["/home/me/.npmrc"] = "registry=https://evil.example"
	list, err := Discover(context.Background(), Host{Environ: []string{"PATH=/usr/bin"}, Home: "/home/me", Root: tree(files), Workspaces: []string{"/home/me"}})
	if err != nil || list.of("npm") != "npm.default.example" {
		t.Errorf("%q %v", list.of("npm"), err)
	}
	if !slices.Contains(list.Notes, Note{"npm", "~/.npmrc lies in the workspace and does not count"}) {
		t.Errorf("%q", list.Notes)
	}
}

func TestUnsafeFiles(t *testing.T) {
	root := tree(machine(t))
	put := func(p string, f *fstest.MapFile) { root[p] = f }
	put("home/me/.npmrc", &fstest.MapFile{Data: []byte("registry=https://evil.example"), Mode: 0o666})
	put("etc/pip.conf", &fstest.MapFile{Mode: fs.ModeNamedPipe | 0o600})
	put("etc/uv/uv.toml", &fstest.MapFile{Data: []byte("index-url = ["), Mode: 0o600})
	put("home/me/.m2/settings.xml", &fstest.MapFile{Data: []byte("<settings><mirrors>"), Mode: 0o600})
	put("home/me/.cargo/config.toml", &fstest.MapFile{Data: []byte("\xff\x00"), Mode: 0o600})
	put("etc/gemrc", &fstest.MapFile{Data: make([]byte, maxFile+1), Mode: 0o600})
	list, err := Discover(context.Background(), Host{Environ: []string{searchPath}, Home: "/home/me", Root: root})
	if err != nil || strings.Contains(strings.Join(list.Rules(), " "), "evil") {
		t.Fatalf("%v %v", list.Rules(), err)
	}
	for _, want := range []Note{
		{"npm", "~/.npmrc can be written by everyone and does not count"}, {"pip", "/etc/pip.conf is no regular file"}, {"uv", "/etc/uv/uv.toml is not valid TOML"},
		{"maven", "~/.m2/settings.xml is not valid XML"}, {"cargo", "~/.cargo/config.toml is not valid TOML"}, {"gem", "/etc/gemrc has 1048577 bytes, more than 1048576"},
	} {
		if !slices.Contains(list.Notes, want) {
			t.Errorf("no note %q in %q", want, list.Notes)
		}
	}
}

func TestCredentialsAreNotKept(t *testing.T) {
	const secret = "sesame"
	files := machine(t)
	files["/home/me/.npmrc"] = "registry=https://u:sesame@a.example/\n//a.example/:_authToken=sesame\n@s:registry=https://u:sesame@b ad/\n@t:registry=${sesame}"
	files["/etc/pip.conf"] = "[global]\nindex-url=https://u:sesame@a.example/"
	files["/etc/uv/uv.toml"] = "index-url='https://u:sesame@a.example/'\nx=sesame"
	list := discover(t, files, "GOPROXY=https://u:sesame@a.example", "UV_INDEX=n=https://u:sesame@a.example", "CARGO_REGISTRIES_X_INDEX=sparse+https://sesame@a.example/")
	if text := strings.Join(append(list.Lines(), list.Rules()...), "\n"); strings.Contains(text, secret) {
		t.Errorf("a secret is shown:\n%s", text)
	}
	for _, manager := range []string{"npm", "pip", "uv", "go", "cargo"} {
		if !slices.ContainsFunc(list.Entries, func(e Entry) bool { return e.Manager == manager && e.Credential }) {
			t.Errorf("%s: the credential is not reported", manager)
		}
	}
}

func TestUnknownDownloadHostIsSaid(t *testing.T) {
	files := machine(t)
	delete(files, "/home/me/.cargo/registry/index/index.default.example-0123/config.json")
	list := discover(t, files)
	if list.of("cargo") != "index.default.example" || len(list.Notes) != 1 || !strings.Contains(list.Notes[0].Text, "names its download host") {
		t.Errorf("%q %q", list.of("cargo"), list.Notes)
	}
}

func TestBounds(t *testing.T) {
	files := machine(t)
	var b strings.Builder
	for i := range 1000 {
		b.WriteString("@s" + strings.Repeat("x", i%100) + string(rune('a'+i%26)) + ":registry=https://a" + strings.Repeat("b", i%50) + ".example\n@bad" + strings.Repeat("y", i) + ":registry=ftp://x\n")
	}
	files["/home/me/.npmrc"] = b.String()
	list := discover(t, files)
	count := 0
	for _, e := range list.Entries {
		if e.Manager == "npm" {
			count++
		}
	}
	if count > maxEntries || len(list.Notes) > 2*maxNotes {
		t.Errorf("%d entries, %d notes", count, len(list.Notes))
	}
}

func TestLines(t *testing.T) {
	list := List{Entries: []Entry{{Manager: "npm", Rule: "a.example", Source: "~/.npmrc"}, {Manager: "maven", Scope: "m", Rule: "b.example:80", Extra: []string{"c.example"}, Source: "/s", Default: true}},
		Notes: []Note{{"pip", "text"}}}
	want := []string{"npm    a.example               (~/.npmrc)", "maven  b.example:80 c.example  (m, /s, its default)", "pip: text"}
	if got := list.Lines(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %q", got)
	}
	if got := list.Rules(); !reflect.DeepEqual(got, []string{"a.example", "b.example:80", "c.example"}) {
		t.Errorf("got %q", got)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Discover(ctx, Host{Home: "/home/me", Root: tree(machine(t))}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := Discover(context.Background(), Host{Home: "me"}); err == nil {
		t.Error("a relative home is accepted")
	}
}
