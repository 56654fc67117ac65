package native

import (
	"fmt"
	"math/rand/v2"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"coworker/enforce"
)

func sampleSpec() enforce.Spec {
	return enforce.Spec{
		Workspace: "/home/ada/work", Net: enforce.NetNone,
		Trees: []enforce.Tree{
			{Path: "/home/ada/work", Writable: true, Pins: []string{".git"}, Protected: []string{".git/config"}, Masks: []string{".env"}},
			{Path: "/srv", Writable: false},
			{Path: "/home/ada/work/docs", Writable: false},
			{Path: "/home/ada/note", Writable: true, File: true},
		},
		Identity:  enforce.Identity{UID: 1000, GID: 1000, Name: "ada", Home: "/home/ada"},
		HomeStore: "/home/ada/.cache/coworker/homes/k", CacheStore: "/home/ada/.cache/coworker/homes/k/cache/0", HomeDirs: []string{".cache", ".local/share"},
		HomeFiles:  []enforce.File{{Path: ".gitconfig", Data: []byte("[user]\n"), Mode: 0o644}},
		Caches:     []enforce.Cache{{Dir: "go/pkg/mod", Lower: "/home/ada/go/pkg/mod"}},
		Toolchains: []string{"/home/ada/.rustup/toolchains"},
		Etc:        []enforce.File{{Path: "passwd", Data: []byte("ada"), Mode: 0o644}}, EtcAllow: []string{"ssl/certs", "passwd"},
	}
}

// brief writes a step as one line, for comparison with what a person would expect.
func brief(s step) string {
	names := map[op]string{opFolder: "folder", opLink: "link", opFile: "file", opBind: "bind", opPrivate: "private", opDevpts: "devpts", opOverlay: "overlay", opTree: "tree"}
	out := names[s.op] + " " + s.target
	if s.source != "" && s.source != s.target {
		out += " from " + s.source
	}
	for _, f := range []struct {
		set  bool
		name string
	}{{s.readOnly, "ro"}, {s.device, "dev"}, {s.exec, "exec"}, {s.optional, "optional"}} {
		if f.set {
			out += " " + f.name
		}
	}
	return out
}

func TestPlan(t *testing.T) {
	var got []string
	for _, s := range plan(sampleSpec()) {
		got = append(got, brief(s))
	}
	want := strings.Split(strings.TrimSpace(`
bind /usr ro exec optional
bind /bin ro exec optional
bind /sbin ro exec optional
bind /lib ro exec optional
bind /lib32 ro exec optional
bind /lib64 ro exec optional
bind /libx32 ro exec optional
bind /opt ro exec optional
bind /nix ro exec optional
bind /gnu ro exec optional
bind /sys/devices/system/cpu ro optional
bind /sys/devices/system/node ro optional
bind /sys/kernel/mm/transparent_hugepage ro optional
folder /etc
file /etc/passwd
bind /etc/ssl/certs ro optional
link /etc/mtab from /proc/self/mounts
folder /dev
bind /dev/null dev
bind /dev/zero dev
bind /dev/full dev
bind /dev/random dev
bind /dev/urandom dev
bind /dev/tty dev
devpts /dev/pts dev
link /dev/ptmx from pts/ptmx
link /dev/fd from /proc/self/fd
link /dev/stdin from /proc/self/fd/0
link /dev/stdout from /proc/self/fd/1
link /dev/stderr from /proc/self/fd/2
folder /proc
folder /var
private /tmp exec
private /var/tmp exec
private /dev/shm
private /run
link /var/run from /run
folder /run/user
folder /run/user/1000
private /home/ada exec
bind /home/ada/.cache from home/.cache exec
bind /home/ada/.local/share from home/.local/share exec
overlay /home/ada/go/pkg/mod from /home/ada/go/pkg/mod exec optional
file /home/ada/.gitconfig
bind /home/ada/.rustup/toolchains ro exec optional
tree /srv ro exec
tree /home/ada/work exec
tree /home/ada/note exec
tree /home/ada/work/docs ro exec`), "\n")
	// An overlay has its own source as target; the line above shows none.
	for i := range want {
		want[i] = strings.Replace(want[i], "overlay /home/ada/go/pkg/mod from /home/ada/go/pkg/mod", "overlay /home/ada/go/pkg/mod", 1)
	}
	if !slices.Equal(got, want) {
		for i := range max(len(got), len(want)) {
			g, w := "", ""
			if i < len(got) {
				g = got[i]
			}
			if i < len(want) {
				w = want[i]
			}
			if g != w {
				t.Errorf("step %d: got %q, want %q", i, g, w)
			}
		}
	}
}

// TestPlanIsAValue: the same Spec gives the same plan, whatever the order of its trees.
func TestPlanIsAValue(t *testing.T) {
	s := sampleSpec()
	first := plan(s)
	if !reflect.DeepEqual(first, plan(s)) {
		t.Error("two plans differ")
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		random.Shuffle(len(s.Trees), func(a, b int) { s.Trees[a], s.Trees[b] = s.Trees[b], s.Trees[a] })
		seen := map[string]bool{}
		for _, st := range plan(s) {
			if st.op != opTree {
				continue
			}
			for p := range seen {
				if strings.HasPrefix(p, st.target+"/") {
					t.Fatalf("%s is attached over %s", st.target, p)
				}
			}
			seen[st.target] = true
			if tree := s.Trees[st.tree]; tree.Path != st.target || tree.Writable == st.readOnly {
				t.Fatalf("step %+v for tree %+v", st, tree)
			}
		}
		if len(seen) != len(s.Trees) {
			t.Fatalf("%d trees attached, %d wanted", len(seen), len(s.Trees))
		}
	}
}

