package session

import (
	"strings"
	"testing"
)

func TestFlagText(t *testing.T) {
	t.Parallel()
	for needed, want := range map[string]string{
		"": "", "-w": "-w", "--staged": "--staged", "--read /a/b-c_d.e": "--read /a/b-c_d.e", "--allow [::1]:80": "--allow [::1]:80",
		"--read /two words": "--read '/two words'", "--write /ws/$(id)": "--write '/ws/$(id)'", "--write /ws/`id`;x": "--write '/ws/`id`;x'",
		"--read /it's": "", "--read /a\nb": "", "--read /\x1b[2J": "", "--read /\xff": "", "--read /\u202eb": "", "--re;ad /x": "",
		"--read /" + strings.Repeat("a", maxNewsText): "",
	} {
		if got := flagText(needed); got != want {
			t.Errorf("%q: %q, want %q", needed, got, want)
		}
	}
}
