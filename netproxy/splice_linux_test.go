package netproxy

import "testing"

// Without pipes everything is copied, and what is held is given back.
func TestNoPipes(t *testing.T) {
	moving.mu.Lock()
	held, idle := maxPipes-moving.out, moving.idle
	moving.out, moving.idle = maxPipes, nil
	moving.mu.Unlock()
	t.Run("tunnel", TestBulkTunnel)
	t.Run("body", TestLongBody)
	t.Run("cut", TestLongBodyCut)
	moving.mu.Lock()
	defer moving.mu.Unlock()
	if moving.out != maxPipes {
		t.Errorf("%d pipes are counted as held, want %d", moving.out, maxPipes)
	}
	moving.out, moving.idle = moving.out-held, idle
}

// A pipe with octets in it is never used again.
func TestPipeNotEmpty(t *testing.T) {
	var p pipes
	a, ok := p.get()
	if !ok {
		t.Fatal("no pipe")
	}
	p.put(a, false)
	if len(p.idle) != 0 || p.out != 0 {
		t.Errorf("%d idle, %d held", len(p.idle), p.out)
	}
	all := []pipe{}
	for {
		x, ok := p.get()
		if !ok {
			break
		}
		all = append(all, x)
	}
	if len(all) != maxPipes {
		t.Errorf("%d pipes, want %d", len(all), maxPipes)
	}
	for _, x := range all {
		p.put(x, false)
	}
}
