package registries

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestAgreesWithTheInstalledTools asks the managers of this machine what they would use and compares. A manager that is not
// installed, or that does not start, is not compared; the log says which were.
func TestAgreesWithTheInstalledTools(t *testing.T) {
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	environ := slices.DeleteFunc(os.Environ(), func(s string) bool {
		return strings.HasPrefix(s, "GOPROXY=") || strings.HasPrefix(s, "GOSUMDB=") || strings.HasPrefix(s, "GOROOT=") // set by the go command for tests
	})
	list, err := Discover(t.Context(), Host{Environ: environ, Home: home, Root: os.DirFS("/")})
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range []struct {
		name, manager string
		command       []string
	}{
		{"npm", "npm", []string{"npm", "config", "get", "registry"}},
		{"pip", "pip", []string{"python3", "-I", "-c", "from pip._internal.models.index import PyPI; print(PyPI.url)"}},
		{"go proxy", "go", []string{"go", "env", "GOPROXY"}},
		{"go sums", "go", []string{"go", "env", "GOSUMDB"}},
		{"gem", "gem", []string{"gem", "sources", "--list"}},
	} {
		t.Run(tool.name, func(t *testing.T) {
			said, err := ask(t.Context(), tool.command, environ)
			if err != nil {
				t.Logf("not compared: %v", err)
				return
			}
			rules := list.of(tool.manager)
			if tool.manager == "pip" && !slices.ContainsFunc(list.Entries, func(e Entry) bool { return e.Manager == "pip" && e.Default }) {
				return // something is configured, and the command shows the default
			}
			addresses := []string{said}
			switch tool.name {
			case "go proxy":
				addresses = parseGoProxy(said)
			case "go sums":
				addresses = []string{parseGoSumDB(said)}
			case "gem":
				addresses = slices.DeleteFunc(strings.Fields(said), func(s string) bool { return !strings.HasPrefix(s, "http") })
			}
			for _, address := range addresses {
				at, err := locate(address)
				if err == nil && !strings.Contains(rules, at.rule) {
					t.Errorf("%s uses %s, found were %q", tool.name, at.rule, rules)
				}
			}
		})
	}
	for _, e := range list.Entries {
		t.Logf("%s: a rule from %s, default %v", e.Manager, e.Source, e.Default)
	}
}

func ask(ctx context.Context, command, environ []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.Env = "/", environ
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(command, " "), err)
	}
	return strings.TrimSpace(out.String()), nil
}
