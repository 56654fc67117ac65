package wallsd

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

// line is what the helper says about itself, one JSON object a line: who asked for what, and what became of it.
type line struct {
	Time    time.Time `json:"time"`
	UID     int       `json:"uid"`
	PID     int       `json:"pid,omitempty"`
	Session string    `json:"session,omitempty"`
	Op      string    `json:"op"`
	Verdict string    `json:"verdict"` // ok, refused, failed, fallen
	Reason  string    `json:"reason,omitempty"`
	Left    int       `json:"left_out,omitempty"` // lines before this one that were not written
}

// Log writes lines from a goroutine of its own, so that a journal that does not read stops nobody, and leaves out what comes
// faster than anybody reads: users can make the helper say things.
type Log struct {
	to    io.Writer
	lines chan line
	done  chan struct{}
	now   func() time.Time

	mu     sync.Mutex
	left   int
	budget int // lines that may still be written in this second
	second int64
	closed bool
}

// Lines that wait for the writer, and those of one second.
const (
	maxLines  = 1024
	perSecond = 200
	maxReason = 500
)

// NewLog starts a log; Close ends it.
func NewLog(to io.Writer, now func() time.Time) *Log {
	l := &Log{to: to, lines: make(chan line, maxLines), done: make(chan struct{}), now: now}
	go func() {
		defer close(l.done)
		for one := range l.lines {
			if data, err := json.Marshal(one); err == nil {
				fmt.Fprintf(l.to, "%s\n", data)
			}
		}
	}()
	return l
}

func (l *Log) write(one line) {
	if l == nil {
		return
	}
	one.Time = l.now().UTC()
	one.Reason = one.Reason[:min(len(one.Reason), maxReason)]
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := one.Time.Unix(); at != l.second {
		l.second, l.budget = at, perSecond
	}
	if l.closed || l.budget == 0 {
		l.left++
		return
	}
	one.Left = l.left
	select {
	case l.lines <- one:
		l.left = 0
		l.budget--
	default:
		l.left++
	}
}

// Close writes what waits.
func (l *Log) Close() {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.lines)
	}
	l.mu.Unlock()
	<-l.done
}
