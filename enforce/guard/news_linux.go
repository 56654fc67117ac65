package guard

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"time"

	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"coworker/enforce"
)

// Sizes and places in struct event of guard.bpf.c.
const (
	eventNames = 16
	nameSize   = 128
	commAt     = 40
	namesAt    = 56
	eventSize  = namesAt + eventNames*nameSize
)

// Why a path was refused.
const (
	whyRefused = 2
	whyHidden  = 4
	whyDeep    = 32
	whyLeft    = 64
)

// news reads the ring buffer that all sessions share and hands every event to its session.
type news struct {
	reader *ringbuf.Reader
	done   chan struct{}
}

func (g *Guard) listen() (*news, error) {
	r, err := ringbuf.NewReader(g.objects.Events)
	if err != nil {
		return nil, err
	}
	n := &news{reader: r, done: make(chan struct{})}
	go func() {
		defer close(n.done)
		g.deliver(r)
	}()
	return n, nil
}

func (n *news) close() error {
	err := n.reader.Close()
	<-n.done
	return err
}

func (g *Guard) deliver(r *ringbuf.Reader) {
	for {
		record, err := r.Read()
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil || len(record.RawSample) < eventSize {
			continue
		}
		g.mu.Lock()
		s := g.sessions[binary.NativeEndian.Uint32(record.RawSample[8:])]
		var trees []enforce.Tree
		if s != nil {
			trees = s.trees
		}
		g.mu.Unlock()
		if s == nil {
			continue
		}
		refusal, err := parse(record.RawSample, trees, boot())
		if err != nil {
			s.missed.Add(1)
			continue
		}
		select {
		case s.inbox <- refusal:
		default:
			s.missed.Add(1)
		}
	}
}

// boot is when CLOCK_MONOTONIC was 0.
func boot() time.Time {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(ts.Nano()))
}

// parse reads what a program sent.
func parse(raw []byte, trees []enforce.Tree, boot time.Time) (enforce.Refusal, error) {
	if len(raw) < eventSize {
		return enforce.Refusal{}, fmt.Errorf("%d bytes from the kernel, want %d", len(raw), eventSize)
	}
	word := func(at int) uint32 { return binary.NativeEndian.Uint32(raw[at:]) }
	number := word(16)
	if int(number) >= len(hookTable) {
		return enforce.Refusal{}, fmt.Errorf("the kernel names the hook %d, and there are %d", number, len(hookTable))
	}
	h := hookTable[number]
	r := enforce.Refusal{
		Time: boot.Add(time.Duration(binary.NativeEndian.Uint64(raw))), Source: enforce.SourceBPFLSM, Wall: h.wall, Hook: h.name,
		Pid: int(word(12)), Comm: text(raw[commAt:namesAt]),
	}
	switch h.wall {
	case enforce.NetLocal:
		r.What = "local socket of the host"
	case enforce.NetEgress:
		family := word(32)
		if r.What = fmt.Sprintf("socket family %d type %d", family, word(36)); family == unix.AF_VSOCK {
			r.Wall = enforce.NetLocal
		}
	default:
		r.What = whatOf(raw, word(24), word(28), trees)
		r.Wall, r.Needed = needed(word(20), r.What)
	}
	return r, nil
}

// needed is the wall that refused, and the flag that would have allowed it.
func needed(why uint32, what string) (enforce.Wall, string) {
	switch {
	case why&whyHidden != 0:
		return enforce.FSHide, "--read " + what
	case why&whyLeft != 0: // in a staged workspace a repository may be made
		return enforce.FSProtect, "--staged"
	case why&whyDeep != 0 && why&whyRefused == 0:
		return enforce.FSProtect, ""
	}
	return enforce.FSProtect, "--write " + what
}

// whatOf puts the names together. The last one of the path comes first.
func whatOf(raw []byte, tree, count uint32, trees []enforce.Tree) string {
	names := []string{}
	for i := range min(int(count), eventNames) {
		at := namesAt + i*nameSize
		name := text(raw[at : at+nameSize])
		if len(name) == nameSize-1 {
			name += "…"
		}
		names = append(names, name)
	}
	slices.Reverse(names)
	switch {
	case int64(tree) < int64(len(trees)):
		return path.Join(append([]string{trees[tree].Path}, names...)...)
	case len(names) == eventNames:
		return path.Join(append([]string{"…"}, names...)...)
	case len(names) == 1:
		return names[0] // a file that the host's mounts hide from here, or one of no tree
	}
	return path.Join(append([]string{"/"}, names...)...)
}

// text is a string of the kernel, up to its NUL.
func text(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}
