package cell

import (
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParseStat(t *testing.T) {
	const tail = " S 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 6 7"
	tests := []struct {
		stat string
		want process
		ok   bool
	}{
		{"5 (sh)" + tail, process{5, 7, 8, 9, 'S', "12345"}, true},
		{"5 (a) Z 1 1 1 (b)" + tail, process{5, 7, 8, 9, 'S', "12345"}, true},
		{"5 (new\nline)" + tail, process{5, 7, 8, 9, 'S', "12345"}, true},
		{"", process{}, false},
		{"5 (sh) S 7 8", process{}, false},
		{"5 (sh) S x 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345", process{}, false},
	}
	for _, tt := range tests {
		if got, ok := parseStat(5, []byte(tt.stat)); got != tt.want || ok != tt.ok {
			t.Errorf("%q: %+v, %v, want %+v, %v", tt.stat, got, ok, tt.want, tt.ok)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	if own, err := os.ReadFile("/proc/self/stat"); err == nil {
		f.Add(own)
	}
	f.Add([]byte("1 ()))) Z"))
	f.Fuzz(func(t *testing.T, stat []byte) {
		if p, ok := parseStat(1, stat); ok && p.start == "" {
			t.Errorf("%q has no start time", stat)
		}
	})
}

// TestFamily holds that a list which /proc changed while it was read, circles included, ends.
func TestFamily(t *testing.T) {
	list := func(pairs ...int) (all []process) {
		for i := 0; i < len(pairs); i += 2 {
			all = append(all, process{pid: pairs[i], parent: pairs[i+1]})
		}
		return all
	}
	tests := []struct {
		name    string
		all     []process
		below   []int
		byDepth [][]int
	}{
		{"nobody", nil, nil, nil},
		{"tree", list(2, 1, 3, 1, 4, 2, 5, 4), []int{2, 3, 4, 5}, [][]int{{2, 3}, {4}, {5}}},
		{"strangers", list(2, 1, 9, 0, 10, 9), []int{2}, [][]int{{2}, {9, 10}}},
		{"circle of strangers", list(7, 8, 8, 7), nil, [][]int{{7, 8}}},
		{"own parent", list(2, 2), nil, [][]int{{2}}},
		{"twice", list(2, 1, 3, 2, 2, 3), []int{2, 3, 2}, [][]int{{2}, {3}}},
	}
	pids := func(list []process) (out []int) {
		for _, p := range list {
			out = append(out, p.pid)
		}
		return out
	}
	for _, tt := range tests {
		if got := pids(below(tt.all, 1)); !slices.Equal(got, tt.below) {
			t.Errorf("%s: below %v, want %v", tt.name, got, tt.below)
		}
		var got [][]int
		for _, g := range generations(tt.all, 1) {
			got = append(got, pids(g))
		}
		if !slices.EqualFunc(got, tt.byDepth, slices.Equal[[]int]) {
			t.Errorf("%s: generations %v, want %v", tt.name, got, tt.byDepth)
		}
	}
}

// TestCloseOnExecOnOldKernels checks the way without close_range(2) next to the usual one.
func TestCloseOnExecOnOldKernels(t *testing.T) {
	for name, mark := range map[string]func(int) error{"close_range": closeOnExecFrom, "listed": closeOnExecListed} {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags != 0 {
			t.Fatalf("%s: control: flags %d, %v", name, flags, err)
		}
		if err := mark(3); err != nil {
			t.Fatal(err)
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags != unix.FD_CLOEXEC {
			t.Errorf("%s: flags %d, %v", name, flags, err)
		}
		if flags, err := unix.FcntlInt(2, unix.F_GETFD, 0); err != nil || flags != 0 {
			t.Errorf("%s: standard error has flags %d, %v", name, flags, err)
		}
		unix.Close(fd)
	}
}
