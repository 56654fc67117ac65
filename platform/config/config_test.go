package config

import (
	"errors"
	"io/fs"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

const full = `
level = "hardened"
backend = "native"
[exec]
write = ["~/src", "/srv/x"]
hide = ["~/src/keys"]
env = ["GOPROXY", "lower_case"]
[limits]
processes = 1_000
memory = "2GiB"
cpus = 1.5
open_files = 1024
file_size = 1048576
tmp = "1.5 GB"
[scan]
depth = 9
[sweep]
timeout = "1m30s"
[container]
apparmor = "p"
[cache]
share = false
age = "30d"
`

func TestParse(t *testing.T) {
	c, err := Parse("c.toml", []byte(full))
	if err != nil {
		t.Fatal(err)
	}
	no := false
	want := Config{Level: "hardened", Backend: "native",
		Exec:      Exec{Write: []Path{"~/src", "/srv/x"}, Hide: []Path{"~/src/keys"}, Env: []Name{"GOPROXY", "lower_case"}},
		Limits:    Limits{Processes: 1000, Memory: 2 << 30, CPUs: 1.5, OpenFiles: 1024, FileSize: 1 << 20, Tmp: 1_500_000_000},
		Container: Container{AppArmor: "p"},
		Scan:      Scan{Depth: 9}, Sweep: Sweep{Timeout: Duration(90 * time.Second)},
		Cache: Cache{Share: &no, Age: Duration(30 * 24 * time.Hour)}, Source: "c.toml"}
	if !reflect.DeepEqual(c, want) {
		t.Fatalf("got  %+v\nwant %+v", c, want)
	}
	back, err := Parse("c.toml", Render(c))
	if err != nil || !reflect.DeepEqual(back, want) {
		t.Fatalf("Render does not read back: %v\n%s", err, Render(c))
	}
}

func TestParseErrors(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"unknown top key", "\nlevle = \"enforced\"", `c.toml:2:1: unknown key "levle" (did you mean "level"?)`},
		{"unknown in table", "[exec]\nwrit = []", `c.toml:2:1: unknown key "exec.writ" (did you mean "exec.write"?)`},
		{"label with a space", "[container]\nselinux = \"a b\"", `label "a b" is longer than 255 bytes`},
		{"wrong table", "memory = \"1GiB\"", `(did you mean "limits.memory"?)`},
		{"unknown table", "[limit]\nx = 1", `unknown key "limit" (did you mean "limits"?)`},
		{"nothing near", "zzzzzzzz = 1", "c.toml:1:1: unknown key \"zzzzzzzz\"\n"},
		{"syntax", "[exec\n", "c.toml:1:6:"},
		{"duplicate", "level=\"partial\"\nlevel=\"enforced\"", "c.toml:2:"},
		{"type", "[exec]\nwrite = 3", "c.toml:2:9:"},
		{"bad level", "\n\nlevel = \"high\"", `c.toml:3:1: level: level "high" is none of`},
		{"bad backend", "backend = \"docker\"", `"docker" is none of`},
		{"size word", "[limits]\nmemory = \"much\"", `c.toml:2:10: limits.memory: size "much"`},
		{"empty level", "level = \"\"", "is none of"},
		{"inline", "limits = {memory = 0}", "c.toml:1:11: limits.memory"},
		{"size negative", "[limits]\nmemory = -1", "limits.memory: size"},
		{"size zero", "[limits]\nmemory = 0", "is not between 1 byte"},
		{"size huge", "[limits]\nmemory = \"99999999TiB\"", "is not between 1 byte"},
		{"size array", "[limits]\nmemory = [1]", "limits.memory"},
		{"count zero", "[limits]\nprocesses = 0", "not a whole number above zero"},
		{"count float", "[limits]\nprocesses = 1.5", "not a whole number"},
		{"cpus nan", "[limits]\ncpus = nan", "not a number of processors"},
		{"duration", "[sweep]\ntimeout = \"soon\"", `duration "soon" is not like`},
		{"duration negative", "[sweep]\ntimeout = \"-1s\"", "not between 1ms"},
		{"duration without unit", "[sweep]\ntimeout = 5", `c.toml:2:1: sweep.timeout: duration 5ns`},
		{"relative path", "[exec]\nwrite = [\"src\"]", `c.toml:2:1: exec.write: "src" is relative`},
		{"other home", "[exec]\nread = [\"~bob/x\"]", "is relative"},
		{"nul path", "[exec]\nread = [\"/a\\u0000b\"]", "NUL"},
		{"trust all", "[exec]\nwrite = [\"/usr/..\"]", "every folder of the machine"},
		{"bad name", "[exec]\nenv = [\"A=B\"]", `"A=B" is not the name of a variable`},
		{"not utf-8", "level = \"\xff\"", "c.toml:1:"},
		{"too long", strings.Repeat("#\n", MaxBytes), "more than 65536 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("c.toml", []byte(tt.in))
			if err == nil || !strings.Contains(err.Error()+"\n", tt.want) {
				t.Fatalf("error = %v\nwant %q", err, tt.want)
			}
			var e *Error
			if !errors.As(err, &e) || e.File != "c.toml" {
				t.Fatalf("%T is not an *Error with the file", err)
			}
		})
	}
}

func TestAllUnknownKeysAreListed(t *testing.T) {
	_, err := Parse("c.toml", []byte("a1 = 1\nb2 = 2\n[exec]\nc3 = 3"))
	for _, want := range []string{":1:1:", ":2:1:", ":4:1:"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error = %v, want %s", err, want)
		}
	}
}

