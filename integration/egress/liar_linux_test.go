package egress

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"coworker/integration/house/testuser"
	"coworker/integration/product"
)

// lying is a folder with a coworker whose proxy is the liar.
var lying = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(built, "lying")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	return dir, product.Build(dir, "coworker/integration/egress/liar", "")
})

// lies are what a proxy may do wrong, with a probe that must notice.
var lies = []struct{ lie, probe string }{
	{"none", ""},
	{"open", "net.egress/proxy-denied"}, {"open", "net.egress/proxy-socks-denied"}, {"open", "net.local/proxy-loopback"}, {"open", "net.egress/proxy-other-port"},
	{"token", "net.egress/proxy-connect"}, {"token", "net.egress/redirect"}, {"public", "net.egress/dns-allowed"}, {"resolve", "net.egress/dns-denied"},
	{"text", "net.egress/dns-other-type"}, {"silent", "net.egress/proxy-connect"}, {"redirect", "net.egress/redirect-unnamed"},
	{"redirect", "net.egress/redirect-direct"}, {"exit", "the proxy ended"},
}

// TestLyingProxy starts sessions with a proxy that does one thing wrong. None of them may run a command, and the reason
// names the probe. The proxy that does nothing wrong shows that the others are refused for their lies.
func TestLyingProxy(t *testing.T) {
	dir, err := lying()
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, testuser.Unprivileged(t), "liar")
	for _, tt := range lies {
		t.Run(tt.lie+" "+tt.probe, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			cmd := w.command(ctx, filepath.Join(dir, "coworker"), "exec", "-w", "--allow", tt.lie+".lie.test", "--", "sh", "-c", "echo it ran")
			var out, errs strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &errs
			if err := w.hosts.n.onHost(cmd.Start); err != nil {
				t.Fatal(err)
			}
			cmd.Wait()
			code, ran := cmd.ProcessState.ExitCode(), strings.Contains(out.String(), "it ran")
			if tt.lie == "none" {
				if code != exitFine || !ran {
					t.Errorf("a proxy that does not lie: exit code %d, ran %v: %s", code, ran, errs.String())
				}
				return
			}
			if code != exitWalls || ran || !strings.Contains(errs.String(), tt.probe) {
				t.Errorf("exit code %d, ran %v, want %d, a refusal and the word %q: %s", code, ran, exitWalls, tt.probe, errs.String())
			}
		})
	}
}
