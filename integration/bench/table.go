package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// budget is a promise about one number.
type budget struct {
	limit   float64
	atLeast bool // the number must reach the limit; otherwise it must stay below
	text    string
}

func atMost(limit float64, text string) budget { return budget{limit: limit, text: text} }
func atLeast(limit float64, text string) budget {
	return budget{limit: limit, atLeast: true, text: text}
}

func (b budget) verdict(value float64) string {
	switch {
	case b.text == "":
		return ""
	case b.atLeast == (value >= b.limit), !b.atLeast && value == b.limit:
		return "met"
	}
	return "MISSED"
}

// result is one line of the table. Texts are as they are printed; value is what the budget is about.
type result struct {
	what, ours, peer, ratio string
	value                   float64
	budget                  budget
	elsewhere               string // what was measured on another machine; it enters no number of ours
}

// table collects results and notes. Benchmarks run one after the other, so it needs no lock.
type table struct {
	results []result
	notes   []string
}

func (t *table) add(r result) { t.results = append(t.results, r) }

func (t *table) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(t.notes, text) {
		t.notes = append(t.notes, text)
	}
}

func (t *table) print(w io.Writer) error {
	if len(t.results) == 0 {
		return nil
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "\nwhat\tours\tpeer\tratio\tbudget\t\tmeasured elsewhere")
	for _, r := range t.results {
		line := strings.Join([]string{r.what, r.ours, r.peer, r.ratio, r.budget.text, r.budget.verdict(r.value), r.elsewhere}, "\t")
		fmt.Fprintln(tw, strings.TrimRight(line, "\t"))
	}
	for _, n := range t.notes {
		fmt.Fprintln(tw, "note: "+n)
	}
	return tw.Flush()
}

// median of an unsorted list; 0 of an empty one.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// ratios divides round by round, which takes out load that comes and goes.
func ratios(a, b []float64) []float64 {
	out := make([]float64, min(len(a), len(b)))
	for i := range out {
		out[i] = a[i] / b[i]
	}
	return out
}

func millis(v float64) string {
	switch {
	case v < 10:
		return fmt.Sprintf("%.2f ms", v)
	case v < 1000:
		return fmt.Sprintf("%.1f ms", v)
	}
	return fmt.Sprintf("%.1f s", v/1000)
}

func times(v float64) string { return fmt.Sprintf("%.2fx", v) }