func TestProject(t *testing.T) {
	user := Config{Level: "partial", Limits: Limits{Memory: 4 << 30}}
	tests := []struct {
		name, in, wantErr string
		check             func(Config) bool
	}{
		{"lower", "[limits]\nmemory = \"1GiB\"", "", func(c Config) bool { return c.Limits.Memory == 1<<30 }},
		{"ceiling", "[limits]\nprocesses = 10", "", func(c Config) bool { return c.Limits.Processes == 0 && c.Ceiling.Processes == 10 }},
		{"higher", "[limits]\nmemory = \"8GiB\"", "p.toml:2:1: limits.memory: 8GiB is weaker than 4GiB", nil},
		{"level up", "level = \"hardened\"", "", func(c Config) bool { return c.Level == "hardened" }},
		{"level down", "level = \"direct\"", "level: direct is weaker than partial", nil},
		{"hide", "[exec]\nhide = [\"keys/./prod\"]", "", func(c Config) bool {
			return len(c.Exec.Hide) == 1 && c.Exec.Hide[0] == "/p/keys/prod"
		}},
		{"hide outside", "[exec]\nhide = [\"a/../../x\"]", "is not inside the project", nil},
		{"hide absolute", "[exec]\nhide = [\"/etc\"]", "is not inside the project", nil},
		{"write", "[exec]\nwrite = [\"~/\"]", `p.toml:2:1: "exec.write" is for the settings of a person`, nil},
		{"read", "[exec]\nread = [\"/\"]", "can only tighten", nil},
		{"env", "[exec]\nenv = [\"LD_PRELOAD\"]", "can only tighten", nil},
		{"scan", "[scan]\nexclude = [\"/x\"]", "can only tighten", nil},
		{"unknown", "[exec]\nhid = []", `did you mean "exec.hide"?`, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var c Config
			p, err := ParseProject("p.toml", []byte(tt.in))
			if err == nil {
				c, err = Tighten(user, p, "/p")
			}
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("error = %v, want %q", err, tt.wantErr)
				}
				return
			}
			if err != nil || !tt.check(c) {
				t.Fatalf("got %+v, %v", c, err)
			}
		})
	}
	if _, err := Tighten(Config{}, Project{Level: "partial"}, "/p"); err == nil {
		t.Error("a project weakened the default level")
	}
}

// The table of Render must name every key, or a person never learns of it.
func TestRenderIsComplete(t *testing.T) {
	text := string(Render(Config{}))
	var uncommented strings.Builder
	for _, line := range strings.SplitAfter(text, "\n") {
		if strings.Contains(line, " = ") && strings.HasPrefix(line, "# ") && !strings.HasPrefix(line, "# Sizes") {
			line = line[2:]
		}
		uncommented.WriteString(line)
	}
	c, err := Parse("c.toml", []byte(uncommented.String()))
	if err != nil {
		t.Fatalf("an example is not valid: %v\n%s", err, uncommented.String())
	}
	var walk func(v reflect.Value, name string)
	walk = func(v reflect.Value, name string) {
		for i := range v.NumField() {
			f := v.Type().Field(i)
			switch tag := f.Tag.Get("toml"); {
			case tag == "-":
			case f.Type.Kind() == reflect.Struct:
				walk(v.Field(i), name+tag+".")
			case v.Field(i).IsZero():
				t.Errorf("%s%s is missing from the table", name, tag)
			}
		}
	}
	walk(reflect.ValueOf(c), "")
}

func TestWrite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.toml")
	want := Config{Level: "enforced", Exec: Exec{Write: []Path{"~/a \"q\"\n\x7fé"}}, Limits: Limits{CPUs: 0.25}, Source: file}
	if err := Write(file, want); err != nil {
		t.Fatal(err)
	}
	got, err := Load(file)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, %v", got, err)
	}
	if err := Write(file, want); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("second Write: %v, want ErrExist", err)
	}
	if err := Write(file+"2", Config{Exec: Exec{Write: []Path{"relative"}}}); err == nil {
		t.Fatal("an invalid Config was written")
	}
}

func TestPathExpand(t *testing.T) {
	for in, want := range map[Path]string{"~": "/h", "~/": "/h", "~/a/../b": "/h/b", "/x/": "/x"} {
		if got := in.Expand("/h"); got != want {
			t.Errorf("%q = %q, want %q", in, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(full)
	f.Add("[exec]\nwrite=[\"~/a\"]\n[cache]\nshare=true")
	f.Add("a.b.c = [[{x=1}]]\n[[exec]]\n")
	f.Add("level = [\"a\"")
	f.Add(strings.Repeat("a=[", 200))
	f.Fuzz(func(t *testing.T, in string) {
		if p, err := ParseProject("p", []byte(in)); err == nil {
			if c, err := Tighten(Config{}, p, "/p"); err == nil && len(c.Exec.Write)+len(c.Exec.Read)+len(c.Exec.Env) > 0 {
				t.Fatalf("a project file widened: %+v", c)
			}
		}
		c, err := Parse("f", []byte(in))
		if err != nil {
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("%T %v is not an *Error", err, err)
			}
			return
		}
		back, err := Parse("f", Render(c))
		if err != nil || len(back.Exec.Write) != len(c.Exec.Write) || back.Limits != c.Limits || back.Level != c.Level {
			t.Fatalf("does not read back: %v\n%s", err, Render(c))
		}
	})
}
