package egress

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"coworker/enforce"
)

// own are namespaces like those of a cell.
const own = syscall.CLONE_NEWNET | syscall.CLONE_NEWNS

// TestAttempts makes every attempt from where a process of a session may be.
func TestAttempts(t *testing.T) {
	for _, tt := range []struct {
		name       string
		namespaces uintptr
		permit     bool
		stranger   bool // not the process whose namespaces were permitted
	}{
		{"in the cell's namespaces", own, true, false},
		{"before they are permitted", own, false, false},
		{"in the host's namespaces", 0, true, false},
		{"in other namespaces than the cell's", own, true, true},
		{"in the cell's network and another mount namespace", syscall.CLONE_NEWNET, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newGroup(t)
			p := attachTo(t, g, literal4, literal6)
			m := start(t, g, "attempts", tt.namespaces)
			keeper := m
			if tt.stranger {
				keeper = start(t, g, "attempts", own)
			}
			if tt.permit {
				if err := p.Permit(keeper.cmd.Process.Pid); err != nil {
					t.Fatal(err)
				}
			}
			got, told := m.attempt(t), heard(t, p)
			inside := tt.permit && tt.namespaces&syscall.CLONE_NEWNET != 0 && !tt.stranger
			for _, a := range attempts {
				if lacks(p, a.hook) {
					continue // without its program a kernel does what it would do anyway
				}
				wantAttempt(t, a, got[a.name], inside || a.hook == "" || !tt.permit && len(a.inside) > 0 && a.inside[0] == "ok")
			}
			wantTold(t, told, m.cmd.Process.Pid, got)
		})
	}
}

func lacks(p *Programs, hook string) bool {
	return slices.ContainsFunc(p.missing, func(m string) bool { return strings.HasPrefix(m, hook+": ") })
}

// TestHooks prints what this kernel takes, for the tests that run this one in other kernels.
func TestHooks(t *testing.T) {
	p := attachTo(t, newGroup(t))
	names, missing := p.Hooks()
	if len(names)+len(missing) != len(hooks) {
		t.Errorf("%v and %v, want %d", names, missing, len(hooks))
	}
	t.Logf("hooks: %s; missing: %s", strings.Join(names, " "), strings.Join(missing, ", "))
}

func wantAttempt(t *testing.T, a attempt, got string, inside bool) {
	t.Helper()
	want := a.inside
	if !inside || len(want) == 0 {
		want = []string{"EPERM"}
	}
	if !slices.Contains(want, got) {
		t.Errorf("%s: %s, want %v", a.name, got, want)
	}
}

// wantTold wants one piece of news for each attempt that was refused.
func wantTold(t *testing.T, told []enforce.Refusal, pid int, got map[string]string) {
	t.Helper()
	refused := 0
	for _, errno := range got {
		if errno == "EPERM" {
			refused++
		}
	}
	if len(told) != refused {
		t.Errorf("%d attempts were refused, and %d told", refused, len(told))
	}
	for _, r := range told {
		if r.Pid != pid || r.Comm != "exe" || r.Source != enforce.SourceEBPF || r.What == "" || time.Since(r.Time).Abs() > time.Minute {
			t.Errorf("told %+v of process %d", r, pid)
		}
	}
}

// TestTold wants each program to say what it refused, in words.
func TestTold(t *testing.T) {
	g := newGroup(t)
	p := attachTo(t, g)
	m := start(t, g, "attempts", own)
	if err := p.Permit(m.cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	m.attempt(t)
	var got []string
	for _, r := range heard(t, p) {
		got = append(got, fmt.Sprintf("%s|%s|%s|%s", r.Wall, r.Hook, r.What, r.Needed))
	}
	for _, want := range []string{
		"net.egress|connect4|tcp 203.0.113.9:8080|--allow 203.0.113.9:8080",
		"net.egress|connect6|tcp [2001:db8::9]:8080|--allow [2001:db8::9]:8080",
		"net.egress|connect6|tcp 203.0.113.9:8080|--allow 203.0.113.9:8080",
		"net.egress|connect4|tcp 169.254.169.254:8080|",
		"net.egress|connect4|tcp 10.0.0.1:8080|",
		"net.egress|sendmsg4|udp 203.0.113.9:8080|",
		"net.egress|bind4|server on 203.0.113.9:8080|",
		"net.egress|sock_create|socket inet stream protocol 262|",
		"net.egress|sock_create|socket inet raw protocol 255|",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("nothing told %q; got\n%s", want, strings.Join(got, "\n"))
		}
	}
}

