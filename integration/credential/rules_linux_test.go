package credential

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRequestRules: methods and paths of an opened host, with a credential for a part of it.
func TestRequestRules(t *testing.T) {
	eachUser(t, func(t *testing.T, p *person) {
		l := newLent()
		p.must(t, l.api.value, "secrets", "set", "api", "--host", "ok.test", "--path", "/v1", "--methods", "GET,HEAD")
		p.want("ok.test", "")
		p.settings(t, "[net]\nrequests = [\"GET,HEAD ok.test/public\"]\n")
		p.try(t, l.all(), allow("ok.test"), []attempt{
			{"allowed", curl + "https://ok.test/public/x", "welcome GET /public/x", "none", ""},
			{"allowed, the path itself", curl + "https://ok.test/public?q=/../secret", "welcome GET /public", "none", ""},
			{"another method", curl + "-d a=b https://ok.test/public/x", "the method POST is not among those of the rule for /public", "", ""},
			{"another path", curl + "https://ok.test/secret", "no rule of the host covers the path", "", ""},
			{"a path that begins alike", curl + "https://ok.test/publicity", "no rule of the host covers the path", "", ""},
			{"a method in disguise", curl + "-H 'X-HTTP-Method-Override: DELETE' https://ok.test/public/x", "asks for another request", "", ""},
			{"a path in disguise", curl + "-H 'X-Original-URL: /secret' https://ok.test/public/x", "asks for another request", "", ""},
			{"web socket", curl + "--http1.1 " + webSocketFields + "https://ok.test/public/socket", "a web socket to a host with rules for paths or methods", "", ""},
			{"a reason that git and npm show", "curl -sS -o /dev/null -w '%{http_code}' -X DELETE https://ok.test/public", "denied: net.egress: ok.test:443: the method DELETE is not among those of the rule for /public\nhint: net.requests = [\"DELETE ok.test:443/public\"] in the settings allows it", "", ""},
		})
		p.want("ok.test", "Bearer "+l.api.value)
		p.try(t, l.all(), allow("ok.test"), []attempt{
			{"with the credential", curl + "https://ok.test/v1/user", "welcome GET /v1/user", "ours", ""},
			{"its path, another method", curl + "-X PUT https://ok.test/v1/user", "HTTP/1.1 403", "", ""},
		})
	})
}

// TestPathsInDisguise are the spellings by which one path becomes another on its way (sandboxes.md 230).
func TestPathsInDisguise(t *testing.T) {
	eachUser(t, func(t *testing.T, p *person) {
		l := newLent()
		p.must(t, l.api.value, "secrets", "set", "api", "--host", "ok.test", "--path", "/public")
		p.settings(t, "[net]\nrequests = [\"GET ok.test/other\"]\n")
		paths := []string{
			"/public/../secret", "/public/./../secret", "/public/%2e%2e/secret", "/public/%2E./secret", "/public/..%2fsecret", "/public/%252e%252e/secret",
			"//public/x", "/public//x", "/./public", "/public;x/../secret", "/public;/x", "/public/..;/secret", "/public/%00", "/public/x%00.html", "/public/x%0d%0aX:%20y",
			`/public/..\secret`, "/public/..%5csecret", "/PUBLIC/x", "/Public", "/public%2f..%2fsecret", "/public%2fx", "/public/%c0%ae%c0%ae/secret", "/public/%e2%80%a5/secret",
			"/public/x%3fy", "/public/x%23y", "/public/...", "/public/x.", "/public/x%20", "/public/%", "/public/%zz", "/public/" + strings.Repeat("a", 5000), "/other/../public/x",
		}
		var script strings.Builder
		for _, path := range paths {
			script.WriteString("curl -sS --globoff --path-as-is -o /dev/null -w '%{http_code}\\n' '" + "https://ok.test" + path + "'\n")
		}
		e := p.exec(t, allow("ok.test"), "sh", "-c", script.String())
		codes := strings.Fields(e.out)
		if len(codes) != len(paths) {
			t.Fatal(e)
		}
		for i, code := range codes {
			if code != "403" && code != "400" {
				t.Errorf("%s is answered %s", paths[i], code)
			}
		}
		for _, r := range p.take() {
			t.Errorf("%s arrived", r.uri)
		}
		for _, text := range []string{`/public/\xc3\xa9`, `/public/\x80`, "/public#x", "/public/ x", "/public/\tx"} {
			p.write(t, filepath.Join(p.work, "raw.py"), rawClient)
			e := p.exec(t, allow("ok.test"), "/usr/bin/python3", "raw.py", "ok.test", "ok.test", "-", `GET `+text+` HTTP/1.1\r\nHost: ok.test\r\n\r\n`)
			if got := p.take(); len(got) > 0 || !strings.Contains(e.out, "HTTP/1.1 40") {
				t.Errorf("%q: %+v %s", text, got, e)
			}
		}
		if e := p.exec(t, allow("ok.test"), "curl", "-sSf", "https://ok.test/public/@scope%2Fname"); len(p.take()) != 1 {
			t.Errorf("an encoded slash in a name, as npm writes it: %s", e)
		}
	})
}

