package credential

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestLearnAsks: on a terminal --learn asks about each host. A yes is a rule of the proposal, a no a comment, and with the
// proposal as profile nobody is asked about the first any more.
func TestLearnAsks(t *testing.T) {
	eachUser(t, func(t *testing.T, p *person) {
		d := p.sit(t, p.program(), nil, "--learn", "--", "sh", "-c", "curl -sS https://ask.test/x; curl -sS http://ask.test/y; echo > made; true")
		d.wait(prompt, 1)
		d.types("y\n")
		d.wait(prompt, 2)
		d.types("n\n")
		e := d.ends()
		if e.code != 0 || !strings.Contains(e.out, "welcome GET /x") || strings.Contains(e.out, "GET /y") {
			t.Error(e)
		}
		if _, err := os.Lstat(filepath.Join(p.work, "made")); err == nil {
			t.Error("learning wrote the real folder")
		}
		file := regexp.MustCompile(`is in (\S+/learned/[0-9a-z]+\.toml)`).FindStringSubmatch(e.out)
		if file == nil {
			t.Fatalf("no proposal is named: %s", e)
		}
		text, err := os.ReadFile(file[1])
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"\n  \"ask.test\",  # let through once", "\n  # \"ask.test:80\",  # refused once", "\n# It wrote the workspace (1 changes)"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("no %q in\n%s", want, text)
			}
		}
		// Nothing was granted by that alone.
		if got := p.coworker(t, "", "exec", "-w", "--net", "allowlist", "--", "curl", "-sS", "https://ask.test/x"); got.code == 0 {
			t.Error(got)
		}
		p.write(t, filepath.Join(p.home, ".config", "coworker", "profiles", "kept.toml"), string(text))
		if got := p.coworker(t, "", "exec", "-w", "--profile", "kept", "--", "curl", "-sS", "https://ask.test/x"); got.code != 0 || !strings.Contains(got.out, "welcome GET /x") {
			t.Error(got)
		}
		if got := p.coworker(t, "", "exec", "-w", "--profile", "kept", "--", "curl", "-sS", "http://ask.test/y"); strings.Contains(got.out, "welcome") {
			t.Error(got)
		}
	})
}
