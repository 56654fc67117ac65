package egress

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf/link"

	"coworker/integration/house/testuser"
)

// byRoot runs a test as the user who may put programs on a control group.
func byRoot(t *testing.T, f func(t *testing.T, u testuser.User)) {
	for _, u := range testuser.All(t) {
		if u.Root() {
			t.Run(u.String(), func(t *testing.T) { f(t, u) })
		}
	}
}

// TestEachAlone makes every attempt with one of the two walls around the network left out.
func TestEachAlone(t *testing.T) {
	all := ways(t)
	byRoot(t, func(t *testing.T, u testuser.User) {
		t.Run("namespace", func(t *testing.T) {
			r := inside(t, u, all, setting{fault: "ebpf"}).report
			if slices.Contains(r.Watching, "ebpf") || len(told(r)) > 0 {
				t.Errorf("the programs were not left out: watching %v", r.Watching)
			}
		})
		t.Run("namespace with rules", func(t *testing.T) { inside(t, u, all, setting{fault: "ebpf", allow: true}) })
		t.Run("programs", func(t *testing.T) {
			b := inside(t, u, all, setting{fault: "net.egress", level: "partial"})
			r := b.report
			rows := b.world.rows(t, built)
			wantRow(t, rows, "net", "denied", "sock_create refused it to smuggler")
			wantRow(t, rows, "net", "denied", "times in all")
			wantRow(t, rows, "exec", "ran", "process")
			// The kinds of sockets that the system-call filter lets through, and a local one.
			for _, want := range []string{"socket inet stream protocol 6", "socket inet6 stream protocol 6", "socket inet dgram protocol 17", "socket inet6 dgram protocol 17", "local socket"} {
				if !slices.Contains(told(r), want) {
					t.Errorf("the report does not say that %q was refused: %v", want, told(r))
				}
			}
		})
	})
}

// told is what a report says that the programs refused.
func told(r report) []string {
	var all []string
	for _, d := range r.Denials {
		if d.Source == "ebpf" {
			all = append(all, d.What)
		}
	}
	return all
}

// TestDetach takes each program off its group in the middle of a session, as another process of root can. The session
// must end, and say which one it was.
func TestDetach(t *testing.T) {
	byRoot(t, func(t *testing.T, u testuser.User) {
		first := startSession(t, u, built, "ok.test:443")
		links := linksOf(t, first)
		first.goOn(t, true)
		first.want(t, exitFine, "")
		if left := linksOf(t, first); len(left) > 0 {
			t.Errorf("links %v outlive their session", left)
		}
		if len(links) < 8 {
			t.Fatalf("links %v on the group", links)
		}
		for hook := range links {
			t.Run(hook, func(t *testing.T) {
				s := startSession(t, u, built, "ok.test:443")
				l, err := link.NewFromID(linksOf(t, s)[hook])
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				if err := l.Detach(); err != nil {
					t.Fatal(err)
				}
				s.want(t, exitWalls, "was taken off the control group")
				wantRow(t, s.rows(t), "wall", "fallen", "was taken off the control group")
			})
		}
	})
}

// TestDetachedAtTheEnd: a session that ends before the next look at its programs has a last one.
func TestDetachedAtTheEnd(t *testing.T) {
	byRoot(t, func(t *testing.T, u testuser.User) {
		s := startSession(t, u, built, "ok.test:443")
		l, err := link.NewFromID(linksOf(t, s)["BPF_CGROUP_INET4_CONNECT"])
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if err := l.Detach(); err != nil {
			t.Fatal(err)
		}
		io.WriteString(s.stdin, "\n") // unless the session has ended already
		s.stdin.Close()
		s.want(t, exitWalls, "was taken off the control group")
	})
}

func wantRow(t *testing.T, rows []row, stage, status, reason string) {
	t.Helper()
	if !slices.ContainsFunc(rows, func(r row) bool { return r.Stage == stage && r.Status == status && strings.Contains(r.Reason, reason) }) {
		t.Errorf("no row of stage %s and status %s says %q: %+v", stage, status, reason, rows)
	}
}

// linksOf gives the links on the control group of a session, by what they are attached to.
func linksOf(t *testing.T, s *session) map[string]link.ID {
	t.Helper()
	group := s.group
	if group == 0 {
		group = groupOf(t, s)
		s.group = group
	}
	found := map[string]link.ID{}
	links := new(link.Iterator)
	defer links.Close()
	for links.Next() {
		info, err := links.Link.Info()
		if err != nil {
			continue // it has ended meanwhile
		}
		if c := info.Cgroup(); c != nil && c.CgroupId == group {
			found[fmt.Sprint(c.AttachType)] = info.ID
		}
	}
	if err := links.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

// groupOf gives the id of the control group that the processes of a session are in.
func groupOf(t *testing.T, s *session) uint64 {
	t.Helper()
	below, err := descendants(s.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range below {
		data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		for line := range strings.Lines(string(data)) {
			name, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
			if !ok || !strings.Contains(name, "/coworker/") {
				continue
			}
			for _, mount := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
				if info, err := os.Stat(filepath.Join(mount, name)); err == nil {
					return info.Sys().(*syscall.Stat_t).Ino
				}
			}
		}
	}
	t.Fatalf("none of the processes %v is in a control group of a session", below)
	return 0
}
