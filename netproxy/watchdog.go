package netproxy

import (
	"sync/atomic"
	"time"
)

// watchdog ends a connection that has been silent, or open, for too long.
type watchdog struct {
	last   atomic.Int64 // nanoseconds since begun of the last octet in either direction
	begun  time.Time
	idle   time.Duration
	total  time.Duration
	end    func() // closes the connections
	timer  *time.Timer
	reason atomic.Pointer[string]
}

func newWatchdog(idle, total time.Duration, end func()) *watchdog {
	w := &watchdog{begun: time.Now(), idle: idle, total: total, end: end}
	w.timer = time.AfterFunc(min(idle, total), func() { w.look() })
	return w
}

// touch says that an octet passed.
func (w *watchdog) touch() { w.last.Store(int64(time.Since(w.begun))) }

func (w *watchdog) look() {
	now := time.Since(w.begun)
	silent := now - time.Duration(w.last.Load())
	switch {
	case now >= w.total:
		w.bite("open for " + w.total.String())
	case silent >= w.idle:
		w.bite("silent for " + w.idle.String())
	default:
		w.timer.Reset(min(w.idle-silent, w.total-now))
	}
}

func (w *watchdog) bite(reason string) {
	w.reason.CompareAndSwap(nil, &reason)
	w.end()
}

// why is the limit that was reached, or "".
func (w *watchdog) why() string {
	if p := w.reason.Load(); p != nil {
		return *p
	}
	return ""
}

func (w *watchdog) stop() { w.timer.Stop() }
