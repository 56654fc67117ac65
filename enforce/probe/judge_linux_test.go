package probe

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

func TestJudge(t *testing.T) {
	stops, past := errnos{unix.EROFS, unix.EACCES}, errnos{unix.EFAULT}
	for _, tc := range []struct {
		name string
		err  error
		want enforce.Outcome
	}{
		{"success", nil, enforce.Leaked},
		{"success as errno", unix.Errno(0), enforce.Leaked},
		{"wall", unix.EROFS, enforce.Stopped},
		{"other wall", unix.EACCES, enforce.Stopped},
		{"past the wall", unix.EFAULT, enforce.Leaked},
		{"unrelated", unix.ENOENT, enforce.Inconclusive},
		{"near miss", unix.EPERM, enforce.Inconclusive},
		{"no errno", errors.New("EROFS"), enforce.Inconclusive},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := judge(tc.err, stops, past).got; got != tc.want {
				t.Errorf("judge(%v) = %s, want %s", tc.err, got, tc.want)
			}
		})
	}
	if got := judge(unix.EPERM, nil, nil).got; got != enforce.Inconclusive {
		t.Errorf("without an errno that the wall gives, EPERM is %s, want inconclusive", got)
	}
}

func TestWorst(t *testing.T) {
	s, l, u := stopped("s"), leaked("l"), unclear("u")
	for _, tc := range []struct {
		in   []result
		want result
	}{
		{[]result{s, s}, s}, {[]result{s, u}, u}, {[]result{u, l, s}, l}, {[]result{l, u}, l},
	} {
		if got := worst(tc.in...); got != tc.want {
			t.Errorf("worst(%v) = %v, want %v", tc.in, got, tc.want)
		}
	}
	if got := worst().got; got != enforce.Inconclusive {
		t.Errorf("worst of nothing = %s: what was not attempted must not count as stopped", got)
	}
}

