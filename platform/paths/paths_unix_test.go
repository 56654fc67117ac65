//go:build unix

package paths

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestResolve(t *testing.T) {
	tests := []struct {
		name    string
		env     map[string]string
		home    string
		want    Dirs
		wantErr string
	}{
		{name: "defaults", home: "/home/ada", want: Dirs{
			Config: "/home/ada/.config/coworker", State: "/home/ada/.local/state/coworker", Cache: "/home/ada/.cache/coworker"}},
		{name: "xdg", home: "/home/ada", env: map[string]string{"XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s/", "XDG_CACHE_HOME": "/k/../k"},
			want: Dirs{Config: "/c/coworker", State: "/s/coworker", Cache: "/k/coworker"}},
		{name: "xdg needs no home", env: map[string]string{"XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s", "XDG_CACHE_HOME": "/k"},
			want: Dirs{Config: "/c/coworker", State: "/s/coworker", Cache: "/k/coworker"}},
		{name: "coworker home wins", home: "/home/ada", env: map[string]string{"COWORKER_HOME": "/w/", "XDG_STATE_HOME": "/s"},
			want: Dirs{Config: "/w/config", State: "/w/state", Cache: "/w/cache", root: "/w"}},
		{name: "relative coworker home", home: "/home/ada", env: map[string]string{"COWORKER_HOME": "w"}, wantErr: `COWORKER_HOME "w" is not an absolute path`},
		{name: "relative xdg", home: "/home/ada", env: map[string]string{"XDG_STATE_HOME": "./s"}, wantErr: `XDG_STATE_HOME "./s" is not an absolute path`},
		{name: "no home", wantErr: "home folder is not set"},
		{name: "relative home", home: "ada", wantErr: "not an absolute path"},
		{name: "nul", home: "/a\x00b", wantErr: "NUL"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Resolve(func(k string) string { return tt.env[k] }, tt.home)
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("error = %v, want %q", err, tt.wantErr)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Fatalf("got %+v, %v; want %+v", got, err, tt.want)
			}
		})
	}
}

func resolveIn(t *testing.T, root string) Dirs {
	t.Helper()
	d, err := Resolve(func(k string) string {
		if k == "COWORKER_HOME" {
			return root
		}
		return ""
	}, "")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestMakeIsPrivateAndRepeatable(t *testing.T) {
	d := resolveIn(t, filepath.Join(t.TempDir(), "deep", "home"))
	if err := d.Check(); err != nil {
		t.Fatalf("Check before Make: %v", err)
	}
	for range 2 {
		if err := d.Make(); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{d.root, d.Config, d.State, d.Cache} {
		info, err := os.Lstat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %v, want 0700", dir, info.Mode().Perm())
		}
	}
	if err := d.Check(); err != nil {
		t.Fatalf("Check after Make: %v", err)
	}
}

func TestMakeRefuses(t *testing.T) {
	tests := []struct {
		name    string
		plant   func(t *testing.T, d Dirs) error
		wantErr string
	}{
		{"symlink", func(t *testing.T, d Dirs) error { return os.Symlink(t.TempDir(), d.State) }, "symbolic link"},
		{"dangling symlink", func(t *testing.T, d Dirs) error { return os.Symlink("/nonexistent", d.State) }, "symbolic link"},
		{"file", func(t *testing.T, d Dirs) error { return os.WriteFile(d.State, nil, 0o600) }, "not a directory"},
		{"group writable", func(t *testing.T, d Dirs) error {
			return errors.Join(os.Mkdir(d.State, 0o700), os.Chmod(d.State, 0o770))
		}, "mode 0770"},
		{"world writable", func(t *testing.T, d Dirs) error {
			return errors.Join(os.Mkdir(d.State, 0o700), os.Chmod(d.State, 0o1777))
		}, "lets others write"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := resolveIn(t, t.TempDir())
			if err := tt.plant(t, d); err != nil {
				t.Fatal(err)
			}
			for _, call := range []func() error{d.Make, d.Check} {
				if err := call(); !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("error = %v, want ErrUnsafe with %q", err, tt.wantErr)
				}
			}
		})
	}
}

func TestMakeRefusesForeignOwner(t *testing.T) {
	// Root gives a folder away; anyone else meets one of root's.
	dir, owner := "/", 0
	if os.Geteuid() == 0 {
		dir, owner = t.TempDir(), 12345
		if err := os.Chown(dir, owner, owner); err != nil {
			t.Fatal(err)
		}
	}
	err := checkPrivate(dir)
	if want := fmt.Sprint("uid ", owner); !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), want) {
		t.Fatalf("error = %v, want ErrUnsafe naming %s", err, want)
	}
}
