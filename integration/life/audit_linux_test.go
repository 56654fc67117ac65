package life

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"coworker/integration/house/testuser"
)

// TestRecordSurvivesKills kills the released program at random points; the record must verify.
func TestRecordSurvivesKills(t *testing.T) {
	for _, u := range testuser.All(t) {
		t.Run(u.String(), func(t *testing.T) {
			programs := testuser.Install(t, "../../bin/coworker", "../../bin/coworker-cell", "../../bin/coworker-proxy")
			home := u.Dir(t)
			work := filepath.Join(home, "work")
			if err := os.Mkdir(work, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := u.Own(home); err != nil {
				t.Fatal(err)
			}
			coworker := func(args ...string) *exec.Cmd {
				cmd := u.Command(t.Context(), home, filepath.Join(programs, "coworker"), args...)
				cmd.Dir = work
				return cmd
			}
			for i := range 12 {
				cmd := coworker("exec", "-w", "--", "/bin/sh", "-c", "echo x >>f; sleep 0.2")
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				timer := time.NewTimer(time.Duration(i*25) * time.Millisecond)
				<-timer.C
				cmd.Process.Kill()
				cmd.Wait() // killed
			}
			out, err := coworker("exec", "-w", "--", "/bin/true").CombinedOutput()
			if err != nil {
				t.Fatalf("afterwards: %v\n%s", err, out)
			}
			if out, err := coworker("audit", "verify").CombinedOutput(); err != nil {
				t.Errorf("verify: %v\n%s", err, out)
			}
			out, err = coworker("audit", "list").CombinedOutput()
			if err != nil || bytes.Count(out, []byte("\n")) < 2 {
				t.Errorf("list: %v\n%s", err, out)
			}
		})
	}
}
