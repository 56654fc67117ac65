package native

import "testing"

func TestCoveredProc(t *testing.T) {
	const root = "20 1 0:19 / / rw - tmpfs none rw\n"
	const proc = "21 20 0:20 / /proc rw,nosuid shared:5 - proc proc rw\n"
	for name, c := range map[string]struct{ table, want string }{
		"whole":            {root + proc, ""},
		"binfmt_misc":      {root + proc + "30 21 0:30 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw\n", ""},
		"masked file":      {root + proc + "31 21 0:5 /null /proc/kcore rw - devtmpfs udev rw\n", "/proc/kcore"},
		"read-only sysctl": {root + proc + "32 21 0:20 /sys /proc/sys ro - proc proc rw\n", "/proc/sys"},
		"another is whole": {root + proc + "31 21 0:5 /null /proc/kcore rw - devtmpfs udev rw\n33 20 0:21 / /x rw - proc proc rw\n", ""},
		"none":             {root, "/proc"},
		"below a name":     {root + proc + "34 20 0:22 / /procession/x rw - tmpfs none rw\n", ""},
		"broken":           {"1 2\n", "/proc"},
	} {
		if got := coveredProc(c.table); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
