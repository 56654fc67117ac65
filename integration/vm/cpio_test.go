package vm

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// readCPIO is written from the format's description, apart from the writer.
func readCPIO(t *testing.T, data []byte) []string {
	t.Helper()
	var entries []string
	take := func(n int) string {
		if n > len(data) {
			t.Fatalf("archive ends %d bytes early", n-len(data))
		}
		s := string(data[:n])
		data = data[n:]
		return s
	}
	total := len(data)
	align := func() { take(-(total - len(data)) & 3) }
	for {
		if magic := take(6); magic != "070701" {
			t.Fatalf("magic %q", magic)
		}
		var field [13]uint64
		for i := range field {
			v, err := strconv.ParseUint(take(8), 16, 32)
			if err != nil {
				t.Fatal(err)
			}
			field[i] = v
		}
		name := take(int(field[11]))
		align()
		body := take(int(field[6]))
		align()
		if name == "TRAILER!!!\x00" {
			if len(data) != 0 {
				t.Errorf("%d bytes after the trailer", len(data))
			}
			return entries
		}
		entries = append(entries, fmt.Sprintf("%s %o %d:%d %q", strings.TrimSuffix(name, "\x00"), field[1], field[2], field[3], body))
	}
}

func TestCPIO(t *testing.T) {
	source := filepath.Join(t.TempDir(), "source")
	if err := os.WriteFile(source, []byte("from disk"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	c := newCPIOWriter(&out)
	for _, f := range []File{
		{Path: "/a", Mode: 0o644, Data: []byte("x")},
		{Path: "/d/e/f", Mode: fs.ModeSetuid | 0o755, UID: 4243, GID: 7, Data: []byte("12345")},
		{Path: "/d/link", Link: "../a"},
		{Path: "/tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777},
		{Path: "/d/s", Mode: 0o600, Source: source},
		{Path: "/d/empty", Mode: 0o400},
	} {
		if err := c.add(f); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`a 100644 0:0 "x"`, `d 40755 0:0 ""`, `d/e 40755 0:0 ""`, `d/e/f 104755 4243:7 "12345"`,
		`d/link 120777 0:0 "../a"`, `tmp 41777 0:0 ""`, `d/s 100600 0:0 "from disk"`, `d/empty 100400 0:0 ""`,
	}
	if got := readCPIO(t, out.Bytes()); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("archive:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestCPIORefuses(t *testing.T) {
	for _, path := range []string{"", "/", "rel", "/a/../b", "/a/", "//a", "/a\x00b"} {
		if err := newCPIOWriter(&bytes.Buffer{}).add(File{Path: path}); !errors.Is(err, errCPIOPath) {
			t.Errorf("path %q: error %v", path, err)
		}
	}
	c := newCPIOWriter(&bytes.Buffer{})
	for i, want := range []bool{true, false} {
		if err := c.add(File{Path: "/a/b"}); (err == nil) != want {
			t.Errorf("write %d of one path: %v", i, err)
		}
	}
	for _, source := range []string{t.TempDir(), filepath.Join(t.TempDir(), "absent")} {
		if err := c.add(File{Path: "/" + filepath.Base(source) + "x", Source: source}); err == nil {
			t.Errorf("source %s was accepted", source)
		}
	}
}
