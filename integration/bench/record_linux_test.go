package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"coworker/platform/audit"
	"coworker/platform/redact"
	"coworker/platform/sqlite"
)

func openLog(b *testing.B) *audit.Log {
	b.Helper()
	dir := b.TempDir()
	ctx := context.Background()
	db, err := sqlite.Open(ctx, filepath.Join(dir, "coworker.db"), audit.Schema1)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := db.Close(); err != nil {
			b.Error(err)
		}
	})
	log, err := audit.Open(ctx, db, audit.Config{KeyFile: filepath.Join(dir, audit.KeyName), Redactor: redact.New(), Now: time.Now})
	if err != nil {
		b.Fatal(err)
	}
	return log
}

// rows are like those of commands in a session: each differs, and carries the walls.
func rows(from, n int) []audit.Row {
	out := make([]audit.Row, n)
	for i := range out {
		out[i] = audit.Row{
			Time: time.Now(), Session: "hbq3m5yw6zk7o", Actor: "ada", Workspace: "/home/ada/src/project", Tool: "exec", Stage: "exec", Status: "ok",
			VerdictSource: "person", Args: []string{"go", "test", "./...", "-run", fmt.Sprint("Test", from+i)}, CallID: fmt.Sprint("hbq3m5yw6zk7o/", from+i),
			Preview: "exit code 0", Level: "enforced", Walls: []string{"fs.read", "fs.write", "fs.protect", "net.egress", "proc", "kernel"},
		}
	}
	return out
}

// BenchmarkAudit appends rows in groups, each group durable before the next, and then verifies all of them.
func BenchmarkAudit(b *testing.B) {
	for _, group := range []int{1, 32, 256} {
		b.Run(fmt.Sprintf("append-group-%d", group), func(b *testing.B) {
			log := openLog(b)
			n := 0
			for b.Loop() {
				if _, err := log.Append(context.Background(), rows(n, group)...); err != nil {
					b.Fatal(err)
				}
				n += group
			}
			rate := float64(n) / b.Elapsed().Seconds()
			b.ReportMetric(rate, "rows/s")
			r := result{what: fmt.Sprintf("audit append, durable, groups of %d", group), ours: fmt.Sprintf("%.0f rows/s", rate), value: rate}
			if group == 256 {
				r.budget = atLeast(5000, "≥ 5,000 rows/s")
			}
			report.add(r)
		})
	}
	b.Run("verify", func(b *testing.B) {
		const size = 50_000
		log := openLog(b)
		for n := 0; n < size; n += 1000 {
			if _, err := log.Append(context.Background(), rows(n, 1000)...); err != nil {
				b.Fatal(err)
			}
		}
		for b.Loop() {
			if _, err := log.Verify(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
		rate := float64(b.N) * size / b.Elapsed().Seconds()
		b.ReportMetric(rate, "rows/s")
		million := 1e6 / rate
		report.add(result{what: "audit verify", ours: fmt.Sprintf("%.0f rows/s", rate), ratio: fmt.Sprintf("1M rows in %.1f s", million), value: million, budget: atMost(10, "≤ 10 s for 1M rows")})
	})
}
