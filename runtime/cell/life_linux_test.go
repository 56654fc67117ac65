package cell_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"coworker/runtime/wire"
)

// gone waits until nobody holds the command's standard output any more. The pipe knows, whatever
// namespaces hide.
func (r *running) gone() error {
	r.stdout.SetReadDeadline(time.Now().Add(patience))
	_, err := r.stdout.Read(make([]byte, 1))
	switch err {
	case io.EOF:
		return nil
	case nil:
		return errors.New("unexpected output")
	}
	return fmt.Errorf("a process of command %d lives: %w", r.id, err)
}

func TestBackgroundProcessOutlivesItsParent(t *testing.T) {
	each(t, worlds, func(t *testing.T, s *session) {
		r := s.begin(shell("exec 3<&0; (read line <&3; echo got $line) & exit 7"))
		if got := r.exited(); got.Code != 7 {
			t.Fatalf("%+v", got)
		}
		// The shell gives background jobs /dev/null as their input, hence descriptor 3.
		if _, err := r.stdin.Write([]byte("after\n")); err != nil {
			t.Fatal(err)
		}
		if got := r.line(); got != "got after" {
			t.Errorf("background process says %q", got)
		}
	})
}

// daemon leaves its session, its parent and its process group.
const daemon = "setsid sh -c 'setsid sh -c \"trap : TERM HUP INT; echo up; while :; do sleep 1000; done\" & exit' & exit 0"

func TestDaemonsDieByKillAll(t *testing.T) {
	each(t, worlds, func(t *testing.T, s *session) {
		var all []*running
		for range 5 {
			r := s.begin(shell(daemon))
			if got := r.line(); got != "up" {
				t.Fatalf("got %q", got)
			}
			r.exited()
			all = append(all, r)
		}
		if n := s.killAll(); n < 5 {
			t.Errorf("killed %d processes, want at least 5", n)
		}
		for _, r := range all {
			if err := r.gone(); err != nil {
				t.Error(err)
			}
		}
		if got := s.run(command("/bin/true"), nil); got.Code != 0 {
			t.Errorf("after KillAll: %+v", got.Exited)
		}
		if n := s.killAll(); n != 0 {
			t.Errorf("killed %d processes of none", n)
		}
	})
}

func TestKilledComesAfterEveryExited(t *testing.T) {
	each(t, namespaces[:2], func(t *testing.T, s *session) {
		for range 20 {
			s.begin(command("/bin/sleep", "1000"))
		}
		s.killAll()
		exited := 0
		for _, f := range s.backlog {
			if f.Type == wire.TypeExited {
				exited++
			}
		}
		if exited != 20 {
			t.Errorf("%d of 20 Exited came before Killed", exited)
		}
	})
}

