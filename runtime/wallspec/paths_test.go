package wallspec

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"coworker/enforce"
	"coworker/platform/config"
)

func TestWorkspace(t *testing.T) {
	m := newMachine("/home/ada/we\nird\xff", "/var/www/x", "/home/ada/.cache/coworker/homes/k")
	m.link("/home/ada/loop", "loop2")
	m.link("/home/ada/loop2", "loop")
	m.link("/home/ada/p", "src/./proj/../proj")
	m.link("/home/ada/root", "/")
	m.file("/home/ada/f", "", 1000)
	m["/home/ada/secret"] = node{mode: fs.ModeDir}
	tests := []struct{ name, cwd, named, want, wantErr string }{
		{"plain", "/home/ada/src/proj", "", "/home/ada/src/proj", ""},
		{"link", "/home/ada/p", "", "/home/ada/src/proj", ""},
		{"odd bytes", "/home/ada/we\nird\xff", "", "/home/ada/we\nird\xff", ""},
		{"relative name", "/home/ada", "src/../src/proj/", "/home/ada/src/proj", ""},
		{"var", "/var/www/x", "", "/var/www/x", ""},
		{"root", "/", "", "", `"/" is the home folder, or holds it`},
		{"root by link", "/home/ada/root", "", "", "or holds it"},
		{"home", "/home/ada", "", "", "is the home folder"},
		{"above home", "/home", "", "", "or holds it"},
		{"system", "/usr/bin", "", "", "belongs to the system"},
		{"etc", "/etc", "", "", "belongs to the system"},
		{"boot", "/boot", "", "", "belongs to the system"},
		{"run", "/run", "", "", "belongs to the system"},
		{"tmp", "/tmp", "", "", "shared by many"},
		{"other home", "/root", "", "", "shared by many"},
		{"proc", "/proc/1", "", "", "interface to the kernel"},
		{"proc named", "/home/ada", "/proc/1", "", "interface to the kernel"},
		{"dev named", "/home/ada", "/dev", "", "interface to the kernel"},
		{"home named", "/tmp", "/home/ada", "/home/ada", ""},
		{"root named", "/tmp", "/", "/", ""},
		{"usr named", "/tmp", "/usr/bin", "/usr/bin", ""},
		{"missing", "/tmp", "/nowhere/x", "", `"/nowhere/x" does not exist`},
		{"loop", "/home/ada/loop", "", "", "loop"},
		{"file", "/tmp", "/home/ada/f", "", "is not a folder"},
		{"below file", "/tmp", "/home/ada/f/x", "", "is not a folder"},
		{"nul", "/tmp", "/a\x00b", "", "NUL"},
		{"long", "/tmp", "/" + strings.Repeat("a", 5000), "", "longer than"},
		{"newline is quoted", "/tmp", "/no\nwhere", "", `"/no\nwhere" does not exist`},
		{"own state", "/tmp", "/home/ada/.cache/coworker/homes/k", "", "coworker's own folder"},
		{"own config", "/tmp", "/home/ada/.config/coworker", "", "coworker's own folder"},
		{"unknown cwd", "", "x", "", "current folder is unknown"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := m.host(1000)
			h.Cwd = tt.cwd
			req := Request{Workspace: tt.named, Write: true}
			if tt.wantErr != "" {
				wantError(t, req, h, tt.wantErr)
				return
			}
			if p := mustBuild(t, req, h); p.Spec.Workspace != tt.want || p.Spec.Trees[0].Path != tt.want || !p.Spec.Trees[0].Writable {
				t.Fatalf("workspace %q, trees %+v", p.Spec.Workspace, p.Spec.Trees)
			}
		})
	}
}

// Even where a person names the whole home or machine, a session must not reach what governs it.
func TestOwnFoldersStayHidden(t *testing.T) {
	for _, ws := range []string{"/home/ada", "/"} {
		p := mustBuild(t, Request{Workspace: ws, Write: true}, newMachine().host(1000))
		tree := p.Spec.Trees[0]
		for _, own := range []string{"/home/ada/.config/coworker", "/home/ada/.local/state/coworker", "/home/ada/.cache/coworker"} {
			if !slices.Contains(tree.MaskDirs, relative(own, ws)) {
				t.Errorf("%s: %s is visible: %q", ws, own, tree.MaskDirs)
			}
		}
		if pin := relative("/home/ada/.config", ws); !slices.Contains(tree.Pins, pin) {
			t.Errorf("%s: %s can be renamed away", ws, pin)
		}
		if p.Spec.Identity.Home != substituteHome || envOf(p)["HOME"] != substituteHome {
			t.Errorf("%s: the private home would be made in the real one", ws)
		}
	}
	m := newMachine()
	delete(m, "/home/ada/.config/coworker")
	e := wantError(t, Request{Workspace: "/home/ada", Write: true}, m.host(1000), "does not exist yet")
	if !strings.Contains(e.Hint(), "sandbox setup") {
		t.Error("no hint")
	}
	m.dir("/home/ada/dots/coworker", 1000)
	delete(m, "/home/ada/.config")
	m.link("/home/ada/.config", "dots")
	wantError(t, Request{Workspace: "/home/ada", Write: true}, m.host(1000), "symbolic link on the way")
	wantError(t, Request{WritePaths: []string{"/home/ada/.cache/coworker"}}, newMachine().host(1000), "own folder")
	wantError(t, Request{ReadPaths: []string{"/home/ada/.local/state/coworker"}}, newMachine().host(1000), "own folder")
}

