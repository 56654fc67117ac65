package life

import (
	"os"
	"strings"
	"testing"

	"coworker/enforce"
	"coworker/integration/house/testuser"
	"coworker/integration/life/plan"
)

// hardenedJob asks for the highest level, in a staged session: live ones only sweep names that were absent.
func hardenedJob(fault enforce.Wall) job {
	return job{Place: plan.Place{Level: "hardened", Staged: true}, Fault: fault}
}

// TestHardenedNeedsBothHalves leaves out one mechanism at a time. Every wall still holds then, and the level must not be
// reached, with words about the promise that rests on the other mechanism alone.
func TestHardenedNeedsBothHalves(t *testing.T) {
	for _, u := range testuser.All(t) {
		t.Run(u.String(), func(t *testing.T) {
			if os.Geteuid() != 0 || u.UID != os.Geteuid() {
				// Without privileges and without the helper there are no kernel programs.
				wantLacking(t, runFault(t, u, hardenedJob("")), "IP egress")
				return
			}
			if all := runFault(t, u, hardenedJob("")); len(all) != 2 || all[0].Event != "open" || all[0].Level != "hardened" {
				t.Errorf("with everything: %+v", all)
			}
			wantLacking(t, runFault(t, u, hardenedJob(enforce.Wall(enforce.EBPF))), "IP egress")
			wantLacking(t, runFault(t, u, hardenedJob(enforce.Wall(enforce.Landlock))), "content reads")
			live := hardenedJob("")
			live.Staged = false
			wantLacking(t, runFault(t, u, live), "swept, not stopped")
		})
	}
}

func wantLacking(t *testing.T, all []said, promise string) {
	t.Helper()
	if len(all) != 1 || all[0].Event != "refused" || all[0].Level != "enforced" || !strings.Contains(strings.Join(all[0].Missing, "\n"), promise) {
		t.Errorf("want a refusal at level enforced that names %q: %+v", promise, all)
	}
}
