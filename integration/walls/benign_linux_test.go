package walls

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"coworker/integration/house/testuser"
)

// work is honest work. Every line must succeed inside, as it does outside.
type work struct {
	name  string
	flags []string
	run   string
}

const gitWork = `set -ex
git init -q r; cd r
git config user.name me 2>/dev/null || true
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
`

var honestWork = []work{
	{"git", nil, gitWork + `echo 1 > f; git add f; git commit -q -m one; git branch side; git switch -q side; echo 2 > g; git add g; git commit -q -m two
git switch -q -; echo 3 > h; git add h; git commit -q -m three; git rebase -q side; git log --oneline | grep -c . | grep -q 3
echo 4 >> f; git stash -q; git stash pop -q; git commit -q -am four; git tag v1; git tag -a v2 -m v2; git switch -q -c topic; echo 5 > i; git add i; git commit -q -m five
git switch -q -; git merge -q --no-ff -m merge topic; git worktree add -q ../tree topic; (cd ../tree; echo 6 > j; git add j; git commit -q -m six)
git worktree list | grep -c . | grep -q 2; git worktree remove ../tree; git gc -q; git fsck; git reset -q --hard HEAD~1; git cherry-pick v1 || git cherry-pick --skip || true
git clone -q . ../copy; git -C ../copy log -1 --format=%s; test -z "$(git status --porcelain)"`},
	{"git-submodule", nil, gitWork + `git commit -q --allow-empty -m one; git init -q ../lib; git -C ../lib commit -q --allow-empty -m lib
git -c protocol.file.allow=always submodule --quiet add ../lib lib; git commit -q -m sub; git submodule status | grep -q lib; test -f .gitmodules`},
	{"git-existing", nil, `set -ex; cd ../present; echo 2 > f; git add f; git -c user.name=a -c user.email=a@b commit -q -m two; git checkout -q -b side; git worktree add -q ../present-tree; git -C ../present-tree status
git worktree remove ../present-tree; git branch -q -d side 2>/dev/null || true; git log --oneline | grep -c . | grep -q 2`},
	{"go", nil, `set -ex; mkdir m; cd m; cat > go.mod <<X
module example.test/m
go 1.21
X
cat > m_test.go <<X
package m
import ("io"; "net/http"; "net/http/httptest"; "os"; "testing")
func TestServer(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") }))
	defer s.Close()
	r, err := http.Get(s.URL)
	if err != nil { t.Fatal(err) }
	b, _ := io.ReadAll(r.Body)
	if string(b) != "hello" { t.Fatal(string(b)) }
	if err := os.WriteFile(t.TempDir()+"/a", b, 0o600); err != nil { t.Fatal(err) }
}
X
cat > m.go <<X
package m
X
export GOFLAGS=-mod=mod GOPROXY=off GOTOOLCHAIN=local; go build ./... && go test ./...`},
	{"npm", nil, `set -e; mkdir n; cd n; echo '{"name":"n","version":"1.0.0","scripts":{"test":"node test.js"}}' > package.json
echo 'const h=require("http");const s=h.createServer((q,r)=>r.end("hi")).listen(0,"127.0.0.1",()=>h.get({port:s.address().port},r=>{r.on("data",d=>{console.log(String(d));s.close()})}))' > test.js
npm test --silent | grep -q hi`},
	{"pytest", nil, `set -e; mkdir p; cd p; printf 'import subprocess, sys, tempfile, multiprocessing\n\ndef f(x): return x * 2\n\ndef test_a(tmp_path):\n    (tmp_path / "a").write_text("x")\n    assert subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True).stdout == b"1\\n"\n\ndef test_pool():\n    with multiprocessing.Pool(2) as p:\n        assert p.map(f, [1, 2]) == [2, 4]\n' > test_a.py
/usr/bin/python3 -m pytest -q`},
	{"make-gcc", nil, `set -e; mkdir c; cd c; printf '#include <stdio.h>\n#include <pthread.h>\nvoid *f(void *a) { return a; }\nint main(void) { pthread_t t; pthread_create(&t, 0, f, 0); pthread_join(t, 0); puts("made"); return 0; }\n' > a.c
printf 'a: a.c\n\tgcc -O1 -Wall -pthread -o a a.c\n' > Makefile; make -j2 && ./a | grep -q made`},
	{"server", nil, `set -e; python3 -m http.server --bind 127.0.0.1 8123 >/dev/null 2>&1 & for i in $(seq 100); do curl -sSf http://127.0.0.1:8123/ >/dev/null 2>&1 && exit 0; sleep 0.05; done; exit 1`},
	{"server6", nil, `set -e; python3 -m http.server --bind ::1 8124 >/dev/null 2>&1 & for i in $(seq 100); do curl -gsSf 'http://[::1]:8124/' >/dev/null 2>&1 && exit 0; sleep 0.05; done; exit 1`},
	{"refused-soon", nil, `time -p curl -sS -m 20 http://192.0.2.1/; test $? = 7`},
	{"gdb", []string{"--debug"}, `set -e; mkdir d; cd d; printf 'int f(int x) { return x + 1; }\nint main(void) { return f(41) - 42; }\n' > a.c; gcc -g -O0 -o a a.c
gdb -q -batch -ex 'set debuginfod enabled off' -ex 'break f' -ex run -ex 'print x + 1' -ex continue ./a 2>&1 | tee log; grep -q '= 42' log; grep -q 'exited normally' log`},
	{"sanitizer", []string{"--debug"}, `set -e; mkdir s; cd s; printf '#include <stdlib.h>\nint main(int c, char **v) { char *p = malloc(8); p[c * 8 - 8] = 1; int r = p[0] - 1; free(p); return c > 1 ? p[0] : r; }\n' > a.c
gcc -g -fsanitize=address -o a a.c; ./a; ! ./a bad 2> log; grep -q 'AddressSanitizer' log`},
	{"sanitizer-leaks-off", nil, `set -e; mkdir l; cd l; printf 'int main(void) { return 0; }\n' > a.c; gcc -g -fsanitize=address -o a a.c; ASAN_OPTIONS=detect_leaks=0 ./a`},
	{"tools", nil, `set -e; cp ../main.txt .; tar cf a.tar main.txt; xz -k a.tar; find . -name main.txt | xargs sha256sum; sort -o s main.txt; mktemp; mkfifo q; (echo a > q &); cat q; perl -e 'print 1'; awk 'BEGIN{print 1}'; date; id -un; whoami; hostname || uname -n; df . ; ls -la ~; flock l true; timeout 5 true; nproc`},
	{"files", nil, `set -e; umask 022; mkdir -p x/y; echo a > x/y/z; mv x/y x/w; cp -a x v; ln x/w/z h; ln -s h s; chmod 700 v; touch -d yesterday h; rm -r x; test "$(stat -c %u h)" = "$(id -u)"`},
}

