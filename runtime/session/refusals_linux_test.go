package session

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"coworker/enforce"
	"coworker/runtime/ward"
)

// fakeWard tells what a test wants.
type fakeWard struct {
	ward.Ward
	news chan enforce.Refusal
}

func (w *fakeWard) Refusals() <-chan enforce.Refusal { return w.news }
func (w *fakeWard) Counts() ward.Counts              { return ward.Counts{Unheard: 3} }

// rowKeeper keeps the rows of a session.
type rowKeeper struct {
	mu   sync.Mutex
	rows []Event
}

func (k *rowKeeper) Attest(context.Context, []byte) (string, error) { return "", nil }
func (k *rowKeeper) Record(_ context.Context, _ string, rows ...Event) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rows = append(k.rows, rows...)
	return nil
}

// hearing starts to take news into a session that keeps rows; the returned function ends it.
func hearing(t *testing.T) (*Session, *fakeWard, *rowKeeper, func()) {
	t.Helper()
	keeper, w := &rowKeeper{}, &fakeWard{news: make(chan enforce.Refusal)}
	s := &Session{options: Options{Recorder: keeper, Backend: fakeBackend{}}, ward: w}
	s.listenToWard()
	return s, w, keeper, func() {
		close(w.news)
		s.background.Wait()
	}
}

func refusedAt(what string) enforce.Refusal {
	return enforce.Refusal{Time: time.Now(), Source: enforce.SourceEBPF, Wall: enforce.NetEgress, Hook: "connect4", Pid: 9, Comm: "curl", What: what, Needed: "--allow x"}
}

// TestRefusalsAreSummed: a loop inside makes one row and a number, different ones are bounded.
func TestRefusalsAreSummed(t *testing.T) {
	s, w, keeper, end := hearing(t)
	w.news <- refusedAt("of the battery")
	s.refused.settle()
	for range 100_000 {
		w.news <- refusedAt("tcp 203.0.113.9:443")
	}
	for i := range 3 * maxRefusals {
		w.news <- refusedAt(fmt.Sprint("tcp 203.0.113.9:", i))
		w.news <- enforce.Refusal{Time: time.Now(), Source: enforce.SourceEBPF, Hook: enforce.HookExec, What: fmt.Sprint("/bin/", i)}
	}
	end()
	if len(keeper.rows) > 2*maxRefusals+maxPrograms+3 {
		t.Errorf("%d rows", len(keeper.rows))
	}
	var text strings.Builder
	for _, r := range keeper.rows {
		fmt.Fprintf(&text, "%s %s %s %s %s\n", r.Stage, r.Status, r.Source, r.Resource, r.Reason)
	}
	for _, want := range []string{
		"net denied ebpf tcp 203.0.113.9:443 connect4 refused it to curl, process 9\n", "connect4 refused it to curl 100001 times in all\n",
		"exec ran ebpf /bin/0 ", "more refusals, of more than 256 kinds", "more starts, of more than 256 programs", "3 times the kernel told more than could be heard",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no row says %q", want)
		}
	}
	if strings.Contains(text.String(), "of the battery") {
		t.Error("there is a row about the battery")
	}
	if d := s.Refusals(); len(d) != maxRefusals || d[0].Source != "ebpf" || d[0].Needed != "" {
		t.Errorf("%d denials, the first %+v: bare has no network to allow anything in", len(d), d[0])
	}
}

// TestRefusalsArePlain: names of programs are of the program's choosing.
func TestRefusalsArePlain(t *testing.T) {
	s, w, keeper, end := hearing(t)
	s.refused.settle()
	r := refusedAt("\x1b]52;c;eA==\a" + strings.Repeat("x", 5000))
	r.Comm = "a\nb\xff"
	w.news <- r
	end()
	for _, row := range keeper.rows[:1] {
		if strings.ContainsAny(row.Resource+row.Reason, "\x1b\a\n") || !utf8.ValidString(row.Reason) || len(row.Resource) > maxNewsText+10 {
			t.Errorf("%q %q", row.Resource, row.Reason)
		}
	}
}
