package egress

import (
	"testing"
	"time"

	"coworker/enforce"
	"coworker/enforce/cgroup"
)

func TestScratch(t *testing.T) {
	g, err := cgroup.New("scratch-egress", enforce.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Remove()
	for range 10 {
		start := time.Now()
		p, err := Attach("/sys/fs/cgroup/unified/coworker/scratch-egress", nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(time.Since(start))
		t.Log(p.Hooks())
		start = time.Now()
		t.Log(p.Check(), time.Since(start))
		start = time.Now()
		t.Log(p.Close(), time.Since(start))
	}
}
