package native

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
)

// TestAvailableHere: the machines that run this suite can have the backend.
func TestAvailableHere(t *testing.T) {
	if a := Available(context.Background()); !a.OK {
		t.Errorf("%+v", a)
	}
}

func TestExplain(t *testing.T) {
	eperm := errors.New("operation not permitted")
	for _, tt := range []struct {
		name          string
		settings      map[string]string
		userOnly      bool
		cause, remedy string
	}{
		{"no namespaces at all", map[string]string{"user/max_user_namespaces": "0"}, false, "user.max_user_namespaces is 0", "sysctl -w user.max_user_namespaces"},
		{"not for users", map[string]string{"kernel/unprivileged_userns_clone": "0"}, true, "unprivileged_userns_clone is 0", "sysctl -w kernel.unprivileged_userns_clone=1"},
		{"AppArmor", map[string]string{"kernel/apparmor_restrict_unprivileged_userns": "1"}, true, "AppArmor", "apparmor_parser -r"},
		{"something else", nil, false, eperm.Error(), "--level partial"},
		{"a number that is none", map[string]string{"user/max_user_namespaces": "x"}, false, eperm.Error(), "--level partial"},
	} {
		if tt.userOnly && os.Geteuid() == 0 {
			continue // root is not held back by these
		}
		cause, remedy := explain(eperm, func(name string) string { return tt.settings[name] })
		if !strings.Contains(cause, tt.cause) || !strings.Contains(remedy, tt.remedy) {
			t.Errorf("%s: %q, %q", tt.name, cause, remedy)
		}
	}
}