// TestPlanIsNarrow: nothing of the host is writable but the trees and the private home's store, and
// devices work on the nodes alone.
func TestPlanIsNarrow(t *testing.T) {
	spec := sampleSpec()
	for _, s := range plan(spec) {
		if s.op == opBind && !s.readOnly && !s.device && !s.stored {
			t.Errorf("%s is writable", s.target)
		}
		if s.device && s.op != opDevpts && path.Dir(s.target) != "/dev" {
			t.Errorf("devices work on %s", s.target)
		}
		if s.op == opTree && s.readOnly == spec.Trees[s.tree].Writable {
			t.Errorf("%s is %v", s.target, s.readOnly)
		}
	}
}

func TestCheckSpec(t *testing.T) {
	if err := checkSpec(sampleSpec()); err != nil {
		t.Fatal(err)
	}
	cases := map[string]func(s *enforce.Spec){
		"another network":         func(s *enforce.Spec) { s.Net = "host" },
		"no network":              func(s *enforce.Spec) { s.Net = "" },
		"no home":                 func(s *enforce.Spec) { s.Identity.Home = "" },
		"relative home":           func(s *enforce.Spec) { s.Identity.Home = "home" },
		"the root as home":        func(s *enforce.Spec) { s.Identity.Home = "/" },
		"no store":                func(s *enforce.Spec) { s.HomeStore = "" },
		"store with dots":         func(s *enforce.Spec) { s.HomeStore = "/a/../b" },
		"tree at the root":        func(s *enforce.Spec) { s.Trees[0].Path = "/" },
		"tree with a final slash": func(s *enforce.Spec) { s.Trees[0].Path = "/a/" },
		"tree with two slashes":   func(s *enforce.Spec) { s.Trees[0].Path = "//a" },
		"tree with NUL":           func(s *enforce.Spec) { s.Trees[0].Path = "/a\x00b" },
		"relative toolchain":      func(s *enforce.Spec) { s.Toolchains = []string{"go"} },
		"relative cache":          func(s *enforce.Spec) { s.Caches[0].Lower = "go" },
	}
	for _, dir := range []string{"/proc", "/dev", "/sys", "/etc", "/run", "/dev/pts", "/dev/shm"} {
		cases["tree over "+dir] = func(s *enforce.Spec) { s.Trees[1].Path = dir }
	}
	for _, bad := range []string{"", ".", "..", "../x", "a/../../b", "a/..", "/a", "a/", "a//b", "./a", "a\x00b"} {
		q := fmt.Sprintf(" %q", bad)
		cases["pin"+q] = func(s *enforce.Spec) { s.Trees[0].Pins = []string{bad} }
		cases["protected"+q] = func(s *enforce.Spec) { s.Trees[0].Protected = []string{"ok", bad} }
		cases["mask"+q] = func(s *enforce.Spec) { s.Trees[0].Masks = []string{bad} }
		cases["masked folder"+q] = func(s *enforce.Spec) { s.Trees[3].MaskDirs = []string{bad} }
		cases["home folder"+q] = func(s *enforce.Spec) { s.HomeDirs = append(s.HomeDirs, bad) }
		cases["home file"+q] = func(s *enforce.Spec) { s.HomeFiles[0].Path = bad }
		cases["cache"+q] = func(s *enforce.Spec) { s.Caches[0].Dir = bad }
		cases["etc file"+q] = func(s *enforce.Spec) { s.Etc[0].Path = bad }
		cases["etc name"+q] = func(s *enforce.Spec) { s.EtcAllow = []string{bad} }
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			s := sampleSpec()
			change(&s)
			if err := checkSpec(s); err == nil {
				t.Error("it is accepted")
			}
		})
	}
}

// TestCheckSpecAllows strange names that are no way out.
func TestCheckSpecAllows(t *testing.T) {
	for _, good := range []string{"..a", "a..", "...", "a b", "a\nb", "a\xffb", "a\\b", "-rf", "a/..b"} {
		s := sampleSpec()
		s.Trees[0].Pins = []string{good}
		s.Trees[1].Path = "/" + good
		if err := checkSpec(s); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
}

func TestVisible(t *testing.T) {
	v := Visible(sampleSpec())
	for _, tt := range []struct {
		list []string
		want []string
		not  []string
	}{
		{v.ReadOnly, []string{"/usr", "/etc", "/srv", "/home/ada/work/docs", "/home/ada/.rustup/toolchains"}, []string{"/", "/home", "/home/ada/work", "/root"}},
		{v.ReadWrite, []string{"/tmp", "/home/ada", "/home/ada/work", "/home/ada/note"}, []string{"/", "/home", "/srv", "/usr", "/etc", "/dev"}},
		{v.Devices, []string{"/dev/null", "/dev/pts"}, []string{"/dev", "/dev/mem", "/dev/kmsg"}},
	} {
		for _, w := range tt.want {
			if !slices.Contains(tt.list, w) {
				t.Errorf("%s is missing in %q", w, tt.list)
			}
		}
		for _, n := range tt.not {
			if slices.Contains(tt.list, n) {
				t.Errorf("%s is in %q", n, tt.list)
			}
		}
	}
}
