package session

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

// limitDisk names the disk limit in Limits.Named, attestations and reports.
const limitDisk = "disk"

// The free space that a session leaves to everybody else: diskFloor, or diskFloorShare of the file
// system where that is less.
const (
	diskFloor      = 256 << 20
	diskFloorShare = 100 // one part of so many
)

// Between two looks lies at most diskInterval, and less when space gets short: a disk that takes
// diskRate bytes a second cannot pass the floor unseen by more than what it takes in diskShortest.
const (
	diskInterval = time.Second
	diskShortest = 10 * time.Millisecond
	diskRate     = 2 << 30
)

// LimitError says that a session was ended because it ran into a limit that no mechanism inside
// could keep.
type LimitError struct {
	Limit  string // "disk"
	Folder string // the tree whose file system it is about; empty if it is about all of them
	What   string
	Needed string // the setting that would allow it; empty if space must be freed
}

func (e *LimitError) Error() string {
	if e.Folder == "" {
		return fmt.Sprintf("limit %s: %s", e.Limit, e.What)
	}
	return fmt.Sprintf("limit %s: %q: %s", e.Limit, e.Folder, e.What)
}

// Hint is the next step for a person.
func (e *LimitError) Hint() string {
	if e.Needed == "" {
		return "free some space there, or work on another disk"
	}
	return "free some space, or raise " + e.Needed
}

// space is what a file system has, in bytes.
type space struct{ size, used, free int64 }

// volume is a file system that a session can write to.
type volume struct {
	folder string
	fd     int // O_PATH, so that a folder that is swapped or removed changes nothing
	start  space
}

// diskWatch looks at the free space of the session's writable trees while it lives. No mechanism for
// unprivileged users bounds a folder (project quotas need root and a mount option), so the session
// is ended instead. Space is counted for the whole file system: what others write counts too.
type diskWatch struct {
	volumes   []volume
	allowance int64 // how much more may be used than at the start; 0: any
	interval  time.Duration
	measure   func(fd int) (space, error)
	exceeded  func(*LimitError)

	mu   sync.Mutex // one look at a time
	hit  *LimitError
	once sync.Once
	stop chan struct{}
	done sync.WaitGroup
}

// newDiskWatch opens the file systems below the folders, each once, and takes the first look. Its
// owner calls close.
func newDiskWatch(folders []string, allowance int64, interval time.Duration) (*diskWatch, error) {
	if interval <= 0 {
		interval = diskInterval
	}
	w := &diskWatch{allowance: allowance, interval: interval, measure: measureSpace, exceeded: func(*LimitError) {}, stop: make(chan struct{})}
	seen := map[uint64]bool{}
	for _, f := range folders {
		if err := w.add(f, seen); err != nil {
			w.close()
			return nil, fmt.Errorf("watch the free space of %q: %w", f, err)
		}
	}
	return w, nil
}

func (w *diskWatch) add(folder string, seen map[uint64]bool) error {
	fd, err := unix.Open(folder, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || seen[st.Dev] {
		unix.Close(fd)
		return err
	}
	now, err := w.measure(fd)
	if err != nil {
		unix.Close(fd)
		return err
	}
	seen[st.Dev] = true
	w.volumes = append(w.volumes, volume{folder: folder, fd: fd, start: now})
	return nil
}

// measureSpace asks statfs(2). Free is what an ordinary user can get: a cell has no right to the
// blocks that are reserved for root.
func measureSpace(fd int) (space, error) {
	for {
		var st unix.Statfs_t
		err := unix.Fstatfs(fd, &st)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return space{}, fmt.Errorf("statfs: %w", err)
		}
		unit := st.Frsize
		if unit <= 0 {
			unit = st.Bsize
		}
		return space{
			size: int64(st.Blocks) * unit,
			used: int64(st.Blocks-st.Bfree) * unit,
			free: int64(st.Bavail) * unit,
		}, nil
	}
}

// floorOf is the free space that must stay. A file system without a size (tmpfs with size=0) has none.
func floorOf(s space) int64 { return min(diskFloor, s.size/diskFloorShare) }

// look measures once. It returns the limit that was hit, now or earlier, and otherwise how many bytes
// may be written until the next look matters.
func (w *diskWatch) look() (headroom int64, hit *LimitError) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hit == nil {
		headroom, w.hit = w.judge()
		if w.hit != nil {
			w.exceeded(w.hit)
		}
	}
	return headroom, w.hit
}

