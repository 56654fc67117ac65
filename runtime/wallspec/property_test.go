package wallspec

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"coworker/platform/config"
)

var propertyDirs = []string{"/d", "/d/a", "/d/a/b", "/d/a/b/c", "/d/e", "/home/ada/src/proj", "/home/ada/src/proj/x", "/home/ada/src/proj/x/y", "/home/ada/src"}

func drawRequest(t *rapid.T) (Request, Host) {
	dirs := rapid.SliceOfN(rapid.SampledFrom(propertyDirs), 0, 3)
	refused := slices.DeleteFunc(slices.Concat(injectionNames, socketNames, managedNames), func(n string) bool { return strings.HasSuffix(n, "*") })
	name := rapid.OneOf(rapid.SampledFrom(refused), rapid.SampledFrom(passed), rapid.SampledFrom([]string{"LD_X", "GIT_CONFIG_KEY_7", "MY", "OP_A", "BASH_FUNC_f%%", "A B", ""}))
	assign := rapid.Custom(func(t *rapid.T) string {
		return name.Draw(t, "name") + "=" + rapid.SampledFrom([]string{"inherited", ""}).Draw(t, "v")
	})
	req := Request{
		Write: rapid.Bool().Draw(t, "w"), ReadPaths: dirs.Draw(t, "read"), WritePaths: dirs.Draw(t, "write"), HidePaths: dirs.Draw(t, "hide"),
		Env: rapid.SliceOfN(name, 0, 2).Draw(t, "env"), EnvSecret: rapid.SliceOfN(name, 0, 2).Draw(t, "secret"),
		Profile: &Profile{Env: rapid.SliceOfN(name, 0, 1).Draw(t, "penv"), EnvSecret: rapid.SliceOfN(name, 0, 1).Draw(t, "psecret")},
	}
	for _, n := range rapid.SliceOfN(name, 0, 1).Draw(t, "config env") {
		req.Config.Exec.Env = append(req.Config.Exec.Env, config.Name(n))
	}
	return req, newMachine(propertyDirs...).host(1000, rapid.SliceOfN(assign, 0, 6).Draw(t, "environ")...)
}

// By no combination does the value of a refused variable come from the caller's environment.
func TestRefusedNamesNeverPass(t *testing.T) {
	refused := []string{"BASH_FUNC_f", "GIT_CONFIG_KEY_7", "COWORKER_X", "DYLD_X"}
	for _, n := range slices.Concat(injectionNames, socketNames, managedNames) {
		refused = append(refused, strings.Replace(n, "*", "X", 1))
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom(refused).Draw(t, "name")
		var req Request
		req.Profile = &Profile{}
		way := func(label string) bool { return rapid.IntRange(0, 3).Draw(t, label) == 0 }
		if way("--env") {
			req.Env = []string{n}
		}
		if way("--env-secret") {
			req.EnvSecret = []string{n}
		}
		if way("settings") {
			req.Config.Exec.Env = []config.Name{config.Name(n)}
		}
		if way("profile env") {
			req.Profile.Env = []string{n}
		}
		if way("profile secret") {
			req.Profile.EnvSecret = []string{n}
		}
		p, err := Build(req, newMachine().host(1000, n+"=inherited"))
		if err != nil {
			if _, ok := err.(*Error); !ok {
				t.Fatalf("%T %v", err, err)
			}
			return
		}
		if got := envOf(p)[n]; got == "inherited" {
			t.Fatalf("%s passed", n)
		}
	})
}

// A hidden path is in no tree, unless a longer rule shows something below it that no tree around it holds.
func TestHideWins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		req, h := drawRequest(t)
		req.Env, req.EnvSecret, req.Config.Exec.Env, req.Profile = nil, nil, nil, nil
		p, err := Build(req, h)
		if err != nil {
			return
		}
		for _, hid := range req.HidePaths {
			for _, tree := range p.Spec.Trees {
				if tree.Path == hid {
					t.Fatalf("%s is a tree", hid)
				}
			}
			tree, ok := innermostTree(p, hid)
			if !ok {
				continue
			}
			rel := relative(hid, tree)
			masked := false
			for _, x := range p.Spec.Trees {
				if x.Path == tree {
					masked = slices.ContainsFunc(x.MaskDirs, func(d string) bool { return within(rel, d) })
				}
			}
			if !masked {
				t.Fatalf("%s shows in %s\n%s", hid, tree, show(p.Spec.Trees))
			}
		}
	})
}

func innermostTree(p Plan, at string) (string, bool) {
	found := ""
	for _, x := range p.Spec.Trees {
		if within(at, x.Path) && len(x.Path) > len(found) {
			found = x.Path
		}
	}
	return found, found != ""
}

// The longest rule decides, and the order of flags does not matter.
func TestDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		req, h := drawRequest(t)
		a, errA := Build(req, h)
		turned := req
		for _, list := range []*[]string{&turned.ReadPaths, &turned.WritePaths, &turned.HidePaths} {
			*list = slices.Clone(*list)
			slices.Reverse(*list)
		}
		b, errB := Build(turned, h)
		if (errA == nil) != (errB == nil) || errA == nil && !reflect.DeepEqual(a, b) {
			t.Fatalf("%v\n%s\n%v\n%s", errA, show(a.Spec.Trees), errB, show(b.Spec.Trees))
		}
		if errA != nil {
			return
		}
		for _, tree := range a.Spec.Trees {
			want := slices.Contains(req.WritePaths, tree.Path) || tree.Path == a.Spec.Workspace && req.Write
			if tree.Writable != want {
				t.Fatalf("%s writable %v, want %v", tree.Path, tree.Writable, want)
			}
		}
	})
}

func FuzzFilters(f *testing.F) {
	f.Add([]byte("h ssh-rsa AAAA\nregistry=https://a/\nindex-url = https://b/\ndefault_toolchain = \"x\"\n"))
	f.Add([]byte("registry=https://a:b@c/\n@a:registry=https://${TOKEN}/\r\nindex-url=https://x/?a=b"))
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, out := range [][]byte{npmrc(in), pipConf(in)} {
			for _, line := range lines(out) {
				_, value, _ := strings.Cut(line, "=")
				if strings.ContainsAny(value, "@$?#") && strings.Contains(value, "//") && !publicURL(strings.TrimSpace(value)) {
					t.Fatalf("%q got through", line)
				}
			}
		}
		for _, line := range lines(knownHosts(in)) {
			if line != "" && len(strings.Fields(line)) > 4 {
				t.Fatalf("%q got through", line)
			}
		}
		rustup(in)
	})
}