// honestWorld is an empty world with what honest work needs.
func honestWorld(t testing.TB, u testuser.User) *world {
	t.Helper()
	w := emptyWorld(t, u)
	w.patient = true
	if err := os.WriteFile(filepath.Join(w.work, "main.txt"), []byte("b\na\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := u.Own(w.base); err != nil {
		t.Fatal(err)
	}
	if e := w.onHost(t, `git init -q present && cd present && echo 1 > f && git add f && git -c user.name=a -c user.email=a@b commit -q -m one`); e.code != 0 {
		t.Fatalf("repository on the host: %s", e.err)
	}
	return w
}

// TestHonestWork does daily work inside.
func TestHonestWork(t *testing.T) {
	eachUser(t, func(t *testing.T, u testuser.User) {
		w := honestWorld(t, u)
		for _, job := range honestWork {
			t.Run(job.name, func(t *testing.T) {
				e := w.exec(t, job.flags, "bash", "-c", "mkdir "+job.name+" && cd "+job.name+"\n"+job.run)
				if e.code != 0 {
					t.Errorf("ended with %d: %.3000s\n%.2000s", e.code, e.err, e.out)
				}
				for _, h := range e.report.Held {
					if job.name != "git" && job.name != "git-submodule" {
						t.Errorf("held %s: %s", h.Path, h.Reason)
					}
				}
				if e.report.Level != "enforced" {
					t.Errorf("level %q", e.report.Level)
				}
			})
		}
		err := filepath.WalkDir(w.work, func(path string, d os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err == nil && owner(info) != u.UID {
				t.Errorf("%s belongs to uid %d", path, owner(info))
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		if e := w.onHost(t, `git -C git/r fsck && git -C git/r status && git -C present log -1`); e.code != 0 {
			t.Errorf("git on the host afterwards: %s", e.err)
		}
	})
}

// TestDebugIsNeeded shows that the debugger depends on --debug, and that even then the cell cannot be traced.
func TestDebugIsNeeded(t *testing.T) {
	eachUser(t, func(t *testing.T, u testuser.User) {
		w := honestWorld(t, u)
		if e := w.exec(t, nil, "gdb", "-q", "-batch", "-ex", "run", "/bin/true"); strings.Contains(e.out, "exited normally") {
			t.Errorf("gdb works without --debug: %s", e.out)
		}
		e := w.exec(t, []string{"--debug"}, "gdb", "-q", "-batch", "-p", "1")
		if !strings.Contains(e.out+e.err, "ptrace") || strings.Contains(e.out, "Attaching to process 1\n[New") {
			t.Errorf("gdb attached to the cell: %s %s", e.out, e.err)
		}
	})
}

// TestTerminal drives a shell at a terminal: it is interactive, has the size of the person's, gets their interrupt,
// and cannot push input into their terminal or write their clipboard.
func TestTerminal(t *testing.T) {
	eachUser(t, func(t *testing.T, u testuser.User) {
		w := emptyWorld(t, u)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		cmd := w.command(ctx, "exec", "-w", "--tty", "--", "bash", "--norc", "-i")
		cmd.Env = append(cmd.Env, "TERM=xterm", "PS1=$ ")
		master, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 33, Cols: 99})
		if err != nil {
			t.Fatal(err)
		}
		defer master.Close()
		s := &screen{master: master, seen: make(chan struct{}, 1)}
		long := fmt.Sprint(1_000_000_000 + os.Getpid()*10 + u.UID%10) // a time that no other process sleeps
		var reading sync.WaitGroup
		reading.Go(s.read)
		for _, step := range []struct{ send, want string }{
			{"stty size\n", "33 99"},
			{"tty && [ -t 0 ] && echo te''rminal\n", "terminal"},
			{"sleep " + long + " || echo st''opped\n", ""},
			{"\x03", "^C"},
			{"echo al''ive\n", "alive"},
			{`python3 -c 'import fcntl; fcntl.ioctl(0, 0x5412, b"x")' 2>&1 | tail -1; echo pu''shed` + "\n", "pushed"},
			{"printf '\\033]52;c;Y2FuYXJ5\\007'; echo cl''ip\n", "clip"},
			{"exit 9\n", ""},
		} {
			if _, err := io.WriteString(master, step.send); err != nil {
				t.Fatal(err)
			}
			if step.want == "" && step.send != "exit 9\n" {
				appears(t, "sleep\x00"+long, 1) // not before may the interrupt come
			}
			if step.want != "" && !s.wait(ctx, step.want) {
				t.Fatalf("after %q no %q came: %q", step.send, step.want, s.text())
			}
		}
		cmd.Wait()
		reading.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 9 {
			t.Errorf("ended with %d, want 9: %q", code, s.text())
		}
		if text := s.text(); !strings.Contains(text, "Input/output error") && !strings.Contains(text, "OSError") {
			t.Errorf("TIOCSTI was not refused: %q", text)
		}
		if strings.Contains(s.text(), "\x1b]52;") {
			t.Error("LEAK: the clipboard sequence reached the terminal")
		}
	})
}

// screen collects what a terminal shows.
type screen struct {
	master *os.File
	mu     sync.Mutex
	buf    bytes.Buffer
	from   int
	seen   chan struct{}
}

func (s *screen) read() {
	chunk := make([]byte, 4096)
	for {
		n, err := s.master.Read(chunk)
		s.mu.Lock()
		s.buf.Write(chunk[:n])
		s.mu.Unlock()
		select {
		case s.seen <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

// wait looks for text behind what was found before.
func (s *screen) wait(ctx context.Context, want string) bool {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		if i := strings.Index(s.text()[s.from:], want); i >= 0 {
			s.from += i + len(want)
			return true
		}
		select {
		case <-s.seen:
		case <-ctx.Done():
			return false
		}
	}
}

// TestHonestTools fails if a program that the honest work needs is missing: its lines would show nothing.
func TestHonestTools(t *testing.T) {
	for _, name := range []string{"git", "go", "npm", "node", "python3", "make", "gcc", "gdb", "curl", "bash", "ip"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Error(err)
		}
	}
}
