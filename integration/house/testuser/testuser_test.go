//go:build linux

package testuser

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestCommandRunsAsTheUser(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "root-only")
	if err := os.WriteFile(secret, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("COWORKER_CANARY", "leaked")
	for _, u := range All(t) {
		t.Run(u.String(), func(t *testing.T) {
			home := u.Dir(t)
			out, err := u.Command(t.Context(), home, "/bin/sh", "-c", "id -u; id -G; pwd; echo \"$COWORKER_CANARY\"; : > made; cat "+secret+" >/dev/null 2>&1; echo $?").Output()
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Split(string(out), "\n")
			canRead := "1"
			if u.UID == os.Geteuid() {
				canRead = "0"
			}
			if len(got) < 5 || got[0] != strconv.Itoa(u.UID) || got[2] != home || got[3] != "" || got[4] != canRead {
				t.Errorf("as %v: uid, groups, folder, canary, read of another's file = %q", u, got)
			}
			if u.UID != os.Geteuid() && got[1] != strconv.Itoa(u.GID) {
				t.Errorf("groups %q, want only %d", got[1], u.GID)
			}
		})
	}
	if u := Unprivileged(t); u.Root() {
		t.Error("the unprivileged user is root")
	}
}

func TestInstallIsReachable(t *testing.T) {
	u := Unprivileged(t)
	dir := Install(t, "/bin/true")
	if err := u.Command(t.Context(), u.Dir(t), filepath.Join(dir, "true")).Run(); err != nil {
		t.Error(err)
	}
}
