package vm

import (
	"strings"
	"testing"

	"coworker/enforce"
	"coworker/enforce/redirect"
	"coworker/integration/vm/guest"
)

// TestLevelsCoverMatrix: a kernel without rows would be booted and not judged.
func TestLevelsCoverMatrix(t *testing.T) {
	for _, k := range Kernels() {
		for _, user := range everyone {
			checkRows(t, k, user)
		}
	}
	if _, err := Expected("2.6", "root", "native", enforce.NetNone); err == nil {
		t.Error("a kernel outside the table has a row")
	}
}

func checkRows(t *testing.T, k Kernel, user string) {
	t.Helper()
	backends := []enforce.BackendName{enforce.Native, enforce.Bare}
	if user == guest.Root {
		backends = append(backends, enforce.Container)
	}
	for _, backend := range backends {
		for _, net := range []enforce.NetMode{enforce.NetNone, enforce.NetAllowlist} {
			if _, err := Expected(k.Name, user, backend, net); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestParseLevelsRefuses(t *testing.T) {
	const row = `{"kernel":"6.1","user":"root","backend":"native","net":["none"],"level":"enforced","mechanisms":{}}`
	for text, in := range map[string]string{
		"two rows":       "[" + row + "," + row + "]",
		"perfect":        strings.Replace("["+row+"]", "enforced", "perfect", 1),
		"unknown wall":   strings.Replace("["+row+"]", "{}", `{"fs.raed":[]}`, 1),
		"unknown field":  strings.Replace("["+row+"]", "user", "usr", 1),
		"more than one":  "[" + row + "] []",
		"no mechanism":   strings.Replace("["+row+"]", "{}", `{"fs.read":[]}`, 1),
		"and yet":        strings.Replace(strings.Replace("["+row+"]", "enforced", "refused", 1), "{}", `{"env":["supervisor"]}`, 1),
		"levels.json":    "[",
		"none has two":   strings.Replace("["+row+"]", `["none"]`, `["none","none"]`, 1),
		"no network":     strings.Replace("["+row+"]", `["none"]`, `[]`, 1),
		"unknown net":    strings.Replace("["+row+"]", `["none"]`, `["most"]`, 1),
		`redirect ""`:    strings.Replace("["+row+"]", `["none"]`, `["none","allowlist"]`, 1),
		`redirect "by"`:  strings.Replace("["+row+"]", `["none"]`, `["allowlist"],"redirect":"by"`, 1),
		`redirect "nat"`: strings.Replace(strings.Replace("["+row+"]", "enforced", "refused", 1), `["none"]`, `["allowlist"],"redirect":"nat"`, 1),
	} {
		if _, err := parseLevels([]byte(in)); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: error %v, want %q", in, err, text)
		}
	}
}

func TestCompare(t *testing.T) {
	want := Expectation{Level: "enforced", Net: enforce.NetAllowlist, Redirect: redirect.ModeNAT, Mechanisms: map[enforce.Wall][]enforce.Mechanism{
		enforce.FSRead: {enforce.MountNS, enforce.Landlock}, enforce.Life: {enforce.PidNS},
	}}
	good := `{"level":"enforced","walls":{"fs.read":{"verified":true,"mechanisms":["landlock","mountns"]},
		"life":{"verified":true,"mechanisms":["pidns"]},"res":{"verified":false}},"kernel":"x",
		"probes":[{"name":"net.egress/proxy-connect","got":"works"},{"name":"net.egress/redirect","got":"works"}]}`
	for _, c := range []struct{ name, old, new, want string }{
		{"same", "", "", ""},
		{"lower level", `"level":"enforced"`, `"level":"partial"`, "level partial, want enforced"},
		{"higher level", `"level":"enforced"`, `"level":"hardened"`, "level hardened, want enforced"},
		{"mechanism lost", `"landlock",`, ``, "wall fs.read: mechanisms"},
		{"mechanism won", `["pidns"]`, `["pidns","cgroup.kill"]`, "wall life: mechanisms"},
		{"wall lost", `"life":{"verified":true`, `"life":{"verified":false`, "wall life: verified=false"},
		{"wall missing", `"life"`, `"proc"`, "wall life: verified=false"},
		{"wall won", `"res":{"verified":false}`, `"res":{"verified":true}`, "wall res: verified=true"},
		{"no redirect", `net.egress/redirect"`, `net.egress/redirects"`, `redirect "none", want "nat"`},
		{"broken redirect", `redirect","got":"works"`, `redirect","got":"broken"`, `redirect "none", want "nat"`},
		{"no network", `proxy-connect","got":"works"`, `proxy-connect","got":"inconclusive"`, `redirect "", want "nat"`},
		{"unknown wall", `"res"`, `"moat"`, "wall moat is not in the vocabulary"},
	} {
		t.Run(c.name, func(t *testing.T) {
			report, err := ParseReport([]byte(strings.Replace(good, c.old, c.new, 1)))
			if err != nil {
				t.Fatal(err)
			}
			diffs := strings.Join(Compare(want, report), "\n")
			if (c.want == "") != (diffs == "") || !strings.Contains(diffs, c.want) {
				t.Errorf("differences %q, want %q", diffs, c.want)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	refused := Expectation{Level: Refused}
	enforced := Expectation{Level: "enforced"}
	for _, c := range []struct {
		name string
		want Expectation
		got  Result
		ok   bool
	}{
		{"refused", refused, Result{Exit: 120, Stderr: []byte("error: x")}, true},
		{"refused without a word", refused, Result{Exit: 120}, false},
		{"broke instead of refusing", refused, Result{Exit: 125, Stderr: []byte("error: x")}, false},
		{"should refuse", refused, Result{Exit: 0}, false},
		{"died instead of refusing", refused, Result{Exit: -1, Signal: "SIGSEGV"}, false},
		{"agrees", enforced, Result{Stdout: []byte(`{"level":"enforced","walls":{"life":{}}}`)}, true},
		{"differs", enforced, Result{Stdout: []byte(`{"level":"partial","walls":{"life":{}}}`)}, false},
		{"no level", Expectation{Level: "direct"}, Result{Stdout: []byte(`{"walls":{"life":{}}}`)}, false},
		{"no report", enforced, Result{Exit: 125, Stderr: []byte("error: x")}, false},
	} {
		if diffs := Check(c.want, c.got); (len(diffs) == 0) != c.ok {
			t.Errorf("%s: %q", c.name, diffs)
		}
	}
}

func FuzzParseReport(f *testing.F) {
	f.Add([]byte(`{"level":"enforced","walls":{"life":{"verified":true}}}`))
	f.Add([]byte(`{"level":"enforced"}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := ParseReport(data); err == nil && len(Compare(Expectation{}, r)) == 0 {
			t.Errorf("%q equals an empty expectation", data)
		}
	})
}
