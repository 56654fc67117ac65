package bench

import (
	"os"
	"path/filepath"
	"testing"

	"coworker/integration/house/testuser"
)

// BenchmarkBackends is `coworker exec -- true` as root with each backend, side by side, in a repository of 1,000 files.
func BenchmarkBackends(b *testing.B) {
	root := testuser.All(b)[0]
	if !root.Root() {
		b.Fatal("the backend container needs root")
	}
	p := newPlace(b, root)
	p.makeRepository(b, 1000)
	box, err := filepath.Abs("../../bin/coworker-box")
	if err != nil {
		b.Fatal(err)
	}
	if err := os.Symlink(box, filepath.Join(p.bin, "coworker-box")); err != nil {
		b.Fatal(err)
	}
	commands := map[string][]string{}
	for _, backend := range []string{"native", "container", "bare"} {
		own := filepath.Join(p.home, "own-"+backend)
		if err := os.MkdirAll(filepath.Join(own, "config"), 0o700); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(own, "config/config.toml"), []byte("backend = \""+backend+"\"\n"), 0o600); err != nil {
			b.Fatal(err)
		}
		commands[backend] = []string{"env", "COWORKER_HOME=" + own, filepath.Join(p.bin, "coworker"), "exec", "--level", "partial", "--", "true"}
	}
	s := p.rounds(b, commands)
	s.metrics(b)
	for _, backend := range []string{"container", "bare"} {
		x := s.over(backend, "native")
		b.ReportMetric(x, backend+"-x-native")
		report.add(result{what: "exec -- true as root, backend " + backend, ours: millis(s.median(backend)), peer: "native " + millis(s.median("native")), ratio: times(x)})
	}
}
