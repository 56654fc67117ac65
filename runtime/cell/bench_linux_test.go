package cell_test

import (
	"os/exec"
	"testing"
	"time"

	"coworker/runtime/wire"
)

// BenchmarkWarmCall measures a warm call against fork and exec by this process, one after the
// other, so that both see the same machine. The budget is 1 ms added.
func BenchmarkWarmCall(b *testing.B) {
	s := open(b, userNS)
	e := command("/bin/true")
	var warm, bare time.Duration
	call := func() {
		s.id++
		e.ID = s.id
		s.send(wire.TypeExec, e, null, null, null)
		s.await(e.ID, wire.TypeStarted)
		s.await(e.ID, wire.TypeExited)
	}
	for range 20 {
		call()
	}
	for b.Loop() {
		begin := time.Now()
		call()
		middle := time.Now()
		cmd := exec.Cmd{Path: "/bin/true", Args: []string{"/bin/true"}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/tmp"}
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
		warm += middle.Sub(begin)
		bare += time.Since(middle)
	}
	n := float64(b.N)
	b.ReportMetric(float64(warm.Microseconds())/n, "warm-µs")
	b.ReportMetric(float64(bare.Microseconds())/n, "bare-µs")
	b.ReportMetric(float64((warm-bare).Microseconds())/n, "added-µs")
}
