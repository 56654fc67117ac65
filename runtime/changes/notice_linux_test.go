package changes

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// witness takes a failure down instead of failing.
type witness struct {
	testing.TB
	failed bool
}

type seen struct{}

func (w *witness) Helper() {}

func (w *witness) Fatalf(string, ...any) {
	w.failed = true
	panic(seen{})
}

func (w *witness) Fatal(...any) { w.Fatalf("") }

func notices(t *testing.T, check func(t testing.TB)) (failed bool) {
	w := &witness{TB: t}
	defer func() {
		if p := recover(); p != nil && p != (seen{}) {
			panic(p)
		}
		failed = w.failed
	}()
	check(w)
	return
}

// TestModelNotices shows that the checks of the model can fail: each way to apply wrongly is seen by them.
func TestModelNotices(t *testing.T) {
	for name, wrong := range map[string]func(b *bench) error{
		"nothing wrong": func(*bench) error { return nil },
		"a hook applied": func(b *bench) error {
			return os.WriteFile(filepath.Join(b.host, "sub/.git/hooks/post-checkout"), []byte("evil"), 0o755)
		},
		"a secret replaced":   func(b *bench) error { return os.WriteFile(filepath.Join(b.host, ".env"), []byte("evil"), 0o600) },
		"a secret deleted":    func(b *bench) error { return os.Remove(filepath.Join(b.host, "keys/server.key")) },
		"a file not applied":  func(b *bench) error { return os.Remove(filepath.Join(b.host, "sure")) },
		"half a file":         func(b *bench) error { return os.Truncate(filepath.Join(b.host, "sure"), 2) },
		"a mode not applied":  func(b *bench) error { return os.Chmod(filepath.Join(b.host, "sure"), 0o777) },
		"a deletion left out": func(b *bench) error { return os.WriteFile(filepath.Join(b.host, "doomed"), nil, 0o644) },
	} {
		b := newBench(t, t.TempDir(), func(host string) {
			populate(host, rand.New(rand.NewPCG(5, 5)))
			write(t, host, "doomed", "base")
			os.Remove(filepath.Join(host, "sure"))
		})
		merged := b.overlay(mountJob{Script: "mkdir -p sub/.git/hooks; echo evil > sub/.git/hooks/post-checkout; echo session > sure; rm doomed; echo evil > .env"})
		before := snapshot(t, b.host, true)
		b.apply(Options{})
		must(t, wrong(b))
		got := notices(t, func(t testing.TB) { applied(t, b, before, merged, nil) })
		if want := name != "nothing wrong"; got != want {
			t.Errorf("%s: noticed %v", name, got)
		}
	}
}
