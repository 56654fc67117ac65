package registries

import (
	"reflect"
	"strings"
	"testing"
)

func TestLocate(t *testing.T) {
	for _, tt := range []struct {
		url        string
		rule       string
		credential bool
		err, hint  string
	}{
		{url: "https://Registry.Example.ORG./", rule: "registry.example.org"},
		{url: "http://registry.example.org/npm", rule: "registry.example.org:80"},
		{url: "https://registry.example.org:8443/npm", rule: "registry.example.org:8443"},
		{url: "sparse+https://index.example.org/", rule: "index.example.org"},
		{url: "ssh://git@git.example.org/index.git", rule: "git.example.org:22", credential: true},
		{url: "https://user:sesame@registry.example.org/", rule: "registry.example.org", credential: true},
		{url: "https://10.1.2.3:8081/simple", rule: "10.1.2.3:8081"},
		{url: "https://[fd00::1]/simple", rule: "[fd00::1]"},
		{url: "https://nexus/simple", rule: "nexus", hint: "--allow nexus=CIDR"},
		{url: "https://nexus.corp:8443/simple", rule: "nexus.corp:8443", hint: "--allow nexus.corp:8443=CIDR"},
		{url: "file:///srv/packages"}, {url: "/opt/wheels"}, {url: "./wheels"}, {url: ""},
		{url: "https://localhost:4873/", err: "host.coworker.internal:4873"},
		{url: "http://127.0.0.1:4873/", err: "host.coworker.internal:4873"},
		{url: "http://[::1]:4873/", err: "host.coworker.internal:4873"},
		{url: "https://host.coworker.internal/", err: "--allow host.coworker.internal:443"},
		{url: "https://169.254.169.254/", err: "no rule opens 169.254.169.254"},
		{url: "https://*.example.org/", err: "no rule can name"},
		{url: "https://a.example=10.0.0.0/8", err: "no rule can name"},
		{url: "https://a.example+raw/", err: "no rule can name"},
		{url: "https://0x7f.1/", err: "no rule can name"},
		{url: "https://user:sesame@a example/", err: "not a valid URL"},
		{url: "https://user:sesame@/", err: "without a host"},
		{url: "https:///x", err: "without a host"},
		{url: "ftp://user:sesame@a.example/", err: "neither https nor http"},
		{url: "${SESAME}", err: "neither https nor http"},
		{url: "https://" + strings.Repeat("a", maxURL), err: "more than"},
	} {
		t.Run(tt.url[:min(40, len(tt.url))], func(t *testing.T) {
			got, err := locate(tt.url)
			if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Fatalf("error %v, want %q", err, tt.err)
			}
			if err != nil && strings.Contains(strings.ToLower(err.Error()), "sesame") {
				t.Errorf("the error tells a secret: %v", err)
			}
			if got.rule != tt.rule || got.credential != tt.credential || !strings.Contains(got.hint, tt.hint) || tt.hint == "" && got.hint != "" {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestSettingsParsers(t *testing.T) {
	for _, tt := range []struct {
		name  string
		parse func([]byte) []setting
		in    string
		want  []setting
	}{
		{"npmrc", parseNpmrc, "; c\n# c\nregistry = https://a.example/ ; why\n@x:registry=\"https://b.example/;y\"\r\nflag\n[section]\nregistry=https://c.example\n",
			[]setting{{"registry", "https://a.example/"}, {"@x:registry", "https://b.example/;y"}}},
		{"npmrc escape", parseNpmrc, `registry=https://a.example/\#x` + "\n'registry' = 'https://b.example'",
			[]setting{{"registry", "https://a.example/#x"}, {"registry", "https://b.example"}}},
		{"yarnrc", parseYarnrc, "# yarn\nregistry \"https://a.example\"\n\"@s:registry\" https://b.example\nlastUpdateCheck 1\nalone",
			[]setting{{"registry", "https://a.example"}, {"@s:registry", "https://b.example"}, {"lastUpdateCheck", "1"}}},
		{"yarnrc.yml", parseYarnYML, "npmRegistryServer: \"https://a.example\"\nnpmScopes:\n  my:\n    npmRegistryServer: https://b.example # c\nnpmAuthToken: x\n",
			[]setting{{"registry", "https://a.example"}, {"scope", "https://b.example"}}},
		{"pip", parsePip, "index-url = https://ignored.example\n[global]\nIndex_URL: https://a.example/simple\nextra-index-url =\n  https://b.example\n  # c\n  https://c.example\n\n; c\n[install]\n--no-index = yes\n",
			[]setting{{"global.index-url", "https://a.example/simple"}, {"global.extra-index-url", "\nhttps://b.example\nhttps://c.example"}, {"install.no-index", "yes"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.parse([]byte(tt.in)); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestValueParsers(t *testing.T) {
	one := func(f func(string) string) func(string) []string {
		return func(s string) []string { return []string{f(s)} }
	}
	text := func(f func([]byte) string) func(string) []string {
		return func(s string) []string { return []string{f([]byte(s))} }
	}
	for _, tt := range []struct {
		name  string
		parse func(string) []string
		in    string
		want  []string
	}{
		{"GOPROXY", parseGoProxy, "https://a.example|b.example/go,direct", []string{"https://a.example", "https://b.example/go"}},
		{"GOPROXY off", parseGoProxy, "https://a.example,off,https://b.example", []string{"https://a.example"}},
		{"GOPROXY file", parseGoProxy, "file:///srv/go", []string{"file:///srv/go"}},
		{"GOSUMDB", one(parseGoSumDB), "sum.example", []string{"https://sum.example"}},
		{"GOSUMDB key", one(parseGoSumDB), "sum.example+abc+Def/", []string{"https://sum.example"}},
		{"GOSUMDB url", one(parseGoSumDB), "sum.example+abc+Def https://mirror.example/sum", []string{"https://mirror.example/sum"}},
		{"GOSUMDB off", one(parseGoSumDB), "off", []string{""}},
		{"UV_INDEX", one(indexURL), "mine=https://a.example/?x=y", []string{"https://a.example/?x=y"}},
		{"UV_INDEX without name", one(indexURL), "https://a.example/?x=y", []string{"https://a.example/?x=y"}},
		{"cargo index", text(parseCargoIndex), `{"dl":"https://d.example/{crate}/x","api":"https://a.example"}`, []string{"d.example"}},
		{"cargo index marker", text(parseCargoIndex), `{"dl":"https://d.example:8443/x"}`, []string{"d.example:8443"}},
		{"cargo index http", text(parseCargoIndex), `{"dl":"http://d.example/x"}`, []string{""}},
		{"cargo index user", text(parseCargoIndex), `{"dl":"https://u:p@d.example/x"}`, []string{""}},
		{"npm 11", text(parseNpmDefinitions), "  registry: new Definition('registry', {\n    default: 'https://a.example/',\n", []string{"https://a.example/"}},
		{"npm 8", text(parseNpmDefinitions), "define('registry', {\n  default: 'https://a.example/',\n", []string{"https://a.example/"}},
		{"npm 6", text(parseNpmDefinitions), "    registry: 'https://a.example/',\n", []string{"https://a.example/"}},
		{"npm other", text(parseNpmDefinitions), "  'replace-registry-host': new Definition('replace-registry-host', {\n    default: 'npmjs',\n", []string{""}},
		{"gem", text(parseGemDefaults), "  def self.default_sources\n    %w[https://a.example/]\n  end", []string{"https://a.example/"}},
		{"gem quotes", text(parseGemDefaults), "  def self.default_sources\n    [\"https://a.example/\"]\n  end", []string{"https://a.example/"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.parse(tt.in); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestParseGemrc(t *testing.T) {
	for in, want := range map[string][]string{
		"---\n:sources:\n- https://a.example/ # c\n- \"https://b.example/\"\n:backtrace: true\n- https://c.example": {"https://a.example/", "https://b.example/"},
		":sources: [https://a.example, 'https://b.example']":                                                        {"https://a.example", "https://b.example"},
		"gem: --no-document": nil,
	} {
		if got := parseGemrc([]byte(in)); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestParsePyPI(t *testing.T) {
	for _, in := range []string{
		"PyPI = PackageIndex(\"https://i.example/\", file_storage_domain=\"f.example\")\n",
		"PyPI = PackageIndex(\n    'https://i.example/', 'f.example'\n)\n",
	} {
		if index, files := parsePyPI([]byte("x\n" + in + "TestPyPI = PackageIndex(\"https://t.example/\", file_storage_domain=\"u.example\")")); index != "https://i.example/" || files != "f.example" {
			t.Errorf("%q: %q %q", in, index, files)
		}
	}
}

func TestMirrorOf(t *testing.T) {
	central := mavenRepository{"central", "https://c.example"}
	for of, want := range map[string]bool{
		"*": true, "central": true, "a, central": true, "*,!central": false, "external:*": true, "external:http:*": false, "other": false, "!central,*": false,
	} {
		if got := (mavenMirror{Of: of}).covers(central); got != want {
			t.Errorf("%s: %v", of, got)
		}
	}
	if (mavenMirror{Of: "external:*"}).covers(mavenRepository{"x", "file:///srv"}) {
		t.Error("external:* covers a folder")
	}
}

func TestScanFindsAcrossBlocks(t *testing.T) {
	for _, before := range []int{0, 1<<20 - 10, 1<<20 + 1000, 1<<20 + 1024, 3 << 20} {
		in := strings.Repeat("x", before) + "sparse+https://index.example/" + strings.Repeat("y", 5000)
		got, err := scan(strings.NewReader(in), cargoSparse)
		if got != "https://index.example/" || err != nil {
			t.Errorf("after %d bytes: %q, %v", before, got, err)
		}
	}
}

// FuzzParsers feeds every parser: nothing may crash, and whatever comes out as a rule is one.
func FuzzParsers(f *testing.F) {
	for _, seed := range []string{
		"registry=https://a.example/", "[global]\nindex-url=https://u:p@a.example", "[[index]]\nurl='https://a.example'", "GOPROXY=a,b|c",
		"<settings><mirrors><mirror><url>https://a.example</url></mirror></mirrors></settings>", ":sources:\n- https://a.example",
		"[source.crates-io]\nreplace-with='x'\n[source.x]\nregistry='sparse+https://a.example'", `{"dl":"https://a.example"}`, "source 'https://a.example'",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var all []string
		for _, file := range projectFiles {
			all = append(all, file.urls(in)...)
		}
		for _, list := range [][]setting{parseYarnrc(in), parsePip(in), parseNpmrc(in)} {
			all = append(all, values(list)...)
		}
		all = append(all, parseGemrc(in)...)
		all = append(all, parseGoProxy(string(in))...)
		all = append(all, parseGoSumDB(string(in)), parseCargoIndex(in), parseNpmDefinitions(in), parseGemDefaults(in), string(in))
		for _, v := range parseGoEnv(in) {
			all = append(all, v)
		}
		if m, err := parseMaven(in); err == nil {
			for _, mirror := range m.Mirrors {
				all = append(all, mirror.URL)
				mirror.covers(mavenRepository{"central", "https://a.example"})
			}
		}
		if c, err := parseCargo(in); err == nil {
			address, _ := c.replaced(mainRegistry)
			all = append(all, address)
		}
		parseSuperPOM(in)
		parsePyPI(in)
		unzip(in, superPOM.MatchString)
		for _, address := range all {
			checkRule(t, address)
		}
	})
}
