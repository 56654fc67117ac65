package session

import (
	"slices"
	"testing"

	"coworker/enforce"
)

func TestHomeEnvironment(t *testing.T) {
	spec := enforce.Spec{
		Identity: enforce.Identity{Home: "/home/w"}, HomeStore: "/store",
		Toolchains: []string{"/home/w/.cargo/bin"}, Trees: []enforce.Tree{{Path: "/home/w/src"}},
	}
	env := []string{
		"HOME=/home/w", "XDG_CONFIG_HOME=/home/w/.config", "PATH=/home/w/.cargo/bin:/usr/bin:/home/w/.local/bin",
		"OTHER=/home/worker/x", "PWD=/home/w/src/a", "EMPTY=", "A=B=C",
	}
	want := []string{
		"HOME=/store/home", "XDG_CONFIG_HOME=/store/home/.config", "PATH=/home/w/.cargo/bin:/usr/bin:/store/home/.local/bin",
		"OTHER=/home/worker/x", "PWD=/home/w/src/a", "EMPTY=", "A=B=C",
	}
	if got := homeEnvironment(env, spec); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestKeepsHomeDir(t *testing.T) {
	dirs := []string{".cache", ".cargo/bin"}
	for name, want := range map[string]bool{".cache": true, ".cargo": true, ".car": false, ".bashrc": false, ".cachex": false} {
		if got := keepsHomeDir(name, dirs); got != want {
			t.Errorf("%s: %t, want %t", name, got, want)
		}
	}
}
