package session

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const gib = 1 << 30

// fakeDisk answers for one file system; use and free are set by the test.
type fakeDisk struct {
	size       int64
	used, free atomic.Int64
	broken     atomic.Bool
}

func (f *fakeDisk) measure(int) (space, error) {
	if f.broken.Load() {
		return space{}, errors.New("gone")
	}
	return space{size: f.size, used: f.used.Load(), free: f.free.Load()}, nil
}

func (f *fakeDisk) watch(t *testing.T, allowance int64) *diskWatch {
	t.Helper()
	w, err := newDiskWatch([]string{t.TempDir()}, allowance, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.close() })
	w.measure = f.measure
	for i := range w.volumes {
		w.volumes[i].start, _ = f.measure(0)
	}
	return w
}

func TestDiskLook(t *testing.T) {
	for _, tt := range []struct {
		name             string
		size, used, free int64 // later; at the start nothing is used
		allowance        int64
		broken           bool
		want             string // part of the error; "" for none
		headroom         int64
	}{
		{"plenty", 100 * gib, gib, 99 * gib, 0, false, "", 99*gib - diskFloor},
		{"below the floor", 100 * gib, 99 * gib, diskFloor - 1, 0, false, "must stay free", 0},
		{"at the floor", 100 * gib, 99 * gib, diskFloor, 0, false, "", 0},
		{"a small disk has a smaller floor", gib, gib / 2, gib / 50, 0, false, "", gib/50 - gib/100},
		{"a small disk that is full", gib, gib, gib/100 - 1, 0, false, "must stay free", 0},
		{"a disk without a size", 0, gib, 0, 0, false, "", 1 << 62},
		{"within the allowance", 100 * gib, gib, 50 * gib, gib, false, "", 0},
		{"over the allowance", 100 * gib, gib + 1, 50 * gib, gib, false, "are allowed", 0},
		{"over the allowance without a size", 0, gib + 1, 0, gib, false, "are allowed", 0},
		{"not known any more", 100 * gib, 0, 50 * gib, 0, true, "not known", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &fakeDisk{size: tt.size}
			f.free.Store(tt.size)
			w := f.watch(t, tt.allowance)
			f.used.Store(tt.used)
			f.free.Store(tt.free)
			f.broken.Store(tt.broken)
			headroom, hit := w.look()
			switch {
			case tt.want == "" && (hit != nil || headroom != tt.headroom):
				t.Errorf("headroom %d, %v; want %d", headroom, hit, tt.headroom)
			case tt.want != "" && (hit == nil || !strings.Contains(hit.Error(), tt.want)):
				t.Errorf("got %v, want %q", hit, tt.want)
			case hit != nil && (hit.Limit != "disk" || hit.Hint() == ""):
				t.Errorf("limit %q, hint %q", hit.Limit, hit.Hint())
			}
		})
	}
}

// TestDiskHitStays shows that space that comes back does not make a session good again.
func TestDiskHitStays(t *testing.T) {
	f := &fakeDisk{size: 100 * gib}
	w := f.watch(t, 0)
	if _, hit := w.look(); hit == nil {
		t.Fatal("a full disk is no limit")
	}
	f.free.Store(50 * gib)
	if _, hit := w.look(); hit == nil || w.limitHit() == nil {
		t.Error("the limit is forgotten")
	}
}

func TestDiskWatchTellsOnce(t *testing.T) {
	f := &fakeDisk{size: 100 * gib}
	f.free.Store(50 * gib)
	w := f.watch(t, 0)
	told := make(chan *LimitError, 2)
	w.watch(func(hit *LimitError) { told <- hit })
	f.free.Store(0)
	select {
	case <-told:
	case <-time.After(10 * time.Second):
		t.Fatal("nobody was told")
	}
	w.afterCall()
	w.close()
	w.close()
	if len(told) != 0 {
		t.Error("told twice")
	}
}

func TestDiskPause(t *testing.T) {
	for _, tt := range []struct {
		headroom int64
		want     time.Duration
	}{{0, diskShortest}, {-1, diskShortest}, {1 << 62, time.Second}, {gib, 500 * time.Millisecond}, {gib / 1024, diskShortest}} {
		got := pause(tt.headroom, time.Second)
		if got < tt.want-10*time.Millisecond || got > tt.want+20*time.Millisecond {
			t.Errorf("headroom %d: %v, want about %v", tt.headroom, got, tt.want)
		}
	}
}

func TestDiskCountsFileSystemsOnce(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	w, err := newDiskWatch([]string{a, b, a}, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	if len(w.volumes) != 1 {
		t.Errorf("%d volumes for one file system", len(w.volumes))
	}
	if _, err := newDiskWatch([]string{a, a + "/missing"}, 0, 0); err == nil {
		t.Error("a missing folder is watched")
	}
}
