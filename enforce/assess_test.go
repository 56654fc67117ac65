package enforce

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// fullEvidence is what a session shows that is Hardened: the least that is enough.
func fullEvidence() Evidence {
	e := Evidence{Mechanisms: map[Wall][]Mechanism{}}
	for _, w := range Walls() {
		e.Mechanisms[w] = []Mechanism{Supervisor}
		e.Probes = append(e.Probes, Probe{Name: string(w) + "/some", Wall: w, Want: Stopped, Got: Stopped})
	}
	e.Probes = append(e.Probes, Probe{Name: "fs.protect/absent", Wall: FSProtect, Part: PartAbsent, Want: Stopped, Got: Stopped})
	for _, c := range critical {
		for _, name := range c.probes {
			wall, _, _ := strings.Cut(name, "/")
			for _, half := range []Half{Namespaces, Second} {
				e.Probes = append(e.Probes, Probe{Name: name, Wall: Wall(wall), Want: Stopped, Got: Stopped, Alone: half})
			}
		}
	}
	for _, name := range bounded {
		e.Limits = append(e.Limits, Limit{Name: name, Active: true})
	}
	return e
}

func TestHardenedNeedsEveryPiece(t *testing.T) {
	if a := Assess(fullEvidence()); a.Level != Hardened || len(a.Lacking) != 0 {
		t.Fatalf("with everything: %s, lacking %q", a.Level, a.Lacking)
	}
	for i, p := range fullEvidence().Probes {
		for _, got := range []Outcome{Leaked, Inconclusive} {
			e := fullEvidence()
			e.Probes[i].Got = got
			want := Enforced
			if p.Alone == "" && p.Wall != Res {
				want = Partial
			}
			a := Assess(e)
			if p.Wall == Res {
				continue // res is made of limits
			}
			if a.Level != want || len(a.Lacking)+len(a.Missing) == 0 {
				t.Errorf("%s (%s) %s: level %s, want %s; lacking %q", p.Name, p.Alone, got, a.Level, want, a.Lacking)
			}
		}
		if p.Alone == "" && p.Part == "" {
			continue
		}
		e := fullEvidence()
		e.Probes = slices.Delete(e.Probes, i, i+1)
		if a := Assess(e); a.Level != Enforced || len(a.Lacking) != 1 {
			t.Errorf("without %s (%s): level %s, lacking %q", p.Name, p.Alone, a.Level, a.Lacking)
		}
	}
	for i, l := range fullEvidence().Limits {
		e := fullEvidence()
		e.Limits[i].Active = false
		if a := Assess(e); a.Level != Enforced || !strings.Contains(fmt.Sprint(a.Lacking), l.Name) {
			t.Errorf("without the limit %s: level %s, lacking %q", l.Name, a.Level, a.Lacking)
		}
	}
}

// Swept is enough for Enforced, and never for Hardened.
func TestSweptIsNotHardened(t *testing.T) {
	e := fullEvidence()
	for i, p := range e.Probes {
		if p.Part == PartAbsent {
			e.Probes[i].Got = Swept
		}
	}
	if a := Assess(e); a.Level != Enforced || len(a.Lacking) != 1 || !strings.Contains(a.Lacking[0], "swept") {
		t.Errorf("level %s, lacking %q", a.Level, a.Lacking)
	}
}

// What one half shows alone never counts for a wall as a whole: it was not the session's wall that was attacked.
func TestAloneIsNoProofOfAWall(t *testing.T) {
	e := fullEvidence()
	e.Probes = slices.DeleteFunc(e.Probes, func(p Probe) bool { return p.Wall == NetLocal && p.Alone == "" })
	if a := Assess(e); a.Level != Partial || a.Walls[NetLocal].Verified {
		t.Errorf("level %s, net.local %+v", a.Level, a.Walls[NetLocal])
	}
}