func TestEndOfWireKillsEverything(t *testing.T) {
	each(t, worlds, func(t *testing.T, s *session) {
		r := s.begin(shell(daemon))
		if got := r.line(); got != "up" {
			t.Fatalf("got %q", got)
		}
		r.exited()
		busy := s.begin(shell("trap : TERM; while :; do :; done"))
		if code := s.end(); code != 0 {
			t.Errorf("cell ended with %d: %s", code, s.stderr.String())
		}
		for _, r := range []*running{r, busy} {
			if err := r.gone(); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestKilledCellTakesItsCommandsAlong(t *testing.T) {
	each(t, worlds, func(t *testing.T, s *session) {
		var all []*running
		for range 3 {
			r := s.begin(shell("echo up; exec sleep 1000"))
			r.line()
			all = append(all, r)
		}
		if err := unix.Kill(s.cellPID(t), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if code := s.wait(); code != 128+int(unix.SIGKILL) {
			t.Errorf("cell ended with %d: %s", code, s.stderr.String())
		}
		for _, r := range all {
			if err := r.gone(); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestSignalReachesTheGroup(t *testing.T) {
	each(t, worlds, func(t *testing.T, s *session) {
		r := s.begin(shell("sleep 1000 & sleep 1000 & echo up; wait"))
		if got := r.line(); got != "up" {
			t.Fatalf("got %q", got)
		}
		s.send(wire.TypeSignal, wire.Signal{ID: r.id, Signal: int(unix.SIGTERM)})
		if got := r.exited(); got.Signal != int(unix.SIGTERM) {
			t.Errorf("%+v", got)
		}
		if err := r.gone(); err != nil { // the sleeps held stdout
			t.Error(err)
		}
		// Ended and unknown commands are not an error.
		s.send(wire.TypeSignal, wire.Signal{ID: r.id, Signal: int(unix.SIGTERM)})
		s.send(wire.TypeSignal, wire.Signal{ID: 1 << 40, Signal: int(unix.SIGTERM)})
		s.send(wire.TypeResize, wire.Resize{ID: r.id})
		if got := s.run(command("/bin/true"), nil); got.Code != 0 {
			t.Errorf("%+v", got.Exited)
		}
	})
}

func TestStopHoldsAndContinueReleases(t *testing.T) {
	each(t, worlds, func(t *testing.T, s *session) {
		r := s.begin(shell("echo up; while read x; do echo $x; done"))
		r.line()
		s.send(wire.TypeStop, wire.Empty{})
		n := decode[wire.Stopped](t, s.await(0, wire.TypeStopped)).Processes
		if want := 1; n != want && !(n == -1 && strings.Contains(t.Name(), "noproc")) {
			t.Errorf("stopped %d processes, want %d", n, want)
		}
		s.send(wire.TypeStop, wire.Empty{}) // a second Stop must not take the first one's work for a person's
		s.await(0, wire.TypeStopped)
		r.stdin.Write([]byte("ping\n"))
		if err := r.stdout.SetReadDeadline(soon()); err != nil {
			t.Fatal(err)
		}
		if n, err := r.stdout.Read(make([]byte, 8)); err == nil {
			t.Errorf("a stopped process wrote %d bytes", n)
		}
		s.send(wire.TypeContinue, wire.Empty{})
		s.await(0, wire.TypeContinued)
		if got := r.line(); got != "ping" {
			t.Errorf("got %q", got)
		}
		r.stdin.Close()
		if got := r.exited(); got.Code != 0 {
			t.Errorf("%+v", got)
		}
	})
}

func TestForkBombIsStoppedAndKilled(t *testing.T) {
	// Every process forks one child that does the same, up to 200 at a time.
	const bomb = "ulimit -u 4000; i=0; while [ $i -lt 200 ]; do (while :; do /bin/true; done) & i=$((i+1)); done; echo up; wait"
	each(t, []world{subreaper, rootNS, userNS, userNoProc}, func(t *testing.T, s *session) {
		r := s.begin(shell(bomb))
		if got := r.line(); got != "up" {
			t.Fatalf("got %q", got)
		}
		s.send(wire.TypeStop, wire.Empty{})
		if n := decode[wire.Stopped](t, s.await(0, wire.TypeStopped)).Processes; n != -1 && n < 201 {
			t.Errorf("stopped %d processes, want at least 201", n)
		}
		if n := s.killAll(); n < 201 {
			t.Errorf("killed %d processes, want at least 201", n)
		}
		if err := r.gone(); err != nil {
			t.Error(err)
		}
	})
}

func TestTenThousandOrphansAreReaped(t *testing.T) {
	const orphans = "i=0; while [ $i -lt 5000 ]; do (: & : &) ; i=$((i+1)); done"
	each(t, []world{rootNS, userNS}, func(t *testing.T, s *session) {
		if got := s.run(shell(orphans), nil); got.Code != 0 {
			t.Fatalf("%+v %s", got.Exited, got.stderr)
		}
		s.killAll() // returns when nobody is left, zombies included
		got := s.run(shell("ls -d /proc/[0-9]* | wc -l; grep -c '' /proc/1/stat"), nil)
		if n := strings.Fields(string(got.stdout)); len(n) == 0 || n[0] > "4" || len(n[0]) != 1 {
			t.Errorf("processes left: %q", got.stdout)
		}
	})
}

func TestChildrenCannotEndTheCellBySignals(t *testing.T) {
	each(t, namespaces, func(t *testing.T, s *session) {
		// Every signal there is, KILL and STOP included: the kernel drops those two for PID 1.
		got := s.run(shell("for i in 1 2 3; do n=1; while [ $n -le 64 ]; do kill -$n 1 2>/dev/null; n=$((n+1)); done; done; echo done"), nil)
		if string(got.stdout) != "done\n" {
			t.Errorf("%q %+v", got.stdout, got.Exited)
		}
		if got := s.run(command("/bin/true"), nil); got.Code != 0 {
			t.Errorf("%+v", got.Exited)
		}
	})
}

func TestForgedFaultEndsOnlyTheSession(t *testing.T) {
	each(t, namespaces[:2], func(t *testing.T, s *session) {
		bystander := s.begin(shell("echo up; sleep 1000"))
		bystander.line()
		s.request(hostileCommand("forge"))
		if code := s.wait(); code == 0 {
			t.Error("the forged fault did nothing; the package documentation says otherwise")
		}
		if err := bystander.gone(); err != nil {
			t.Error(err)
		}
	})
}

func TestChildrenCannotReachTheCell(t *testing.T) {
	each(t, namespaces, func(t *testing.T, s *session) {
		got := s.run(hostileCommand("reach:1"), nil)
		if strings.Count(string(got.stdout), "stopped") != 7 || strings.Contains(string(got.stdout), "LEAKED") {
			t.Errorf("%s%s", got.stdout, got.stderr)
		}
	})
	t.Run("control", func(t *testing.T) {
		s := open(t, userNS)
		target := s.begin(shell("exec 3</dev/null; echo up; exec sleep 1000"))
		target.line()
		got := s.run(hostileCommand(fmt.Sprint("reach:", target.pid)), nil)
		if strings.Count(string(got.stdout), "LEAKED") < 4 {
			t.Errorf("the attacks do not work on a command either: %s", got.stdout)
		}
	})
}

func TestDescriptorsDoNotLeak(t *testing.T) {
	each(t, []world{userNS}, func(t *testing.T, s *session) {
		s.run(command("/bin/true"), nil)
		dir := fmt.Sprintf("/proc/%d/fd", s.cellPID(t))
		before := count(t, dir)
		for i := range 5000 {
			s.id++
			e := command("/bin/true")
			e.ID, e.TTY = s.id, i%10 == 0
			var files []*os.File
			if i%7 == 0 {
				e.Argv = words("/no/such/file")
			}
			if !e.TTY {
				files = []*os.File{null, null, null}
			}
			s.send(wire.TypeExec, e, files...)
			f := s.await(e.ID, wire.TypeStarted, wire.TypeExecFailed)
			f.Close()
			if f.Type == wire.TypeStarted {
				s.await(e.ID, wire.TypeExited)
			}
		}
		if after := count(t, dir); after > before {
			t.Errorf("%d descriptors before, %d after", before, after)
		}
	})
}

var null, _ = os.OpenFile("/dev/null", os.O_RDWR, 0)

// cellPID finds the cell: the only child of the launcher.
func (s *session) cellPID(t *testing.T) int {
	t.Helper()
	launcher := fmt.Sprint(s.launch.Process.Pid)
	tasks, err := filepath.Glob("/proc/" + launcher + "/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		children, err := os.ReadFile(task)
		var pid int
		if n, _ := fmt.Sscan(string(children), &pid); err == nil && n == 1 {
			return pid
		}
	}
	t.Fatalf("launcher %s has no child", launcher)
	return 0
}

func count(t *testing.T, dir string) int {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
