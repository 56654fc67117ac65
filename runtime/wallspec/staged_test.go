package wallspec

import "testing"

func TestStaged(t *testing.T) {
	m := newMachine()
	p := mustBuild(t, Request{Staged: true}, m.host(1000))
	if !p.Summary.Writable || !p.Spec.Trees[0].Writable || p.Summary.Reason != "--staged" {
		t.Errorf("a staged workspace is read-only: %+v", p.Summary)
	}
	if want := m.host(1000).Dirs.State + "/changes"; p.StageStore != want {
		t.Errorf("changes are kept in %q, want %q", p.StageStore, want)
	}
	if p := mustBuild(t, Request{Write: true}, m.host(1000)); p.StageStore != "" {
		t.Errorf("a live session keeps changes in %q", p.StageStore)
	}
	wantError(t, Request{Staged: true, ReadOnly: true}, m.host(1000), "contradict")
}

// TestStageStore: what root keeps for others must be reachable for them and writable for root alone, so it is neither among
// root's state nor beside their private homes.
func TestStageStore(t *testing.T) {
	m := newMachine()
	for _, tt := range []struct {
		caller, session int
		want            string
	}{
		{1000, 1000, m.host(1000).Dirs.State + "/changes"},
		{0, 0, m.host(0).Dirs.State + "/changes"},
		{0, 1000, "/var/lib/coworker/changes"},
	} {
		if got := StageStore(m.host(tt.caller), tt.session); got != tt.want {
			t.Errorf("uid %d for uid %d: %q, want %q", tt.caller, tt.session, got, tt.want)
		}
	}
}
