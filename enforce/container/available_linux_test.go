package container

import (
	"os"
	"testing"

	"coworker/enforce"
)

func TestDeviceRules(t *testing.T) {
	for _, tt := range []struct {
		name, groups string
		want         bool
	}{
		{"v2", "0::/a\n", true},
		{"v1", "5:devices:/\n4:memory:/\n", true},
		{"joined", "5:devices,freezer:/\n", true},
		{"hybrid", "5:devices:/\n0::/\n", true},
		{"hybrid without devices", "4:memory:/\n0::/\n", false},
		{"a name that begins alike", "4:devices2:/\n0::/\n", false},
		{"named", "1:name=devices:/\n", false},
		{"none", "", false},
	} {
		if got := deviceRules(tt.groups); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestAvailable(t *testing.T) {
	none := enforce.Availability{Backend: enforce.Native, Cause: "no namespaces", Remedy: "more of them"}
	if a := Available(enforce.Availability{Backend: enforce.Native, OK: true}); a.Backend != enforce.Container || a.OK != (os.Geteuid() == 0) || a.OK == (a.Cause != "") {
		t.Errorf("%+v", a)
	}
	if a := Available(none); a.OK || a.Cause == "" || a.Remedy == "" || os.Geteuid() == 0 && a.Cause != none.Cause {
		t.Errorf("%+v", a)
	}
}