// TestWhichSessionsLend: a rule that leaves the bytes alone takes the credential out, and one for all hosts does not.
func TestWhichSessionsLend(t *testing.T) {
	eachUser(t, func(t *testing.T, p *person) {
		l := p.lend(t)
		p.must(t, l.api.value, "secrets", "set", "ask", "--host", "ask.test")
		p.try(t, l.all(), []string{"--allow", "ok.test=" + outside + "+raw"}, []attempt{{"raw", curl + "https://ok.test/x", "who are you?", "none", ""}})
		p.try(t, l.all(), allow("other.test"), []attempt{{"a host that is not allowed", curl + "https://ok.test/x", "no rule allows ok.test", "", ""}})
		p.try(t, l.all(), []string{"--net", "open"}, []attempt{
			{"open, an address that only a rule with its range opens", curl + "https://ok.test/x", "203.0.113", "", ""},
		})
		if e := p.exec(t, []string{"--net", "open"}, "curl", "-sS", "https://ask.test/echo"); !strings.Contains(e.out, "Authorization: Bearer ***") {
			t.Errorf("open: %s", e)
		}
		p.take()
		if e := p.exec(t, nil, "curl", "-sS", "https://ok.test/x"); e.code != 6 || len(p.take()) > 0 {
			t.Errorf("without a network: %s", e)
		}
	})
}

// TestRemovedSecret is gone in the next session, and a replaced one is the new one.
func TestRemovedSecret(t *testing.T) {
	eachUser(t, func(t *testing.T, p *person) {
		l, second := p.lend(t), newLent()
		p.try(t, l.all(), allow("ok.test"), []attempt{{"before", curl + "https://ok.test/x", "welcome", "ours", ""}})
		p.must(t, second.api.value, "secrets", "set", "api", "--host", "ok.test", "--replace")
		p.want("ok.test", "Bearer "+second.api.value)
		p.try(t, second.all(), allow("ok.test"), []attempt{{"replaced", curl + "https://ok.test/x", "welcome", "ours", ""}})
		p.must(t, "", "secrets", "remove", "api")
		p.try(t, second.all(), allow("ok.test"), []attempt{{"removed", curl + "https://ok.test/x", "who are you?", "none", ""}})
	})
}

// TestLostKey: a store that cannot be opened ends the command before it begins, with the reason.
func TestLostKey(t *testing.T) {
	eachUser(t, func(t *testing.T, p *person) {
		p.lend(t)
		keys, err := filepath.Glob(filepath.Join(p.home, ".*", "*", "coworker", "secrets.key"))
		if more, _ := filepath.Glob(filepath.Join(p.home, ".*", "coworker", "secrets.key")); len(more) > 0 {
			keys = append(keys, more...)
		}
		if err != nil || len(keys) != 1 {
			t.Fatalf("keys %q: %v", keys, err)
		}
		if err := os.Remove(keys[0]); err != nil {
			t.Fatal(err)
		}
		e := p.exec(t, allow("ok.test"), "touch", "ran")
		if e.code != 123 || e.report.Started != nil || !strings.Contains(e.err, "secrets.key") || !strings.Contains(e.err, "hint:") {
			t.Error(e)
		}
		if _, err := os.Stat(filepath.Join(p.work, "ran")); err == nil {
			t.Error("the command ran")
		}
		if e := p.exec(t, nil, "true"); e.code != 0 {
			t.Errorf("without a network no secret is needed: %s", e)
		}
	})
}
