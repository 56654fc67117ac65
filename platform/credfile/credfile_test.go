package credfile

import (
	"fmt"
	"strings"
	"testing"

	"coworker/platform/secret"
)

func env(name string) (string, bool) {
	text, ok := map[string]string{"TOKEN": "token-from-env", "EMPTY": ""}[name]
	return text, ok
}

func npm(data []byte) (Result, error) { return ParseNPM(data, env) }

// text is a result in one line, values included.
func text(r Result) string {
	var out []string
	for _, c := range r.Found {
		out = append(out, fmt.Sprintf("%d %s%s %s %s=%s", c.Line, c.Host, c.Path, c.Scheme, c.User, c.Value.Reveal()))
	}
	for _, s := range r.Skipped {
		out = append(out, strings.TrimSpace(fmt.Sprintf("skip %d %s", s.Line, s.Host)))
	}
	return strings.Join(out, "; ")
}

type row struct{ name, in, want string }

func check(t *testing.T, parse func([]byte) (Result, error), rows []row) {
	t.Helper()
	for _, c := range rows {
		got, err := parse([]byte(c.in))
		if err != nil || text(got) != c.want {
			t.Errorf("%s:\n got %s\nwant %s\n%v", c.name, text(got), c.want, err)
		}
	}
}

func TestNPM(t *testing.T) {
	check(t, npm, []row{
		{"token", "//registry.npmjs.org/:_authToken=npm_token_1", "1 registry.npmjs.org bearer =npm_token_1"},
		{"spaces, quotes, CRLF", "; c\r\n\r\n //r.example/a/ : x = y\r\n//r.example/a/:_authToken = \"tok=en-abc\"\r\n", "4 r.example/a bearer =tok=en-abc"},
		{"port", "//r.example:8443/npm/:_authToken=token-abc", "1 r.example:8443/npm bearer =token-abc"},
		{"variable", "//r.example/:_authToken=${TOKEN}", "1 r.example bearer =token-from-env"},
		{"variable inside", "//r.example/:_authToken=x-${TOKEN}-y", "1 r.example bearer =x-token-from-env-y"},
		{"variable kept", `//r.example/:_authToken=long\${TOKEN}`, "1 r.example bearer =long${TOKEN}"},
		{"variable missing", "//r.example/:_authToken=${NOT_THERE}", "skip 1 r.example"},
		{"variable optional", "//r.example/:_authToken=${NOT_THERE?}", ""},
		{"pair", "//r.example/:_auth=YWRhOnBhc3M6d29yZA==", "1 r.example basic ada=pass:word"},
		{"pair is none", "//r.example/:_auth=bm9jb2xvbg==", "skip 1 r.example"},
		{"user and password", "//r.example/:username=ada\n//r.example/:_password=cGFzc3dvcmQx\n", "2 r.example basic ada=password1"},
		{"password is not base64", "//r.example/:username=ada\n//r.example/:_password=*", "skip 2 r.example"},
		{"password alone", "//r.example/:_password=cGFzc3dvcmQx", "skip 1 r.example"},
		{"token wins", "//r.example/:_auth=YWRhOnBhc3M6d29yZA==\n//r.example/:_authToken=token-abc", "2 r.example bearer =token-abc"},
		{"later line wins", "//r.example/:_authToken=token-abc\n//r.example/:_authToken=token-def", "2 r.example bearer =token-def"},
		{"two places", "//b.example/:_authToken=token-bbb\n//a.example/:_authToken=token-aaa", "1 b.example bearer =token-bbb; 2 a.example bearer =token-aaa"},
		{"without a registry", "_authToken=token-abc\n_auth=x", "skip 1; skip 2"},
		{"others", "registry=https://r.example/\n@s:registry=https://r.example/\n[x]\n//r.example/:always-auth=true", ""},
		{"too short", "//r.example/:_authToken=short", "skip 1 r.example"},
		{"token as user", "//r.example/:_auth=Z2hwXzAxMjM0NTY3ODlhYmNkZWZnaGlqMDEyMzQ1Njc4OWFiY2RlZjp4LW9hdXRoLWJhc2lj", "skip 1 r.example"},
	})
}

func TestPip(t *testing.T) {
	check(t, ParsePip, []row{
		{"index", "[global]\nindex-url = https://ada:pass%2Fword@pypi.example/root/simple/\n", "2 pypi.example/root basic ada=pass/word"},
		{"index at the top", "[install]\nINDEX_URL: https://ada:password@pypi.example:8443/simple", "2 pypi.example:8443 basic ada=password"},
		{"several", "[global]\nextra-index-url =\n  https://a:password-a@a.example/simple\n  # c\n\thttps://b:password-b@b.example/x\n", "3 a.example basic a=password-a; 5 b.example/x basic b=password-b"},
		{"one line", "[global]\nextra-index-url = https://a:password-a@a.example/ https://c.example/", "2 a.example basic a=password-a"},
		{"ends at the next key", "[global]\nindex-url = https://c.example/\nother =\n  https://a:password-a@a.example/", ""},
		{"plain", "[global]\nindex-url = http://a:password-a@a.example/", "skip 2 a.example"},
		{"user alone", "[global]\nindex-url = https://password-a@a.example/", "skip 2 a.example"},
		{"no URL", "[global]\nindex-url = https://a:%zz@a.example/", "skip 2"},
		{"nothing", "", ""},
	})
}

