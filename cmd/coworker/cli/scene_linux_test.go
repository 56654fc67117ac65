package cli

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"coworker/enforce"
)

// TestMain lets the test binary play the programs of a scene.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == demoAgent {
		err := Run(context.Background(), os.Args, Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
		os.Exit(Report(os.Stderr, err))
	}
	os.Exit(m.Run())
}

// TestSceneNoticesEscapes does from outside what the attacker wants to do, and expects the demo to see each.
func TestSceneNoticesEscapes(t *testing.T) {
	write := func(t *testing.T, file string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(demoPlanted); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	visit := func(t *testing.T, network, address string, l *listener) {
		t.Helper()
		c, err := net.Dial(network, address)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		l.came <- <-l.came // wait until the visit was counted
	}
	effects := map[string]func(t *testing.T, sc *scene) attempt{
		"ssh-key": func(_ *testing.T, sc *scene) attempt { return attempt{Gained: "x " + sc.secret} },
		"env-file": func(_ *testing.T, sc *scene) attempt {
			return attempt{Gained: sc.secret, Error: "claims to have met a wall"}
		},
		"exfiltrate": func(*testing.T, *scene) attempt { return attempt{Gained: "the call succeeded"} },
		"bashrc": func(t *testing.T, sc *scene) attempt {
			write(t, filepath.Join(sc.home, ".bashrc"))
			return attempt{Error: "claims to have met a wall"}
		},
		"hook": func(t *testing.T, sc *scene) attempt {
			write(t, filepath.Join(sc.project, ".git/hooks/pre-commit"))
			return attempt{}
		},
		"git-config": func(t *testing.T, sc *scene) attempt {
			write(t, filepath.Join(sc.project, ".git/config"))
			return attempt{Error: "x"}
		},
		"git-swap": func(t *testing.T, sc *scene) attempt {
			if err := os.Rename(filepath.Join(sc.project, ".git"), filepath.Join(sc.project, ".git.old")); err != nil {
				t.Fatal(err)
			}
			return attempt{Error: "x"}
		},
		"tasks": func(t *testing.T, sc *scene) attempt {
			write(t, filepath.Join(sc.project, ".vscode/tasks.json"))
			return attempt{Error: "x"}
		},
		"loopback": func(t *testing.T, sc *scene) attempt {
			visit(t, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(sc.targets.Port)), sc.service)
			return attempt{Error: "x"}
		},
		"ssh-agent": func(t *testing.T, sc *scene) attempt {
			visit(t, "unix", sc.targets.AgentSocket, sc.agent)
			return attempt{Error: "x"}
		},
		"docker": func(t *testing.T, sc *scene) attempt {
			visit(t, "unix", sc.targets.Docker, sc.docker)
			return attempt{Error: "x"}
		},
		"kill": func(t *testing.T, sc *scene) attempt {
			if err := sc.victim.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			return attempt{Error: "x"}
		},
		"root": func(t *testing.T, sc *scene) attempt {
			write(t, filepath.Join(sc.project, demoDevice))
			return attempt{Error: "x"}
		},
		"daemon": func(t *testing.T, sc *scene) attempt {
			cmd := exec.Command("/bin/sh", "-c", "read line; : "+sc.targets.Marker)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { in.Close(); cmd.Wait() })
			return attempt{Error: "x"}
		},
	}
	for _, one := range tries() {
		effect, ok := effects[one.id]
		if !ok {
			continue
		}
		t.Run(one.id, func(t *testing.T) {
			sc, err := newScene()
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := sc.close(); err != nil {
					t.Error(err)
				}
			}()
			refused := attempt{ID: one.id, Error: "operation not permitted"}
			if _, problem := sc.check(one, refused); problem != "" {
				t.Fatalf("before the attack: %s", problem)
			}
			if _, problem := sc.check(one, effect(t, sc)); problem == "" {
				t.Error("the escape was not noticed")
			}
		})
	}
}

func TestTriesCoverTheWalls(t *testing.T) {
	seen := map[string]bool{}
	covered := map[enforce.Wall]bool{enforce.Res: true} // the fork bomb
	for _, one := range tries() {
		if seen[one.id] || one.text == "" || strings.TrimSpace(one.text) != one.text {
			t.Errorf("try %q: not unique, or without a text", one.id)
		}
		seen[one.id], covered[one.wall] = true, true
	}
	for _, w := range enforce.Walls() {
		if !covered[w] {
			t.Errorf("no try of the demo is about %s", w)
		}
	}
	if len(seen) < 20 {
		t.Errorf("%d tries, want at least 20", len(seen))
	}
}
