package native

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestMountPoints(t *testing.T) {
	const line = "36 35 98:0 /mnt1 %s rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n"
	for _, tt := range []struct{ name, text, want string }{
		{"plain", fmt.Sprintf(line, "/mnt2"), "/mnt2"},
		{"space", fmt.Sprintf(line, `/a\040b`), "/a b"},
		{"newline and tab", fmt.Sprintf(line, `/a\012b\011c`), "/a\nb\tc"},
		{"backslash", fmt.Sprintf(line, `/a\134040b`), `/a\040b`},
		{"hash", fmt.Sprintf(line, `/a\043b`), "/a#b"},
		{"bytes", fmt.Sprintf(line, "/a\xffb"), "/a\xffb"},
		{"escape at the end", fmt.Sprintf(line, `/a\0`), `/a\0`},
		{"no octal", fmt.Sprintf(line, `/a\999`), `/a\999`},
		{"octal over a byte", fmt.Sprintf(line, `/a\777`), `/a\777`},
		{"without optional fields", "36 35 98:0 / /m rw - ext3 x rw\n", "/m"},
		{"without newline", "36 35 98:0 / /m rw - ext3 x rw", "/m"},
		{"nothing", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			points, err := MountPoints(tt.text)
			if got := strings.Join(slices.Sorted(maps.Keys(points)), ","); err != nil || got != tt.want {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
	for _, bad := range []string{"36 35 98:0 /\n", "x 35 98:0 / /m rw - a b c\n", "36 -1 98:0 / /m rw - a b c\n", "\n"} {
		if points, err := MountPoints(bad); err == nil {
			t.Errorf("%q gives %v", bad, points)
		}
	}
}

func TestMountEntryHas(t *testing.T) {
	for _, tt := range []struct {
		options string
		flags   mountFlags
		want    bool
	}{
		{"rw,nosuid,nodev,noexec", mountFlags{}, true},
		{"rw,nodev,noexec", mountFlags{}, false},
		{"rw,nosuid,noexec", mountFlags{}, false},
		{"rw,nosuid,noexec", mountFlags{device: true}, true},
		{"rw,nosuid,nodev", mountFlags{}, false},
		{"rw,nosuid,nodev", mountFlags{exec: true}, true},
		{"rw,nosuid,nodev", mountFlags{exec: true, readOnly: true}, false},
		{"ro,nosuid,nodev", mountFlags{exec: true, readOnly: true}, true},
	} {
		if got := (mountEntry{options: strings.Split(tt.options, ",")}).has(tt.flags); got != tt.want {
			t.Errorf("%s with %+v: %v", tt.options, tt.flags, got)
		}
	}
}

// escape does what the kernel does to a path in mountinfo (seq_path, with " \t\n\\" escaped).
func escape(p string) string {
	var out strings.Builder
	for i := range len(p) {
		if strings.IndexByte(" \t\n\\", p[i]) >= 0 {
			fmt.Fprintf(&out, `\%03o`, p[i])
			continue
		}
		out.WriteByte(p[i])
	}
	return out.String()
}

func FuzzMountPoints(f *testing.F) {
	for _, p := range []string{"/a", "/a b", "/a\\040", "/\\", "/\xff", "/a\nb", "/a\u0085b", "/a\u00a0b", "/a\rb\vc\fd"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		// Whatever the text is: no panic.
		if _, err := MountPoints(p); err != nil && err.Error() == "" {
			t.Fatal("an error without words")
		}
		if strings.IndexByte(p, 0) >= 0 || p == "" {
			return
		}
		points, err := MountPoints("36 35 98:0 / " + escape(p) + " rw - ext3 x rw\n")
		if err != nil || !points[p] || len(points) != 1 {
			t.Fatalf("%q became %v, %v", p, points, err)
		}
	})
}