func TestNetrc(t *testing.T) {
	check(t, ParseNetrc, []row{
		{"lines", "machine a.example\n\tlogin ada\n\tpassword password-a\n", "1 a.example basic ada=password-a"},
		{"one line, several", "machine a.example login ada password password-a account x\nmachine b.example password password-b login b", "1 a.example basic ada=password-a; 2 b.example basic b=password-b"},
		{"quotes", `machine a.example login "a da" password "pass \"word\" #1"`, `1 a.example basic a da=pass "word" #1`},
		{"hash in a password", "machine a.example login ada password #password # c\n", "1 a.example basic ada=#password"},
		{"comments", "# machine x.example password password-x\nmachine a.example login ada password password-a", "2 a.example basic ada=password-a"},
		{"macro", "macdef init\nmachine x.example login x password password-x\n\nmachine a.example login ada password password-a", "4 a.example basic ada=password-a"},
		{"macro without end", "macdef init\nmachine x.example login x password password-x", ""},
		{"default", "default login ada password password-a", "skip 1"},
		{"no password", "machine a.example login ada", ""},
		{"before a machine", "login ada password password-a", ""},
		{"cut off", "machine", ""},
	})
}

func TestGit(t *testing.T) {
	check(t, ParseGit, []row{
		{"line", "https://ada:ghp-token@github.com\n", "1 github.com basic ada=ghp-token"},
		{"escapes, port, path", "\nhttps://a%40b:pass%3Aword@git.example:8443/team/x.git\r\n", "2 git.example:8443/team/x.git basic a@b=pass:word"},
		{"plain", "http://ada:password@git.example", "skip 1 git.example"},
		{"no password", "https://ada@git.example\nhttps://git.example", "skip 1 git.example"},
		{"smuggled line break", "https://ada:pass%0aword@git.example", "skip 1 git.example"},
		{"token as user", "https://a-token-here:x-oauth-basic@github.com", "skip 1 github.com"},
		{"no URL", "https://a:b c@git.example\n%", "skip 1; skip 2"},
	})
}

func TestGitFill(t *testing.T) {
	c, ok := ParseGitFill([]byte("protocol=https\nhost=git.example:8443\nusername=ada\npassword=pass=word\n"))
	if !ok || c.Host != "git.example:8443" || c.User != "ada" || c.Value.Reveal() != "pass=word" {
		t.Errorf("%v %+v", ok, c)
	}
	for _, in := range []string{"", "protocol=http\nhost=h\nusername=a\npassword=password", "protocol=https\nhost=h\nusername=a", "protocol=https\npassword=password"} {
		if c, ok := ParseGitFill([]byte(in)); ok {
			t.Errorf("%q gives %+v", in, c)
		}
	}
}

func TestBounds(t *testing.T) {
	many := strings.Repeat("https://ada:password@git.example\nhttps://git.example:x\n", maxFound+50)
	for name, parse := range map[string]func([]byte) (Result, error){"npm": npm, "pip": ParsePip, "netrc": ParseNetrc, "git": ParseGit} {
		if _, err := parse(make([]byte, MaxFile+1)); err == nil {
			t.Errorf("%s reads a file that is too large", name)
		}
		if _, err := parse([]byte("a\x00b")); err == nil {
			t.Errorf("%s reads a NUL byte", name)
		}
		r, err := parse([]byte(many))
		if err != nil || len(r.Found) > maxFound || len(r.Skipped) > maxFound {
			t.Errorf("%s: %d found, %d skipped, %v", name, len(r.Found), len(r.Skipped), err)
		}
	}
}

// fuzz checks what holds for every file: bounds, and that nothing but Value holds a value.
func fuzz(f *testing.F, parse func([]byte) (Result, error), seeds ...string) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := parse(data)
		if err != nil && len(r.Found)+len(r.Skipped) > 0 {
			t.Fatal("an error and a result")
		}
		if len(r.Found) > maxFound || len(r.Skipped) > maxFound {
			t.Fatal("out of bounds")
		}
		for _, c := range r.Found {
			if secret.CheckValue(c.Value) != nil || c.Line < 1 || strings.HasSuffix(c.Path, "/") {
				t.Fatalf("%+v", c)
			}
			if c.Scheme != secret.Basic && c.User != "" {
				t.Fatalf("a user of %s", c.Scheme)
			}
		}
	})
}

func FuzzNPM(f *testing.F) {
	fuzz(f, npm, "//r.example/a/:_authToken=${TOKEN}\n", "//r/:_auth=YWRhOnBhc3M6d29yZA==", "//r/:username=a\n//r/:_password=cGFzc3dvcmQx", `//r/:_authToken=\\${TOKEN}${A?}`)
}

func FuzzPip(f *testing.F) {
	fuzz(f, ParsePip, "[global]\nindex-url = https://ada:password@pypi.example/root/simple/\n", "extra-index-url:\n https://a:b@c https://d")
}

func FuzzNetrc(f *testing.F) {
	fuzz(f, ParseNetrc, "machine a login b password \"c\\\" d\"\n", "macdef x\n\n\nmachine a password #password", "default password x # y\r\n")
}

func FuzzGit(f *testing.F) {
	fuzz(f, ParseGit, "https://ada:password@github.com/x\n", "http://a:b@c\nhttps://%zz")
}
