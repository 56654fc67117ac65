package inject

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"coworker/netproxy/control"
	"coworker/netproxy/request"
)

const token = "ghp_0123456789abcdefghij"

func credential(name, path string, methods ...string) control.HostRule {
	return control.HostRule{Host: name, Port: 443, Path: path, Methods: methods, Secret: "github", Header: "Authorization", Value: "Bearer " + token}
}

func bare(name, path string, methods ...string) control.HostRule {
	return control.HostRule{Host: name, Port: 443, Path: path, Methods: methods}
}

func parse(t testing.TB, list ...control.HostRule) *Rules {
	t.Helper()
	r, err := ParseRules(list)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func ask(t testing.TB, r *Rules, method, target string, fields ...request.Field) Decision {
	h := host(t, "a.example")
	return r.Decide(h, 443, &request.Request{Method: method, Host: h, Port: 443, Target: target, Fields: fields})
}

func TestParseRulesRefuses(t *testing.T) {
	with := func(change func(*control.HostRule)) []control.HostRule {
		r := credential("a.example", "/repos")
		change(&r)
		return []control.HostRule{r}
	}
	for name, list := range map[string][]control.HostRule{
		"wildcard":           with(func(r *control.HostRule) { r.Host = "*.example" }),
		"address":            with(func(r *control.HostRule) { r.Host = "203.0.113.1" }),
		"no host":            with(func(r *control.HostRule) { r.Host = "" }),
		"no port":            with(func(r *control.HostRule) { r.Port = 0 }),
		"clear text":         with(func(r *control.HostRule) { r.Port = 80 }),
		"lower-case method":  with(func(r *control.HostRule) { r.Methods = []string{"get"} }),
		"CONNECT":            with(func(r *control.HostRule) { r.Methods = []string{"CONNECT"} }),
		"relative path":      with(func(r *control.HostRule) { r.Path = "repos" }),
		"dot segment":        with(func(r *control.HostRule) { r.Path = "/a/../b" }),
		"escape":             with(func(r *control.HostRule) { r.Path = "/a%41" }),
		"query":              with(func(r *control.HostRule) { r.Path = "/a?b" }),
		"framing":            with(func(r *control.HostRule) { r.Header = "Transfer-Encoding" }),
		"cookie":             with(func(r *control.HostRule) { r.Header = "Cookie" }),
		"Host":               with(func(r *control.HostRule) { r.Header = "Host" }),
		"header no token":    with(func(r *control.HostRule) { r.Header = "a b" }),
		"header underscore":  with(func(r *control.HostRule) { r.Header = "X_Key" }),
		"line feed":          with(func(r *control.HostRule) { r.Value = "Bearer " + token + "\nX: y" }),
		"NUL":                with(func(r *control.HostRule) { r.Value = "Bearer " + token + "\x00" }),
		"short":              with(func(r *control.HostRule) { r.Value = "Bearer 1234567" }),
		"short in Basic":     with(func(r *control.HostRule) { r.Value = "Basic b2F1dGgyOjEyMzQ1Njc=" }), // oauth2:1234567
		"long":               with(func(r *control.HostRule) { r.Value = strings.Repeat("x", maxValue+1) }),
		"value without name": with(func(r *control.HostRule) { r.Secret = "" }),
		"name without value": with(func(r *control.HostRule) { r.Value = "" }),
		"same path, method":  {credential("a.example", "/x", "GET"), bare("a.example", "/x/", "POST", "GET")},
		"same path, any":     {credential("a.example", "/x"), bare("a.example", "/x", "POST")},
		"paths by case":      {credential("a.example", "/x"), bare("a.example", "/X")},
		"too many":           make([]control.HostRule, maxRules+1),
	} {
		_, err := ParseRules(list)
		if err == nil {
			t.Errorf("%s: accepted", name)
		} else if strings.Contains(err.Error(), token) || strings.Contains(err.Error(), "1234567") {
			t.Errorf("%s: the error holds the value: %v", name, err)
		}
	}
}

func TestDecide(t *testing.T) {
	only := []control.HostRule{credential("a.example", "/repos/acme")}
	limited := []control.HostRule{credential("a.example", "/repos/acme"), bare("a.example", "/repos/acme/issues", "GET", "HEAD"), credential("a.example", "/repos/acme/issues", "POST")}
	for _, c := range []struct {
		rules          []control.HostRule
		method, target string
		allow, secret  bool
	}{
		{only, "GET", "/repos/acme", true, true},
		{only, "GET", "/repos/acme/", true, true},
		{only, "POST", "/repos/acme/x?q=/../y%2e%2e", true, true},
		{only, "GET", "/%72epos/acme/x", true, true},
		{only, "GET", "/repos/acme/@scope%2fname", true, true},
		{only, "GET", "/repos/acmeevil", true, false},
		{only, "GET", "/repos", true, false},
		{only, "GET", "/", true, false},
		{only, "GET", "/repos%2facme", false, false},
		{only, "GET", "/repos/acme%2fx", false, false},
		{only, "GET", "/REPOS/acme", false, false},
		{limited, "PUT", "/repos/acme/x", true, true},
		{limited, "GET", "/repos/acme/issues/1", true, false},
		{limited, "POST", "/repos/acme/issues/1", true, true},
		{limited, "PUT", "/repos/acme/issues", false, false},
		{limited, "GET", "/repos/acmeevil", false, false},
		{limited, "GET", "/", false, false},
		{[]control.HostRule{bare("a.example", "")}, "GET", "/a/../b", true, false},
		{[]control.HostRule{bare("a.example", "", "GET", "HEAD", "OPTIONS")}, "DELETE", "/", false, false},
	} {
		d := ask(t, parse(t, c.rules...), c.method, c.target)
		if d.Allow != c.allow || d.Secret != "" != c.secret || d.Value.IsZero() == c.secret || d.Reason == "" {
			t.Errorf("%s %s: %+v", c.method, c.target, d)
		}
	}
}

// ambiguousPaths are what corpus case 230 lists, and more.
var ambiguousPaths = []string{
	"/repos/acme/../x", "/repos/acme/%2e%2e/x", "/repos/acme/.%2E/x", "/repos/acme/%2e/x", "/repos/acme/..%2fx", "/repos//acme", "//repos",
	"/repos/acme/%2f%2fx", "/repos/acme;a=b/x", "/repos/acme/..;/x", "/repos/acme%3b/x", "/repos/acme\\..\\x", "/repos/acme%5c..",
	"/repos/acme%00", "/repos/acme%0a", "/repos/acme%", "/repos/acme%2", "/repos/acme%zz", "/repos/acme%252e", "/repos/acme%25", "/repos/acme%23",
	"/repos/acme%3fx", "/repos/acme#x", "/repos/acme/\xc3\xa9", "/repos/acme/%c3%a9", "/repos/acme/%c0%af", "/repos/acme/%ef%bc%8f", "/repos/acme./x",
	"/repos/acme%20/x", "/repos/acme/\x01", "/" + strings.Repeat("a", maxPath), "", "*", "repos",
}

func TestAmbiguousPathsAreRefused(t *testing.T) {
	for _, rules := range []*Rules{parse(t, credential("a.example", "/repos/acme")), parse(t, bare("a.example", "/repos"), bare("a.example", "/x", "GET"))} {
		for _, p := range ambiguousPaths {
			if d := ask(t, rules, "GET", p); d.Allow || len(d.Reason) > 400 {
				t.Errorf("%q: %+v", p, d)
			}
		}
	}
}

func TestOverridesAndMisdirection(t *testing.T) {
	r := parse(t, bare("a.example", "", "GET"))
	for _, name := range []string{"X-HTTP-Method-Override", "x_http_method_override", "X-Rewrite-URL"} {
		if d := ask(t, r, "GET", "/", request.Field{Name: name, Value: "DELETE"}); d.Allow {
			t.Errorf("%s: %+v", name, d)
		}
	}
	h := host(t, "a.example")
	for name, q := range map[string]*request.Request{
		"web socket": {Method: "GET", Host: h, Port: 443, Target: "/", Upgrade: true},
		"other host": {Method: "GET", Host: host(t, "b.example"), Port: 443, Target: "/"},
		"other port": {Method: "GET", Host: h, Port: 444, Target: "/"},
		"CONNECT":    {Method: "CONNECT", Host: h, Port: 443, Form: request.AuthorityForm},
		"absolute":   {Method: "GET", Host: h, Port: 443, Target: "/", Form: request.AbsoluteForm},
	} {
		if d := r.Decide(h, 443, q); d.Allow {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

func TestCredentialGoesNowhereElse(t *testing.T) {
	r := parse(t, credential("a.example", "/repos/acme", "GET"), bare("b.example", ""))
	segment := rapid.SampledFrom([]string{"repos", "acme", "acmeevil", "x", "%61cme", "acme%2fx", "..", "", "ACME"})
	rapid.Check(t, func(t *rapid.T) {
		at, port := host(nil2{}, rapid.SampledFrom([]string{"a.example", "b.example", "x.a.example", "aa.example"}).Draw(t, "host")), rapid.SampledFrom([]uint16{443, 444, 80}).Draw(t, "port")
		q := &request.Request{Method: rapid.SampledFrom([]string{"GET", "POST"}).Draw(t, "method"), Host: at, Port: port,
			Target: "/" + strings.Join(rapid.SliceOfN(segment, 0, 4).Draw(t, "segments"), "/")}
		d := r.Decide(at, port, q)
		sent := fmt.Sprint(d.Apply(nil))
		read, err := judgePath(q.Target)
		mine := at.Name() == "a.example" && port == 443 && q.Method == "GET" && err == nil &&
			(read.split == "/repos/acme" || strings.HasPrefix(read.split, "/repos/acme/"))
		if strings.Contains(sent, token) && !mine {
			t.Fatalf("%s %s:%d%s is sent the credential", q.Method, at, port, q.Target)
		}
		if strings.Contains(sent, token) != !d.Value.IsZero() || r.Opens(at, port) != (port == 443 && (at.Name() == "a.example" || at.Name() == "b.example")) {
			t.Fatalf("%+v", d)
		}
	})
}

// nil2 is a testing.TB for helpers that cannot fail on constants.
type nil2 struct{ testing.TB }

func (nil2) Helper() {}

func TestApply(t *testing.T) {
	r := parse(t, credential("a.example", "/in"), control.HostRule{Host: "a.example", Port: 443, Path: "/key", Secret: "key", Header: "X-Api-Key", Value: "0123456789"})
	sent := []request.Field{{Name: "authorization", Value: "mine"}, {Name: "X_API_KEY", Value: "mine"}, {Name: "Proxy-Authorization", Value: "mine"},
		{Name: "Accept-Encoding", Value: "gzip"}, {Name: "Range", Value: "bytes=0-3"}, {Name: "Sec-WebSocket-Extensions", Value: "permessage-deflate"}, {Name: "X-Other", Value: "kept"}}
	for path, want := range map[string]string{
		"/in":  "[{X-Other kept} {Accept-Encoding identity} {Authorization Bearer " + token + "}]",
		"/key": "[{X-Other kept} {Accept-Encoding identity} {X-Api-Key 0123456789}]",
		"/out": "[{authorization mine} {X_API_KEY mine} {X-Other kept} {Accept-Encoding identity}]",
	} {
		if got := fmt.Sprint(ask(t, r, "GET", path).Apply(sent)); got != want {
			t.Errorf("%s: %s", path, got)
		}
	}
	if got := (Decision{}).Apply(sent); got != nil {
		t.Errorf("a refusal sends %v", got)
	}
}

func TestValuesDoNotPrint(t *testing.T) {
	d := ask(t, parse(t, credential("a.example", "")), "GET", "/")
	if d.Value.reveal() != "Bearer "+token {
		t.Fatal("the control: the decision holds the value")
	}
	marshalled, err := json.Marshal(d)
	var logged strings.Builder
	slog.New(slog.NewJSONHandler(&logged, nil)).Info("x", "decision", d, "value", d.Value)
	printed := []string{string(marshalled), fmt.Sprint(err), logged.String(), d.Reason, d.Rule}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		printed = append(printed, fmt.Sprintf(verb, d.Value), fmt.Sprintf(verb, d))
	}
	for _, s := range printed {
		if strings.Contains(s, token) || strings.Contains(s, fmt.Sprintf("%x", token)) {
			t.Errorf("the value is in %s", s)
		}
	}
}

func FuzzJudgePath(f *testing.F) {
	for _, p := range append(slices.Clone(ambiguousPaths), "/a/b", "/a%2Fb?x", "/") {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, target string) {
		read, err := judgePath(target)
		if err != nil {
			return
		}
		for _, s := range strings.Split(read.split[1:], "/") {
			if s == "." || s == ".." || strings.ContainsAny(s, "\\;%?#\x00") {
				t.Fatalf("%q passes as %q", target, read.split)
			}
		}
		if strings.Contains(read.split, "//") || strings.ReplaceAll(read.opaque, string(rune(opaqueSlash)), "/") != read.split {
			t.Fatalf("%q passes as %q and %q", target, read.opaque, read.split)
		}
	})
}
