package guard

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

// TestLoad: a kernel without it gets a reason in words. Where it loads, integration/vm shows what it keeps.
func TestLoad(t *testing.T) {
	g, err := Load()
	if err != nil {
		if !errors.Is(err, ErrUnsupported) || len(err.Error()) < 60 {
			t.Errorf("%v", err)
		}
		return
	}
	if hooks, _ := g.Hooks(); len(hooks) < 16 {
		t.Errorf("hooks %q", hooks)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}

// event is what a program would send.
func event(hook, why, tree uint32, names ...string) []byte {
	raw := make([]byte, eventSize)
	for at, v := range map[int]uint32{8: 1, 12: 42, 16: hook, 20: why, 24: tree, 28: uint32(len(names)), 32: 40, 36: 1} {
		binary.NativeEndian.PutUint32(raw[at:], v)
	}
	binary.NativeEndian.PutUint64(raw, uint64(time.Second))
	copy(raw[commAt:namesAt], "bash")
	for i, n := range names {
		copy(raw[namesAt+i*nameSize:namesAt+(i+1)*nameSize-1], n)
	}
	return raw
}

func TestParse(t *testing.T) {
	trees := []enforce.Tree{{Path: "/w"}}
	deep := slices.Repeat([]string{"d"}, eventNames)
	for _, c := range []struct {
		raw          []byte
		wall         enforce.Wall
		what, needed string
	}{
		{event(0, whyRefused, 0, ".mcp.json", "sub"), enforce.FSProtect, "/w/sub/.mcp.json", "--write /w/sub/.mcp.json"},
		{event(0, whyRefused|whyLeft, 0, "config", ".git"), enforce.FSProtect, "/w/.git/config", "--staged"},
		{event(14, whyHidden, 0, ".env"), enforce.FSHide, "/w/.env", "--read /w/.env"},
		{event(14, whyHidden, 1<<32-1, "alias", "root", "/"), enforce.FSHide, "/root/alias", "--read /root/alias"},
		{event(1, whyDeep, 1<<32-1, deep...), enforce.FSProtect, "…" + strings.Repeat("/d", eventNames), ""},
		{event(14, whyHidden, 0, strings.Repeat("x", 200)), enforce.FSHide, "/w/" + strings.Repeat("x", nameSize-1) + "…", "--read /w/" + strings.Repeat("x", nameSize-1) + "…"},
		{event(15, 0, 1<<32-1), enforce.NetLocal, "socket family 40 type 1", ""},
		{event(16, 0, 1<<32-1), enforce.NetLocal, "local socket of the host", ""},
	} {
		r, err := parse(c.raw, trees, time.Unix(100, 0))
		if err != nil || r.Wall != c.wall || r.What != c.what || r.Needed != c.needed || r.Comm != "bash" || r.Pid != 42 || !r.Time.Equal(time.Unix(101, 0)) {
			t.Errorf("%+v, %v; want %s %q %q", r, err, c.wall, c.what, c.needed)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(event(0, 2, 0, "a"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := parse(raw, []enforce.Tree{{Path: "/w"}}, time.Time{})
		if err == nil && (len(r.What) > 4096 || r.Hook == "") {
			t.Errorf("%d bytes of a path, hook %q", len(r.What), r.Hook)
		}
	})
}

func TestMountsBelow(t *testing.T) {
	table := "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:5 / /w/a\\040b rw - tmpfs x rw\n3 1 0:6 / /w rw - tmpfs x rw\n4 1 0:7 / /wx/y rw - tmpfs x rw\nbroken\n"
	if got := mountsBelow(table, "/w"); !slices.Equal(got, []string{"/w/a b"}) {
		t.Errorf("%q", got)
	}
}

// TestGroup: only a control group of version 2 that is not the root has an id.
func TestGroup(t *testing.T) {
	for _, dir := range []string{t.TempDir(), "/no/such/folder"} {
		if id, _, err := groupID(dir); err == nil {
			t.Errorf("%q has the id %d", dir, id)
		}
	}
	if own, other, err := netOf(os.Getpid()); err != nil || own == 0 || other {
		t.Errorf("own network namespace: %d, %v, %v", own, other, err)
	}
}

// TestAsk: the layout is right if the kernel has something to say about the hook, or about the right.
func TestAsk(t *testing.T) {
	if err := ask(); err != nil && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EINVAL) {
		t.Errorf("%v", err)
	}
}