func show(trees []enforce.Tree) string {
	var out []string
	for _, t := range trees {
		mode := "r"
		if t.Writable {
			mode = "w"
		}
		out = append(out, fmt.Sprintf("%s:%s pins%v masks%v dirs%v", mode, t.Path, t.Pins, t.Masks, t.MaskDirs))
	}
	return strings.Join(out, "\n")
}

func TestPrecedence(t *testing.T) {
	m := newMachine("/home/ada/src/proj/a/b/c", "/data/x/y", "/data/k")
	m.file("/home/ada/src/proj/a/.env", "", 1000)
	m.file("/home/ada/src/proj/a/k.txt", "", 1000)
	m["/data/sock"] = node{mode: fs.ModeSocket}
	ws := "/home/ada/src/proj"
	tests := []struct {
		name    string
		req     Request
		want    string
		wantErr string
	}{
		{"hide in writable", Request{Write: true, HidePaths: []string{"a/b", "a/k.txt"}}, "w:" + ws + " pins[a] masks[a/k.txt] dirs[a/b]", ""},
		{"hide inside hide", Request{HidePaths: []string{"a", "a/b"}}, "r:" + ws + " pins[] masks[] dirs[a]", ""},
		{"hide beats write and read", Request{WritePaths: []string{"/data/x"}, ReadPaths: []string{"/data/x"}, HidePaths: []string{"/data/x"}}, "r:" + ws + " pins[] masks[] dirs[]", ""},
		{"write beats read", Request{WritePaths: []string{"/data/x"}, ReadPaths: []string{"/data/x/."}}, "r:" + ws + " pins[] masks[] dirs[]\nw:/data/x pins[] masks[] dirs[]", ""},
		{"longest wins, inner read", Request{Write: true, ReadPaths: []string{"a/b"}}, "w:" + ws + " pins[a] masks[] dirs[]\nr:" + ws + "/a/b pins[] masks[] dirs[]", ""},
		{"longest wins, inner write", Request{WritePaths: []string{"a/b"}}, "r:" + ws + " pins[a] masks[] dirs[]\nw:" + ws + "/a/b pins[] masks[] dirs[]", ""},
		{"longest wins, hidden above", Request{HidePaths: []string{"/data"}, ReadPaths: []string{"/data/x/y"}}, "r:" + ws + " pins[] masks[] dirs[]\nr:/data/x/y pins[] masks[] dirs[]", ""},
		{"redundant", Request{ReadPaths: []string{"a", "/data", "/data/x"}}, "r:" + ws + " pins[] masks[] dirs[]\nr:/data pins[] masks[] dirs[]", ""},
		{"workspace in a tree", Request{Write: true, ReadPaths: []string{"/home/ada/src"}}, "w:" + ws + " pins[] masks[] dirs[]\nr:/home/ada/src pins[] masks[] dirs[]", ""},
		{"three deep", Request{Write: true, ReadPaths: []string{"a"}, WritePaths: []string{"a/b/c"}, HidePaths: []string{"a/k.txt"}},
			"w:" + ws + " pins[] masks[] dirs[]\nr:" + ws + "/a pins[b] masks[k.txt] dirs[]\nw:" + ws + "/a/b/c pins[] masks[] dirs[]", ""},
		{"settings hide", Request{Config: config.Config{Exec: config.Exec{Hide: listPaths("/data/x", "/nowhere")}}, ReadPaths: []string{"/data"}},
			"r:" + ws + " pins[] masks[] dirs[]\nr:/data pins[] masks[] dirs[x]", ""},
		{"settings hide beats a flag", Request{Config: config.Config{Exec: config.Exec{Hide: listPaths("/data/x")}}, ReadPaths: []string{"/data/x"}},
			"r:" + ws + " pins[] masks[] dirs[]", ""},
		{"scan exclude", Request{Config: config.Config{Scan: config.Scan{Exclude: listPaths(ws + "/a")}}, Write: true}, "w:" + ws + " pins[] masks[] dirs[a]", ""},
		{"visible in hidden in visible", Request{HidePaths: []string{"a"}, ReadPaths: []string{"a/b"}}, "", "which --hide hides"},
		{"hidden workspace", Request{HidePaths: []string{"."}}, "", "nothing would be left"},
		{"hide missing", Request{HidePaths: []string{"nope"}}, "", "does not exist"},
		{"read missing", Request{ReadPaths: []string{"/nope"}}, "", "does not exist"},
		{"read nul", Request{ReadPaths: []string{"/a\x00"}}, "", "NUL"},
		{"read empty", Request{ReadPaths: []string{""}}, "", "empty"},
		{"read socket", Request{ReadPaths: []string{"/data/sock"}}, "", "neither a folder nor a regular file"},
		{"read proc", Request{ReadPaths: []string{"/proc/1"}}, "", "interface to the kernel"},
		{"hide system", Request{HidePaths: []string{"/usr/bin"}}, "", "every session sees"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.wantErr != "" {
				wantError(t, tt.req, m.host(1000), tt.wantErr)
				return
			}
			if got := show(mustBuild(t, tt.req, m.host(1000)).Spec.Trees); got != tt.want {
				t.Fatalf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

func TestLifted(t *testing.T) {
	ws := "/home/ada/src/proj"
	m := newMachine()
	m.file(ws+"/.git/hooks/pre-commit", "", 1000)
	tests := []struct {
		name   string
		write  []string
		lifted []string
		trees  int
	}{
		{"present folder", []string{".git/hooks"}, []string{ws + "/.git/hooks"}, 1},
		{"below a protected folder", []string{".git/hooks/pre-commit"}, []string{ws + "/.git/hooks/pre-commit"}, 2},
		{"absent", []string{".mcp.json"}, []string{ws + "/.mcp.json"}, 1},
		{"folder around it lifts nothing", []string{".git"}, nil, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := mustBuild(t, Request{Write: true, WritePaths: tt.write}, m.host(1000))
			if !slices.Equal(p.Lifted, tt.lifted) || len(p.Spec.Trees) != tt.trees {
				t.Fatalf("lifted %q, trees %s", p.Lifted, show(p.Spec.Trees))
			}
		})
	}
	wantError(t, Request{WritePaths: []string{".mcp.json"}}, m.host(1000), "does not exist")            // read-only workspace
	wantError(t, Request{Write: true, WritePaths: []string{"new.txt"}}, m.host(1000), "does not exist") // nothing to lift
	// The settings trust folders; they do not lift.
	c := config.Config{Exec: config.Exec{Write: listPaths(ws+"/.git/hooks", ws)}}
	if p := mustBuild(t, Request{Config: c}, m.host(1000)); len(p.Lifted) != 0 {
		t.Fatalf("settings lifted %q", p.Lifted)
	}
}

func TestNamedFiles(t *testing.T) {
	m := newMachine()
	m.file("/home/ada/src/proj/.env", "", 1000)
	m.file("/home/ada/notes.txt", "", 1000)
	p := mustBuild(t, Request{ReadPaths: []string{".env", "/home/ada/notes.txt"}}, m.host(1000))
	if !slices.Equal(p.Summary.NamedSecrets, []string{"/home/ada/src/proj/.env"}) || len(p.Shown) != 2 {
		t.Fatalf("named %q, shown %q", p.Summary.NamedSecrets, p.Shown)
	}
	tree := p.Spec.Trees[0]
	AddFindings(&tree, Findings{Masks: []string{".env", "x/.env"}, Protected: []string{".git/hooks", "z"}, Pins: []string{"x"}}, []string{"/home/ada/src/proj/z"}, p.Shown)
	if !slices.Equal(tree.Masks, []string{"x/.env"}) || !slices.Equal(tree.Protected, []string{".git/hooks"}) {
		t.Fatalf("%+v", tree)
	}
}

func TestTrust(t *testing.T) {
	m := newMachine("/home/ada/src/pro")
	m.link("/home/ada/src/link", "/var")
	m.dir("/var/evil", 1000)
	trusts := func(p ...string) config.Config {
		return config.Config{Source: "c.toml", Exec: config.Exec{Write: listPaths(p...)}}
	}
	tests := []struct {
		name     string
		req      Request
		cwd      string
		writable bool
		reason   string
	}{
		{"nobody", Request{}, "", false, "nobody trusted"},
		{"-w", Request{Write: true}, "", true, "-w"},
		{"by path", Request{Config: trusts("~/src")}, "", true, `"~/src" is trusted in c.toml`},
		{"--ro overrides", Request{Config: trusts("~/src"), ReadOnly: true}, "", false, "--ro"},
		{"sibling", Request{Config: trusts("~/src/pro")}, "", false, "nobody"},
		{"a link below a trusted folder leads out", Request{Config: trusts("~/src")}, "/home/ada/src/link/evil", false, "nobody"},
		{"missing entry", Request{Config: trusts("/nowhere")}, "", false, "nobody"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := m.host(1000)
			if tt.cwd != "" {
				h.Cwd = tt.cwd
			}
			p := mustBuild(t, tt.req, h)
			s := p.Summary
			if s.Writable != tt.writable || p.Spec.Trees[0].Writable != tt.writable || !strings.Contains(s.Reason, tt.reason) || (s.Hint == "") != tt.writable {
				t.Fatalf("%+v", s)
			}
		})
	}
	wantError(t, Request{Write: true, ReadOnly: true}, m.host(1000), "contradict")
}

// Without privileges only the caller's own group can be mapped, whatever passwd(5) says.
func TestIdentityKeepsTheGroupOfNow(t *testing.T) {
	h := newMachine().host(1000)
	h.GID = 4243
	h.Cwd = "/home/ada/src/proj"
	want := enforce.Identity{UID: 1000, GID: 4243, Name: "ada", Home: "/home/ada"}
	if got := mustBuild(t, Request{}, h).Spec.Identity; got != want {
		t.Fatalf("got %+v, want %+v", got, want)
	}
}

func TestIdentity(t *testing.T) {
	m := newMachine()
	m.dir("/srv/rootown", 0)
	m.dir("/srv/nouser", 4242)
	tests := []struct {
		name    string
		uid     int
		cwd     string
		user    string
		want    enforce.Identity
		wantErr string
	}{
		{"self", 1000, "/home/ada/src/proj", "", enforce.Identity{UID: 1000, GID: 1000, Name: "ada", Home: "/home/ada"}, ""},
		{"self in a foreign folder", 1000, "/srv/rootown", "", enforce.Identity{UID: 1000, GID: 1000, Name: "ada", Home: "/home/ada"}, ""},
		{"root becomes the owner", 0, "/home/ada/src/proj", "", enforce.Identity{UID: 1000, GID: 1000, Name: "ada", Home: "/home/ada"}, ""},
		{"root in root's folder", 0, "/srv/rootown", "", enforce.Identity{Name: "root", Home: "/root"}, ""},
		{"root as somebody", 0, "/srv/rootown", "bob", enforce.Identity{UID: 1001, GID: 1001, Name: "bob", Home: "/home/bob"}, ""},
		{"owner without an entry", 0, "/srv/nouser", "", enforce.Identity{UID: 4242, GID: 4242, Name: "u4242", Home: "/home/u4242"}, ""},
		{"root insists", 0, "/home/ada/src/proj", "root", enforce.Identity{}, "only where root owns it"},
		{"self by name", 1000, "/home/ada/src/proj", "ada", enforce.Identity{UID: 1000, GID: 1000, Name: "ada", Home: "/home/ada"}, ""},
		{"cannot become", 1000, "/home/ada/src/proj", "bob", enforce.Identity{}, "cannot become"},
		{"cannot become root", 1000, "/srv/rootown", "root", enforce.Identity{}, "cannot become"},
		{"unknown", 0, "/srv/rootown", "eve\n", enforce.Identity{}, `no user "eve\n"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := m.host(tt.uid)
			h.Cwd = tt.cwd
			if tt.wantErr != "" {
				wantError(t, Request{User: tt.user}, h, tt.wantErr)
				return
			}
			p := mustBuild(t, Request{User: tt.user}, h)
			if p.Spec.Identity != tt.want {
				t.Fatalf("%+v", p.Spec.Identity)
			}
			store := "/home/ada/.cache/coworker/homes/"
			switch {
			case tt.uid == 0 && tt.want.UID == 0:
				store = "/root/.cache/coworker/homes/"
			case tt.uid == 0:
				store = fmt.Sprintf("/var/cache/coworker/%d/homes/", tt.want.UID)
			}
			if p.Spec.HomeStore != store+HomeKey(tt.cwd) {
				t.Fatalf("store %q", p.Spec.HomeStore)
			}
		})
	}
}

func TestCompleteSanitises(t *testing.T) {
	got := complete(User{UID: 7, Name: "a:b\nroot::0", Group: "g\n", Home: "/x:y", Shell: "/home/ada/sh"})
	if got.Name != "u7" || got.Home != "/home/u7" || got.Shell != "/bin/sh" || got.Group != "u7" {
		t.Fatalf("%+v", got)
	}
}
