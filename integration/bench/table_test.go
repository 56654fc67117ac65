package bench

import (
	"slices"
	"strings"
	"testing"
)

func TestVerdict(t *testing.T) {
	for _, tt := range []struct {
		b     budget
		value float64
		want  string
	}{
		{atMost(40, "≤ 40 ms"), 39, "met"},
		{atMost(40, "≤ 40 ms"), 40, "met"},
		{atMost(40, "≤ 40 ms"), 41, "MISSED"},
		{atLeast(5000, "≥ 5,000"), 5000, "met"},
		{atLeast(5000, "≥ 5,000"), 4999, "MISSED"},
		{atLeast(5000, "≥ 5,000"), 6000, "met"},
		{budget{}, 1, ""},
	} {
		if got := tt.b.verdict(tt.value); got != tt.want {
			t.Errorf("%s of %v: %q, want %q", tt.b.text, tt.value, got, tt.want)
		}
	}
}

func TestMedianAndRatios(t *testing.T) {
	if m := median([]float64{9, 1, 2, 4}); m != 3 {
		t.Errorf("median = %v", m)
	}
	if m := median(nil); m != 0 {
		t.Errorf("median of nothing = %v", m)
	}
	if r := ratios([]float64{4, 9, 1}, []float64{2, 3}); !slices.Equal(r, []float64{2, 3}) {
		t.Errorf("ratios = %v", r)
	}
}

func TestPrint(t *testing.T) {
	var out strings.Builder
	tab := &table{}
	if err := tab.print(&out); err != nil || out.Len() != 0 {
		t.Errorf("an empty table prints %q, %v", out.String(), err)
	}
	tab.note("no %s", "runc")
	tab.note("no %s", "runc")
	tab.add(result{what: "warm call", ours: "1.50 ms", ratio: "2.00x", value: 0.7, budget: atMost(1, "≤ 1 ms added")})
	if err := tab.print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"warm call", "≤ 1 ms added  met", "note: no runc"} {
		if strings.Count(out.String(), want) != 1 {
			t.Errorf("want %q once in:\n%s", want, out.String())
		}
	}
}