func (w *diskWatch) judge() (int64, *LimitError) {
	var grown int64
	headroom := int64(1) << 62
	for _, v := range w.volumes {
		now, err := w.measure(v.fd)
		if err != nil {
			return 0, &LimitError{Limit: limitDisk, Folder: v.folder, What: fmt.Sprintf("its free space is not known any more: %v", err)}
		}
		grown += now.used - v.start.used
		if now.size == 0 {
			continue
		}
		floor := floorOf(now)
		if now.free < floor {
			return 0, &LimitError{Limit: limitDisk, Folder: v.folder, What: fmt.Sprintf("%d bytes are free, %d must stay free", now.free, floor)}
		}
		headroom = min(headroom, now.free-floor)
	}
	if w.allowance > 0 {
		if grown > w.allowance {
			what := fmt.Sprintf("%d bytes more are used than at the start, %d are allowed", grown, w.allowance)
			return 0, &LimitError{Limit: limitDisk, What: what, Needed: "the disk allowance"}
		}
		headroom = min(headroom, w.allowance-grown)
	}
	return headroom, nil
}

// watch looks until close, or until a limit is hit, and then calls exceeded once.
func (w *diskWatch) watch(exceeded func(*LimitError)) {
	w.mu.Lock()
	w.exceeded = exceeded
	w.mu.Unlock()
	w.done.Go(func() {
		timer := time.NewTimer(0)
		defer timer.Stop()
		for {
			select {
			case <-w.stop:
				return
			case <-timer.C:
			}
			headroom, hit := w.look()
			if hit != nil {
				return
			}
			timer.Reset(pause(headroom, w.interval))
		}
	})
}

// pause is how long nothing can happen that a look would have to see.
func pause(headroom int64, longest time.Duration) time.Duration {
	wait := time.Duration(headroom/(diskRate/int64(time.Second/time.Millisecond))) * time.Millisecond
	return min(longest, max(wait, diskShortest))
}

// close ends the watch and waits for it. It is safe to call it twice.
func (w *diskWatch) close() error {
	w.once.Do(func() {
		close(w.stop)
		w.done.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, v := range w.volumes {
			unix.Close(v.fd)
		}
		w.volumes = nil
	})
	return nil
}

// limit is the entry for the attestation.
func (w *diskWatch) limit() enforce.Limit {
	l := enforce.Limit{Name: limitDisk, Value: w.allowance, Active: true, Mechanism: enforce.Supervisor}
	if len(w.volumes) == 0 {
		l.Detail = "nothing on a disk can be written"
		return l
	}
	l.Detail = "ends the session when free space falls below 256 MiB or 1 %"
	if w.allowance > 0 {
		l.Detail += ", or when more is used than the allowance"
	}
	return l
}

// limitHit gives the limit that ended the session, or nil.
func (w *diskWatch) limitHit() *LimitError {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hit
}

// openDisk starts to measure before anything runs inside.
func (s *Session) openDisk() error {
	var folders []string
	for _, t := range s.options.Spec.Trees {
		switch {
		case t.Stage != "":
			folders = append(folders, t.Stage)
		case t.Writable:
			folders = append(folders, t.Path)
		}
	}
	folders = append(folders, s.options.Spec.HomeStore) // the private home
	var err error
	if s.disk, err = newDiskWatch(folders, s.options.Disk, s.options.DiskInterval); err != nil {
		return err
	}
	s.undo(s.disk.close)
	if _, hit := s.disk.look(); hit != nil {
		return hit
	}
	return nil
}

// watchDisk ends the session when the disk runs short, and only then writes it down.
func (s *Session) watchDisk() {
	s.disk.watch(func(hit *LimitError) {
		s.fail(hit)
		row := Event{Stage: "limit", Status: "failed", Reason: hit.Error(), Resource: limitDisk}
		if err := s.record(context.Background(), row); err != nil {
			s.options.Notify(Notice{Text: "record the disk limit: " + err.Error()})
		}
	})
}

// afterCall looks once more, so that a short command cannot fill the disk between two looks.
func (w *diskWatch) afterCall() error {
	if _, hit := w.look(); hit != nil {
		return hit
	}
	return nil
}
