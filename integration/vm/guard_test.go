package vm

import (
	"path/filepath"
	"testing"
	"time"

	"coworker/integration/vm/guest"
)

func TestGuard(t *testing.T) {
	program := filepath.Join(t.TempDir(), "guestguard")
	if err := BuildStatic(t.Context(), "coworker/integration/vm/guestguard", program); err != nil {
		t.Fatal(err)
	}
	box, err := BusyBox(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	files := append(box, File{Path: "/usr/local/bin/guestguard", Mode: 0o755, Source: program})
	for _, k := range Kernels() {
		t.Run(k.Name, func(t *testing.T) {
			got := boot(t, k, Guest{Files: files, Cmdline: []string{"lsm=landlock,lockdown,yama,bpf"}, Timeout: 2 * DefaultLife, Cases: []Case{
				{Name: "guard", User: guest.Root, Argv: []string{"guestguard"}, Timeout: 5 * time.Minute},
			}})
			t.Logf("%s", got["guard"].Stdout)
			t.Logf("%s", got["guard"])
		})
	}
}
