package bench

import (
	"context"
	"fmt"
	"testing"

	"coworker/integration/house/testuser"
	"coworker/platform/workfs"
	"coworker/runtime/treescan"
)

// BenchmarkScan is the look at the tree that every session begins with, apart from the rest, with notification marks.
func BenchmarkScan(b *testing.B) {
	for _, files := range []int{1_000, 20_000, 200_000} {
		b.Run(fmt.Sprint(files), func(b *testing.B) {
			p := newPlace(b, testuser.Unprivileged(b))
			p.makeFiles(b, files, nil)
			root, err := workfs.OpenRoot(p.workspace)
			if err != nil {
				b.Fatal(err)
			}
			defer root.Close()
			s := series{}
			find := []string{"/usr/bin/find", p.workspace, "-name", "none"}
			for b.Loop() {
				round, err := scanOnce(root, find)
				if err != nil {
					b.Fatal(err)
				}
				s.add(round)
			}
			s.metrics(b)
			x := s.over("watch", "find")
			b.ReportMetric(x, "x-find")
			report.add(result{what: fmt.Sprintf("tree scan, %d files", files), ours: fmt.Sprintf("%s, with marks %s", millis(s.median("scan")), millis(s.median("watch"))),
				peer: "find " + millis(s.median("find")), ratio: times(x)})
		})
	}
}

func scanOnce(root *workfs.Root, find []string) (map[string]float64, error) {
	round := map[string]float64{}
	ctx := context.Background()
	err := timed(round, "scan", func() error {
		_, err := treescan.Scan(ctx, root, treescan.Config{})
		return err
	})
	if err != nil {
		return nil, err
	}
	err = timed(round, "watch", func() error {
		w, _, err := treescan.Watch(ctx, root, treescan.Config{})
		if err != nil {
			return err
		}
		return w.Close()
	})
	if err != nil {
		return nil, err
	}
	return round, timed(round, "find", func() error { return outside(find) })
}
