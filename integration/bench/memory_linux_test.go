package bench

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"coworker/integration/house/testuser"
)

// BenchmarkMemory is what idle sessions take: the proportional set size (proc_pid_smaps(5)) of keepers and cells, and
// what the supervisor's process grew by, a session.
func BenchmarkMemory(b *testing.B) {
	for _, sessions := range []int{1, 50, 200} {
		b.Run(fmt.Sprint(sessions), func(b *testing.B) {
			p := newPlace(b, testuser.All(b)[0])
			p.makeRepository(b, 1000)
			var numbers map[string]float64
			for b.Loop() {
				h := p.helper(b)
				before := h.ask(request{Memory: true})
				opened := h.ask(request{Open: sessions})
				numbers = h.ask(request{Memory: true})
				numbers["supervisor"] -= before["supervisor"]
				numbers["open"] = opened["open"]
			}
			n := float64(sessions)
			share := numbers["supervisor"] / n
			each := numbers["inside"]/n + share
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(numbers["inside"]/n, "keeper+cell-MiB")
			b.ReportMetric(share, "supervisor-MiB")
			b.ReportMetric(numbers["open"], "open-ms")
			report.add(result{what: fmt.Sprintf("idle session, %d open", sessions), ours: fmt.Sprintf("%.1f MiB", each),
				ratio: fmt.Sprintf("keeper+cell %.1f, supervisor %.1f, open %s", numbers["inside"]/n, share, millis(numbers["open"])),
				value: each, budget: atMost(25, "≤ 25 MiB")})
		})
	}
}

// memory adds up this process and everything below it. Root only reads foreign smaps; children of the same user that are
// not dumpable are closed to that user, so as an ordinary user the sum is of what can be read.
func (h *holder) memory(out map[string]float64) error {
	self := os.Getpid()
	parents, err := parentsOf()
	if err != nil {
		return err
	}
	for pid := range parents {
		if pid != self && !below(parents, pid, self) {
			continue
		}
		pss, err := pssOf(pid)
		if err != nil {
			return fmt.Errorf("memory of process %d: %w", pid, err)
		}
		if pid == self {
			out["supervisor"] += pss
		} else {
			out[inside] += pss
		}
	}
	return nil
}

func below(parents map[int]int, pid, top int) bool {
	for pid = parents[pid]; pid > 1; pid = parents[pid] {
		if pid == top {
			return true
		}
	}
	return false
}

func parentsOf() (map[int]int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	out := map[int]int{}
	for _, name := range stats {
		data, err := os.ReadFile(name)
		if err != nil {
			continue // it ended meanwhile
		}
		fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil || len(fields) < 2 {
			return nil, fmt.Errorf("unexpected %s", name)
		}
		if out[pid], err = strconv.Atoi(fields[1]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// pssOf is the proportional set size in MiB.
func pssOf(pid int) (float64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "Pss:"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kib / 1024, err
		}
	}
	return 0, fmt.Errorf("no Pss in %s", f.Name())
}