// TestRefusalsByBackend says which errno counts where. The rows that want nothing are the point:
// without the mechanism, the same errno has another cause.
func TestRefusalsByBackend(t *testing.T) {
	native := battery{Setup: Setup{Backend: enforce.Native, LandlockABI: 7}, ownNet: true, ownPid: true}
	shared := battery{Setup: Setup{Backend: enforce.Native, LandlockABI: 7}}
	bare := battery{Setup: Setup{Backend: enforce.Bare, LandlockABI: 7}}
	old := battery{Setup: Setup{Backend: enforce.Bare, LandlockABI: 3}}
	none := battery{Setup: Setup{Backend: enforce.Bare}}
	for _, tc := range []struct {
		name  string
		stops errnos
		errno unix.Errno
		want  bool
	}{
		{"hidden native ENOENT", native.hidden(), unix.ENOENT, true},
		{"hidden bare ENOENT", bare.hidden(), unix.ENOENT, false},
		{"hidden bare EACCES", bare.hidden(), unix.EACCES, true},
		{"hidden without landlock EACCES", none.hidden(), unix.EACCES, false},
		{"unwritable native EROFS", native.unwritable(), unix.EROFS, true},
		{"unwritable bare EROFS", bare.unwritable(), unix.EROFS, false},
		{"unreachable native ENETUNREACH", native.unreachable(), unix.ENETUNREACH, true},
		{"unreachable shared ENETUNREACH", shared.unreachable(), unix.ENETUNREACH, false},
		{"unreachable native EACCES", native.unreachable(), unix.EACCES, false},
		{"unreachable bare EACCES", bare.unreachable(), unix.EACCES, true},
		{"unreachable ABI 3 EACCES", old.unreachable(), unix.EACCES, false},
		{"unreachable bare ENETUNREACH", bare.unreachable(), unix.ENETUNREACH, false},
		{"local native ECONNREFUSED", native.localRefused(), unix.ECONNREFUSED, true},
		{"local shared ECONNREFUSED", shared.localRefused(), unix.ECONNREFUSED, false},
		{"signal native ESRCH", native.scoped(true, unix.ESRCH), unix.ESRCH, true},
		{"signal shared ESRCH", shared.scoped(false, unix.ESRCH), unix.ESRCH, false},
		{"signal bare EPERM", bare.scoped(false, unix.ESRCH), unix.EPERM, true},
		{"signal ABI 3 EPERM", old.scoped(false, unix.ESRCH), unix.EPERM, false},
		{"pin native EBUSY", native.pinned(), unix.EBUSY, true},
		{"pin native ENOTEMPTY", native.pinned(), unix.ENOTEMPTY, false},
	} {
		if got := judge(tc.errno, tc.stops, nil).got == enforce.Stopped; got != tc.want {
			t.Errorf("%s counts as stopped: %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestSample(t *testing.T) {
	many := make([]string, 1000)
	for i := range many {
		many[i] = string(rune('a'+i%26)) + "/x"
	}
	trees := []enforce.Tree{{Path: "/w", Protected: many}, {Path: "/v", Protected: []string{"last"}}}
	protected := func(t enforce.Tree) []string { return t.Protected }
	if got := sample(trees, protected); len(got) != maxSample || got[0] != "/w/a/x" {
		t.Errorf("sample of 1001 has %d paths and starts with %q", len(got), got[0])
	}
	if got := sample(trees[1:], protected); len(got) != 1 || got[0] != "/v/last" {
		t.Errorf("sample of one = %q", got)
	}
	if got := sample(nil, protected); got != nil {
		t.Errorf("sample of nothing = %q", got)
	}
}

func TestParseStatus(t *testing.T) {
	const good = "Name:\tx\nPid:\t7\nCapInh:\t0\nCapPrm:\t0000000000000001\nCapEff:\t0\nCapBnd:\t1ff\nCapAmb:\t0\nNoNewPrivs:\t1\nSeccomp:\t2\n"
	s, err := parseStatus(good)
	if err != nil || s.tid != 7 || s.noNewPrivs != 1 || s.seccomp != 2 || s.caps["CapBnd"] != 0x1ff {
		t.Fatalf("parseStatus = %+v, %v", s, err)
	}
	if err := s.checkCaps(); err == nil {
		t.Error("a permitted capability passes the check")
	}
	for name, data := range map[string]string{
		"empty": "", "no caps": "Pid:\t7\nNoNewPrivs:\t1\nSeccomp:\t2\n", "bad number": good + "CapEff:\tzz\n",
		"no seccomp": "Pid:\t7\nCapInh:\t0\nCapPrm:\t0\nCapEff:\t0\nCapBnd:\t0\nCapAmb:\t0\nNoNewPrivs:\t1\n",
	} {
		if _, err := parseStatus(data); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestParseMounts(t *testing.T) {
	const good = `36 35 98:0 /mnt1 /a\040b ro,noatime master:1 - ext4 /dev/root rw,errors=continue
40 35 0:30 / / rw shared:1 unbindable - tmpfs tmpfs rw
`
	m, err := parseMounts([]byte(good))
	if err != nil || len(m) != 2 {
		t.Fatalf("parseMounts = %+v, %v", m, err)
	}
	if want := (mount{point: "/a b", fstype: "ext4", readOnly: true}); m[0] != want {
		t.Errorf("first mount = %+v, want %+v", m[0], want)
	}
	if m[1].readOnly {
		t.Error("a writable mount counts as read-only")
	}
	for _, bad := range []string{"", "\n", "36 35 98:0 / / rw ext4\n", "a - b\n"} {
		if _, err := parseMounts([]byte(bad)); err == nil {
			t.Errorf("parseMounts(%q): no error", bad)
		}
	}
}

func FuzzParseMounts(f *testing.F) {
	f.Add([]byte("36 35 98:0 /m /a\\040b ro - ext4 /dev/root rw\n"))
	f.Add([]byte("36 35 98:0 /m /\\ rw - tmpfs\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if m, err := parseMounts(data); err == nil && len(m) == 0 {
			t.Error("no mounts and no error")
		}
	})
}

func FuzzParseStatus(f *testing.F) {
	f.Add("Pid:\t7\nCapInh:\t0\nCapPrm:\t0\nCapEff:\t0\nCapBnd:\t0\nCapAmb:\t0\nNoNewPrivs:\t1\nSeccomp:\t2\n")
	f.Fuzz(func(t *testing.T, data string) {
		if s, err := parseStatus(data); err == nil && (s.noNewPrivs < 0 || s.seccomp < 0 || len(s.caps) != len(capSets)) {
			t.Errorf("parseStatus(%q) = %+v without an error", data, s)
		}
	})
}

func TestDescends(t *testing.T) {
	parents := map[int]int{1: 0, 5: 1, 9: 5, 20: 19, 19: 20}
	for pid, want := range map[int]bool{1: true, 5: true, 9: true, 20: false, 77: false} {
		if got := descends(pid, 1, parents); got != want {
			t.Errorf("descends(%d) = %v, want %v", pid, got, want)
		}
	}
}