// TestDetached takes each program off from outside, as root can. Check must notice, and name it.
func TestDetached(t *testing.T) {
	g := newGroup(t)
	p := attachTo(t, g)
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	for _, a := range p.attached {
		if a.hook.wall == "" {
			continue
		}
		t.Run(a.hook.name, func(t *testing.T) {
			g := newGroup(t)
			p := attachTo(t, g)
			detach(t, p, a.hook.name)
			if err := p.Check(); err == nil || !strings.Contains(err.Error(), "program "+a.hook.name+" was taken off") {
				t.Errorf("Check says %v", err)
			}
		})
	}
}

// detach takes a program's link off as another process of root would: by its number.
func detach(t *testing.T, p *Programs, name string) {
	t.Helper()
	i := slices.IndexFunc(p.attached, func(a attached) bool { return a.hook.name == name })
	info, err := p.attached[i].link.Info()
	if err != nil {
		t.Fatal(err)
	}
	l, err := link.NewFromID(info.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.Detach(); err != nil {
		t.Fatal(err)
	}
}

// TestGroupRemoved: a group that is gone has no programs.
func TestGroupRemoved(t *testing.T) {
	g := newGroup(t)
	p := attachTo(t, g)
	if err := g.Remove(); err != nil {
		t.Fatal(err)
	}
	if err := p.Check(); err == nil {
		t.Error("the group is gone, and Check says nothing")
	}
}

// TestFlood makes more attempts than the buffer has room for. All are refused, and told or counted.
func TestFlood(t *testing.T) {
	const many = 20_000
	g := newGroup(t)
	p := attachTo(t, g)
	m := start(t, g, fmt.Sprintf("flood:%d", many), own)
	m.in.Write([]byte("\n"))
	if line, err := m.out.ReadString('\n'); err != nil {
		t.Fatalf("the process inside said %q: %v", line, err)
	}
	told := int64(len(heard(t, p)))
	if told == many || told+p.Unheard() != many {
		t.Errorf("%d attempts: %d told, %d counted", many, told, p.Unheard())
	}
}

// TestPackets: a socket that was connected before the programs came is asked no more, but its packets are.
func TestPackets(t *testing.T) {
	for _, permit := range []bool{true, false} {
		t.Run(fmt.Sprintf("permitted %v", permit), func(t *testing.T) {
			g := newGroup(t)
			m := start(t, g, "late", own)
			if got := m.attempt(t); len(got) != 2 || got["far"] != "ok" || got["loopback"] != "ok" {
				t.Fatalf("without programs: %v", got)
			}
			p := attachTo(t, g)
			want := map[string]string{"far": "EPERM", "loopback": "EPERM"}
			if permit {
				if err := p.Permit(m.cmd.Process.Pid); err != nil {
					t.Fatal(err)
				}
				want["loopback"] = "ok"
			}
			if got := m.attempt(t); !maps.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			told := heard(t, p)
			if i := slices.IndexFunc(told, func(r enforce.Refusal) bool {
				return r.Hook == "skb" && r.What == "packet to 203.0.113.9" && r.Pid == 0
			}); i < 0 {
				t.Errorf("told %+v", told)
			}
		})
	}
}

// TestExec wants the start of a program to be told, and that of one outside not.
func TestExec(t *testing.T) {
	g := newGroup(t)
	p := attachTo(t, g)
	start(t, newGroup(t), "attempts", own)
	m := start(t, g, "exec", own)
	m.in.Write([]byte("\n"))
	if line, err := m.out.ReadString('\n'); line != "done\n" {
		t.Fatalf("the process inside said %q: %v", line, err)
	}
	var started []string
	for _, r := range heard(t, p) {
		// The member's own start is told after its parent knows of it: the move into the group may come between.
		if r.Hook == enforce.HookExec && r.Wall == "" && r.What != "/proc/self/exe" {
			started = append(started, r.What)
		}
	}
	if !slices.Equal(started, []string{"/bin/true"}) {
		t.Errorf("started %q", started)
	}
}

// TestNothingLeft counts programs, maps and links of this kernel before and after.
func TestNothingLeft(t *testing.T) {
	before := mine(t)
	var all []*Programs
	for range 5 {
		p, err := Attach(newGroup(t).Unified(), nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if during := mine(t); during < before+5*8 {
		t.Errorf("%d programs, maps and links with five sessions, %d without: the count sees nothing", during, before)
	}
	for _, p := range all {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	// The kernel frees them after a grace period.
	deadline := time.Now().Add(10 * time.Second)
	for mine(t) > before && time.Now().Before(deadline) {
		time.Sleep(20 * time.Millisecond)
	}
	if after := mine(t); after > before {
		t.Errorf("%d programs, maps and links before, %d after", before, after)
	}
}

// mine counts what has the names that this package gives.
func mine(t *testing.T) int {
	t.Helper()
	spec, err := loadPrograms()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for id := ebpf.ProgramID(0); ; {
		if id, err = ebpf.ProgramGetNextID(id); err != nil {
			break
		}
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue // it has ended meanwhile
		}
		if info, err := p.Info(); err == nil && spec.Programs[info.Name] != nil {
			n++
		}
		p.Close()
	}
	for id := ebpf.MapID(0); ; {
		if id, err = ebpf.MapGetNextID(id); err != nil {
			break
		}
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			continue
		}
		if info, err := m.Info(); err == nil && spec.Maps[info.Name] != nil {
			n++
		}
		m.Close()
	}
	return n
}

// TestSideBySide: one session's namespace is none of another's business.
func TestSideBySide(t *testing.T) {
	var work sync.WaitGroup
	for range 8 {
		g := newGroup(t)
		p := attachTo(t, g)
		m := start(t, g, "attempts", own)
		work.Go(func() {
			if err := p.Permit(m.cmd.Process.Pid); err != nil {
				t.Error(err)
				return
			}
			got := m.attempt(t)
			if got["tcp4 far"] != "EPERM" || got["tcp4 loopback"] != "ENETUNREACH" {
				t.Errorf("%v", got)
			}
			wantTold(t, heard(t, p), m.cmd.Process.Pid, got)
		})
	}
	work.Wait()
}

func TestAttachRefuses(t *testing.T) {
	for _, dir := range []string{t.TempDir(), "/nonexistent"} {
		if p, err := Attach(dir, nil); err == nil {
			p.Close()
			t.Errorf("programs on %s", dir)
		}
	}
}

func TestPermitRefuses(t *testing.T) {
	p := attachTo(t, newGroup(t))
	if err := p.Permit(1 << 30); err == nil {
		t.Error("the namespaces of no process were permitted")
	}
}

func BenchmarkAttach(b *testing.B) {
	g := newGroup(b)
	for b.Loop() {
		p, err := Attach(g.Unified(), nil)
		if err != nil {
			b.Fatal(err)
		}
		if err := p.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkNetwork measures on the loopback of a namespace what the programs cost: a connection made and closed, and
// bytes through one.
func BenchmarkNetwork(b *testing.B) {
	for _, what := range []string{"connections", "bytes"} {
		for _, with := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s, programs %v", what, with), func(b *testing.B) {
				g := newGroup(b)
				m := start(b, g, fmt.Sprintf("measure:%s %d", what, b.N), own)
				if with {
					if err := attachTo(b, g).Permit(m.cmd.Process.Pid); err != nil {
						b.Fatal(err)
					}
				}
				if what == "bytes" {
					b.SetBytes(chunk)
				}
				b.ResetTimer()
				m.in.Write([]byte("\n"))
				if line, err := m.out.ReadString('\n'); line != "done\n" {
					b.Fatalf("the process inside said %q: %v", line, err)
				}
			})
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	p := attachTo(b, newGroup(b))
	for b.Loop() {
		if err := p.Check(); err != nil {
			b.Fatal(err)
		}
	}
}
