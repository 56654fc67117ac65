package egress

import (
	"encoding/binary"
	"os"
	"strings"
	"testing"
	"time"

	"coworker/enforce"
)

// raw is news as a program sends it; about is family, type and port.
func raw(hook uint32, about [3]uint32, addr []byte, comm string) []byte {
	b := make([]byte, newsSize)
	order := binary.NativeEndian
	order.PutUint64(b, uint64(time.Second))
	for at, v := range map[int]uint32{8: hook, 12: 7, 16: about[0], 20: about[1], 24: 6, 28: about[2]} {
		order.PutUint32(b[at:], v)
	}
	copy(b[addrAt:commAt], addr)
	copy(b[commAt:], comm)
	return b
}

func TestParse(t *testing.T) {
	boot := time.Unix(1000, 0)
	private := []byte{10, 0, 0, 1}
	for _, tt := range []struct {
		name       string
		raw        []byte
		hook, what string
		needed     string
	}{
		{"tcp", raw(0, [3]uint32{2, 1, 443}, []byte{203, 0, 113, 9}, "curl"), "connect4", "tcp 203.0.113.9:443", "--allow 203.0.113.9:443"},
		{"private", raw(0, [3]uint32{2, 1, 443}, private, "curl"), "connect4", "tcp 10.0.0.1:443", ""},
		{"udp", raw(2, [3]uint32{2, 2, 53}, private, "dig"), "sendmsg4", "udp 10.0.0.1:53", ""},
		{"another type", raw(0, [3]uint32{2, 5, 1}, private, "x"), "connect4", "type 5 10.0.0.1:1", ""},
		{"server", raw(5, [3]uint32{10, 1, 80}, make([]byte, 16), "x"), "bind6", "server on [::]:80", ""},
		{"socket", raw(6, [3]uint32{40, 9, 0}, nil, "x"), "sock_create", "socket family 40 type 9 protocol 6", ""},
		{"packet", raw(7, [3]uint32{2, 0, 0}, private, ""), "skb", "packet to 10.0.0.1", ""},
		{"local", raw(8, [3]uint32{1, 1, 0}, nil, "x"), "connect_unix", "local socket", ""},
		{"program", append(raw(10, [3]uint32{0, 0, 0}, nil, "x"), append([]byte("/bin/x\x00y"), make([]byte, 248)...)...), "exec", "/bin/x", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := parse(tt.raw, boot)
			if err != nil {
				t.Fatal(err)
			}
			if r.Hook != tt.hook || r.What != tt.what || r.Needed != tt.needed || r.Pid != 7 || !r.Time.Equal(boot.Add(time.Second)) {
				t.Errorf("%+v", r)
			}
		})
	}
	for _, bad := range [][]byte{nil, make([]byte, newsSize-1), raw(11, [3]uint32{0, 0, 0}, nil, ""), raw(1<<31, [3]uint32{0, 0, 0}, nil, ""), raw(10, [3]uint32{0, 0, 0}, nil, "")} {
		if r, err := parse(bad, boot); err == nil {
			t.Errorf("%x was read as %+v", bad, r)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(raw(0, [3]uint32{2, 1, 443}, []byte{203, 0, 113, 9}, "curl"))
	f.Add(append(raw(10, [3]uint32{0, 0, 0}, nil, "x"), make([]byte, 256)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parse(b, time.Time{})
		if err == nil && (len(r.Comm) > 16 || len(r.What) > 256 || r.Source != enforce.SourceEBPF) {
			t.Errorf("%+v", r)
		}
	})
}

// TestPlaces looks for the places in the running kernel's types, and in broken ones.
func TestPlaces(t *testing.T) {
	types, err := readTypes(kernelTypes)
	if err != nil {
		t.Fatal(err)
	}
	found, err := findPlaces(types)
	if err != nil {
		t.Fatal(err)
	}
	for name, sum := range places {
		for _, p := range sum {
			if _, ok := found[p]; !ok {
				t.Errorf("%s: %v was not found", name, p)
			}
		}
	}
	for _, bad := range [][]byte{nil, []byte("x"), make([]byte, 24), types[:100], types[1:], types[:len(types)/2]} {
		if found, err := findPlaces(bad); err == nil && len(found) > 0 {
			t.Errorf("%d bytes gave %v", len(bad), found)
		}
	}
	if _, err := readTypes("/proc/kcore"); err == nil || !strings.Contains(err.Error(), "bytes") {
		if _, statErr := os.Stat("/proc/kcore"); statErr == nil {
			t.Errorf("a file of any size is read: %v", err)
		}
	}
}

// FuzzPlaces: types that are no types must not make the loader fail in another way than with an error.
func FuzzPlaces(f *testing.F) {
	header := make([]byte, 24)
	binary.NativeEndian.PutUint16(header, 0xeb9f)
	binary.NativeEndian.PutUint32(header[4:], 24)
	texts := []byte("\x00nsproxy\x00mnt_ns\x00")
	body := make([]byte, 24)
	binary.NativeEndian.PutUint32(body, 1)
	binary.NativeEndian.PutUint32(body[4:], kindStruct<<24|1)
	binary.NativeEndian.PutUint32(body[12:], 9)
	binary.NativeEndian.PutUint32(body[20:], 64)
	binary.NativeEndian.PutUint32(header[12:], uint32(len(body)))
	binary.NativeEndian.PutUint32(header[16:], uint32(len(body)))
	binary.NativeEndian.PutUint32(header[20:], uint32(len(texts)))
	whole := append(append(header, body...), texts...)
	if found, err := findPlaces(whole); err != nil || found[place{"nsproxy", "mnt_ns"}] != 8 {
		f.Fatalf("%v %v", found, err)
	}
	f.Add(whole)
	f.Fuzz(func(_ *testing.T, b []byte) { findPlaces(b) })
}

// TestWithoutCookie: a kernel that does not tell the cookie permits nothing, and says why.
func TestWithoutCookie(t *testing.T) {
	if !oldKernel() {
		return // the tests in other kernels run it
	}
	g := newGroup(t)
	p := attachTo(t, g)
	m := start(t, g, "attempts", own)
	if err := p.Permit(m.cmd.Process.Pid); err == nil || !strings.Contains(err.Error(), ErrUnsupported.Error()) {
		t.Errorf("permit: %v", err)
	}
	if got := m.attempt(t); got["tcp4 loopback"] != "EPERM" {
		t.Errorf("%v", got)
	}
}
