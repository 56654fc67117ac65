package registries

import (
	"slices"
	"strings"
	"testing"
)

func TestFilesHoldNoCredentials(t *testing.T) {
	files := machine(t)
	files["/home/me/.npmrc"] = "registry=https://u:sesame@a.example/x?token=sesame#sesame\n//a.example/:_authToken=sesame\n@s:registry=https://b.example/$sesame\n@t$(x):registry=https://b.example/"
	files["/etc/pip.conf"] = "[global]\nindex-url=https://u:sesame@a.example/simple\nproxy=http://u:sesame@p.example"
	files["/etc/uv/uv.toml"] = "[[index]]\nname='x'\nurl='https://u:sesame@a.example/simple'"
	files["/home/me/.cargo/config.toml"] = "[source.crates-io]\nreplace-with='a'\n[source.a]\nregistry='sparse+https://sesame@a.example/'\n[registry]\ntoken='sesame'"
	files["/home/me/.m2/settings.xml"] = "<settings><servers><server><password>sesame</password></server></servers><mirrors><mirror><id>m</id><mirrorOf>*</mirrorOf><url>https://u:sesame@a.example/</url></mirror></mirrors></settings>"
	files["/home/me/.gemrc"] = ":sources:\n- https://u:sesame@a.example/"
	list := discover(t, files, "GOPROXY=https://u:sesame@a.example/go?sesame,direct", "GOSUMDB=sum.example+1+k https://sesame@s.example", "GOPRIVATE=*.corp.example")
	got := map[string]string{}
	for _, f := range list.Files() {
		got[f.Path] = string(f.Data)
		if strings.Contains(string(f.Data), "sesame") {
			t.Errorf("%s holds a secret:\n%s", f.Path, f.Data)
		}
	}
	for p, want := range map[string]string{
		".npmrc": "registry=https://a.example/x\n", ".config/pip/pip.conf": "[global]\nindex-url = https://a.example/simple\n",
		".config/uv/uv.toml": "[[index]]\nname = \"x\"\nurl = \"https://a.example/simple\"\n",
		".cargo/config.toml": "[source.crates-io]\nreplace-with = \"configured\"\n\n[source.configured]\nregistry = \"sparse+https://a.example/\"\n\n",
		".gemrc":             "---\n:sources:\n- https://a.example/\n",
		".config/go/env":     "GOPROXY=https://a.example/go,direct\nGOSUMDB=sum.example+1+k https://s.example\nGOPRIVATE=*.corp.example\n",
	} {
		if got[p] != want {
			t.Errorf("%s: got %q, want %q", p, got[p], want)
		}
	}
	if !strings.Contains(got[".m2/settings.xml"], "<url>https://a.example/</url>") || !strings.Contains(got[".m2/settings.xml"], "<mirrorOf>*</mirrorOf>") {
		t.Errorf("%s", got[".m2/settings.xml"])
	}
}

func TestDefaultsNeedNoFiles(t *testing.T) {
	if files := discover(t, machine(t)).Files(); len(files) > 0 {
		t.Errorf("%s", files)
	}
}

// FuzzFiles: whatever stands in the settings, what is written for the inside names no host beyond the rules, and no secret.
func FuzzFiles(f *testing.F) {
	f.Add("registry=https://a.example/x", "[global]\nindex-url=https://u:p@b.example/%0a", "[[index]]\nname='x'\nurl='https://c.example/\"'")
	f.Add("@a b:registry=https://a.example/;x\n@c:registry=http://b.example:99/ü", "[install]\nfind-links=https://a.example https://b.example", "find-links=['https://d.example/\\\\']")
	f.Add("registry=https://a.example/${X}", "[global]\nextra-index-url:\n  https://a.example\n  https://b.example", "index-url='https://[::ffff:1.2.3.4]/'")
	f.Add("", "", "Ahttps://[::1.0.0.0]/$")
	f.Fuzz(func(t *testing.T, npm, pip, uv string) {
		first := discover(t, map[string]string{"/home/me/.npmrc": npm, "/etc/pip.conf": pip, "/etc/uv/uv.toml": uv, "/home/me/.gemrc": ":sources:\n- " + npm, "/home/me/.yarnrc": npm},
			"GOPROXY="+uv, "GOSUMDB=off")
		inside := map[string]string{"/home/me/.keep": ""}
		for _, file := range first.Files() {
			inside["/home/me/"+file.Path] = string(file.Data)
		}
		rules := first.Rules()
		again := discover(t, inside)
		for _, e := range again.Entries {
			if !slices.Contains(rules, e.Rule) && e.Scope != "checksums" || e.Credential {
				t.Errorf("inside %+v is new; outside there are %q", e, rules)
			}
		}
	})
}
