package audit

import (
	"context"
	"fmt"
	"testing"
)

// exampleRow is about what one command leaves behind.
func exampleRow(i int) Row {
	return Row{
		Session: "01J0000000000000000000", Actor: "agent", Agent: "main", Workspace: "/home/ada/src/project", Tool: "exec", Stage: "finished", Status: "ok",
		VerdictSource: "rule", Rule: "user:12", ActionDigest: "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9",
		Args: []string{"go", "test", "./...", "-run", fmt.Sprint("Test", i)}, Preview: "ok  \tproject/pkg\t0.012s", CallID: fmt.Sprint("call_", i), Level: "enforced",
		Walls: []string{"read", "write", "net", "process"}, Attestation: "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9",
	}
}

func benchmarkAppend(b *testing.B, group int) {
	l, _ := openIn(b, b.TempDir())
	rows := make([]Row, group)
	n := 0
	for b.Loop() {
		for i := range rows {
			rows[i] = exampleRow(n + i)
		}
		if _, err := l.Append(context.Background(), rows...); err != nil {
			b.Fatal(err)
		}
		n += group
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "rows/s")
}

func BenchmarkAppendOne(b *testing.B)      { benchmarkAppend(b, 1) }
func BenchmarkAppendGroup32(b *testing.B)  { benchmarkAppend(b, 32) }
func BenchmarkAppendGroup256(b *testing.B) { benchmarkAppend(b, 256) }

// Sessions that record at the same time share commits.
func BenchmarkAppendParallel(b *testing.B) {
	l, _ := openIn(b, b.TempDir())
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			if _, err := l.Append(context.Background(), exampleRow(i)); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

// The path of `coworker exec` in processes of their own: open what is there,
// append one row, end. "nothing" is the cost of the bare process.
func BenchmarkExecPath(b *testing.B) {
	for _, end := range []string{"nothing", "close", "leave"} {
		b.Run(end, func(b *testing.B) {
			dir := b.TempDir()
			l, db := openIn(b, dir)
			fillLog(b, l, 2000)
			if err := db.Close(); err != nil {
				b.Fatal(err)
			}
			var sum [3]float64
			n := 0.0
			for b.Loop() {
				out, err := startChild(b, end, dir).Output()
				if err != nil {
					b.Fatal(err)
				}
				var part [3]float64
				if end == "nothing" {
					continue
				}
				if _, err := fmt.Sscan(string(out), &part[0], &part[1], &part[2]); err != nil {
					b.Fatal(err)
				}
				for i := range part {
					sum[i] += part[i]
				}
				n++
			}
			for i, name := range []string{"open-ms", "append-ms", "end-ms"} {
				if n > 0 {
					b.ReportMetric(sum[i]/n/1e6, name)
				}
			}
		})
	}
}

// One operation is one row; a million rows take a million times as long.
func BenchmarkVerify(b *testing.B) {
	const rows = 50_000
	ctx := context.Background()
	l, _ := openIn(b, b.TempDir())
	group := make([]Row, 1000)
	for i := 0; i < rows; i += len(group) {
		for j := range group {
			group[j] = exampleRow(i + j)
		}
		if _, err := l.Append(ctx, group...); err != nil {
			b.Fatal(err)
		}
	}
	n := 0
	for b.Loop() {
		v, err := l.Verify(ctx)
		if err != nil || v.Rows != rows {
			b.Fatal(v, err)
		}
		n++
	}
	perRow := b.Elapsed().Seconds() / float64(n*rows)
	b.ReportMetric(perRow*1e6, "s/1M-rows")
}
