package cell_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"coworker/runtime/wire"
)

func TestExitCodesAndSignals(t *testing.T) {
	each(t, worlds, func(t *testing.T, s *session) {
		tests := []struct {
			name, script string
			code, signal int
		}{
			{"true", "exit 0", 0, 0},
			{"false", "exit 1", 1, 0},
			{"255", "exit 255", 255, 0},
			{"term", "kill -TERM $$", -1, 15},
			{"kill", "kill -KILL $$", -1, 9},
			{"segv", "ulimit -c 0; kill -SEGV $$", -1, 11},
			{"rt", "kill -40 $$", -1, 40},
		}
		for _, tt := range tests {
			got := s.run(shell(tt.script), nil)
			if got.Code != tt.code || got.Signal != tt.signal || got.Core {
				t.Errorf("%s: %+v, want code %d, signal %d, no core", tt.name, got.Exited, tt.code, tt.signal)
			}
		}
	})
}

func TestCoreFlagIsTheKernels(t *testing.T) {
	const script = "cd \"$(mktemp -d)\" && ulimit -c unlimited && kill -QUIT $$"
	bare := exec.Command("/bin/sh", "-c", script)
	bare.Run()
	want := bare.ProcessState.Sys().(syscall.WaitStatus).CoreDump()
	each(t, []world{subreaper, rootNS}, func(t *testing.T, s *session) {
		if got := s.run(shell(script), nil); got.Core != want || got.Signal != int(unix.SIGQUIT) {
			t.Errorf("%+v, a bare command has core flag %v", got.Exited, want)
		}
	})
}

func TestUsageIsReported(t *testing.T) {
	each(t, []world{subreaper, userNS}, func(t *testing.T, s *session) {
		got := s.run(shell("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"), nil)
		if got.User <= 0 || got.MaxRSS <= 0 {
			t.Errorf("a busy loop used %d µs and %d KiB", got.User, got.MaxRSS)
		}
	})
}

func TestTenMegabytesBothWays(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcde\n"), 10<<20/16)
	each(t, worlds, func(t *testing.T, s *session) {
		got := s.run(shell("tee /dev/stderr"), data)
		if !bytes.Equal(got.stdout, data) || !bytes.Equal(got.stderr, data) || got.Code != 0 {
			t.Errorf("%d and %d bytes came back of %d, %+v", len(got.stdout), len(got.stderr), len(data), got.Exited)
		}
	})
}

func TestArgumentsEnvironmentAndFolderAreExact(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new\nline \xff\xfe")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	openToAll(t, dir)
	each(t, worlds, func(t *testing.T, s *session) {
		e := hostileCommand("arguments")
		e.Argv = append(e.Argv, []byte("a\nb"), []byte("\xff\x80"), []byte(""), []byte("-"))
		if got, want := string(s.run(e, nil).stdout), fmt.Sprintf("%q\n%q\n%q\n%q\n%q\n", testBinary, "a\nb", "\xff\x80", "", "-"); got != want {
			t.Errorf("argv %s, want %s", got, want)
		}

		e = command("/bin/pwd")
		e.Dir = []byte(dir)
		if got := string(s.run(e, nil).stdout); got != dir+"\n" {
			t.Errorf("dir %q, want %q", got, dir)
		}

		e = command("/usr/bin/env", "-0")
		e.Env = words("B=2", "A=\xff\n", "no equals sign", "B=again", "")
		e.Env = e.Env[:4]
		if got, want := string(s.run(e, nil).stdout), "B=2\x00A=\xff\n\x00no equals sign\x00B=again\x00"; got != want {
			t.Errorf("env %q, want %q", got, want)
		}

		e.Env = nil
		if got := s.run(e, nil); len(got.stdout) != 0 || got.Code != 0 {
			t.Errorf("empty environment is %q, %+v", got.stdout, got.Exited)
		}
	})
}

func TestHugeArguments(t *testing.T) {
	each(t, []world{subreaper, userNS}, func(t *testing.T, s *session) {
		e := hostileCommand("length")
		const count, size = 15, 100 << 10
		for range count {
			e.Argv = append(e.Argv, bytes.Repeat([]byte("x"), size))
		}
		if got := string(s.run(e, nil).stdout); got != fmt.Sprintln(count, count*size) {
			t.Errorf("got %q", got)
		}
		e.Argv = append(e.Argv, bytes.Repeat([]byte("x"), 129<<10)) // MAX_ARG_STRLEN is 128 KiB
		if got := s.fail(e); got.Errno != int(unix.E2BIG) {
			t.Errorf("an argument of 129 KiB: %+v", got)
		}
	})
}

// fail runs a command that cannot be started.
func (s *session) fail(e wire.Exec) wire.ExecFailed {
	s.t.Helper()
	r := s.request(e)
	f := s.await(r.id, wire.TypeExecFailed, wire.TypeStarted)
	if f.Type == wire.TypeStarted {
		s.t.Fatalf("%q was started", e.Argv)
	}
	return decode[wire.ExecFailed](s.t, f)
}

// openToAll lets every user pass through the folders above dir that a test made.
func openToAll(t *testing.T, dir string) {
	t.Helper()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func write(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func TestLookup(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"one", "two", "folder/tool"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	openToAll(t, dir)
	write(t, filepath.Join(dir, "one/tool"), "#!/bin/sh\necho one", 0o644)
	write(t, filepath.Join(dir, "two/tool"), "#!/bin/sh\necho two", 0o755)
	write(t, filepath.Join(dir, "one/only"), "#!/bin/sh\necho only", 0o644)
	write(t, filepath.Join(dir, "two/bare"), "echo bare $0 $1", 0o755)
	write(t, filepath.Join(dir, "two/-c"), "echo dash", 0o755)
	write(t, filepath.Join(dir, "two/binary"), "\x7fBAD\x00\n", 0o755)
	write(t, filepath.Join(dir, "two/dangling"), "#!/no/such/interpreter\n", 0o755)
	write(t, filepath.Join(dir, "here"), "#!/bin/sh\necho here", 0o755)

	const both = "PATH=one:two"
	tests := []struct {
		name, path, argv, stdout string
		errno                    syscall.Errno
	}{
		{"skips what is not executable", both, "tool", "two\n", 0},
		{"skips folders", "PATH=folder:two", "tool", "two\n", 0},
		{"relative to dir", both, "./here", "here\n", 0},
		{"absolute", "", dir + "/two/tool", "two\n", 0},
		{"empty element is dir", "PATH=one:", "here", "here\n", 0},
		{"first PATH counts", "PATH=/nowhere", "tool", "", unix.ENOENT},
		{"no PATH finds system tools", "X=y", "true", "", 0},
		{"missing", both, "missing", "", unix.ENOENT},
		{"missing path", both, "./missing", "", unix.ENOENT},
		{"refused", both, "only", "", unix.EACCES},
		{"folder", both, "./folder", "", unix.EACCES},
		{"shell script without interpreter", both, "bare", "bare two/bare X\n", 0},
		{"script named like an option", "PATH=/nowhere", "two/-c", "dash\n", 0},
		{"binary of another format", both, "binary", "", unix.ENOEXEC},
		{"missing interpreter", both, "two/dangling", "", unix.ENOENT},
		{"empty name", both, "", "", unix.ENOENT},
		{"NUL byte", both, "a\x00b", "", unix.EINVAL},
		{"through a file", both, "here/x", "", unix.ENOTDIR},
	}
	each(t, []world{subreaper, userNS}, func(t *testing.T, s *session) {
		for _, tt := range tests {
			e := wire.Exec{Argv: words(tt.argv, "X"), Env: words(tt.path, "PATH="+dir+"/two"), Dir: []byte(dir)}
			if tt.errno != 0 {
				if got := s.fail(e); got.Errno != int(tt.errno) || got.Reason == "" {
					t.Errorf("%s: %+v, want errno %d", tt.name, got, tt.errno)
				}
				continue
			}
			if tt.path == "X=y" {
				e.Env = words(tt.path)
			}
			if got := s.run(e, nil); string(got.stdout) != tt.stdout || got.Code != 0 {
				t.Errorf("%s: %q, %q, %+v, want %q", tt.name, got.stdout, got.stderr, got.Exited, tt.stdout)
			}
		}
		e := command("/bin/true")
		e.Dir = []byte(dir + "/gone")
		if got := s.fail(e); got.Errno != int(unix.ENOENT) || !strings.Contains(got.Reason, "working directory") {
			t.Errorf("missing folder: %+v", got)
		}
		e.Dir = []byte(dir + "/here")
		if got := s.fail(e); got.Errno != int(unix.ENOTDIR) {
			t.Errorf("file as folder: %+v", got)
		}
		e.Dir = nil
		if got := s.fail(e); got.Errno != int(unix.ENOENT) {
			t.Errorf("no folder: %+v", got)
		}
	})
}

func TestCommandsInheritNothing(t *testing.T) {
	each(t, worlds, func(t *testing.T, s *session) {
		if got := s.run(hostileCommand("descriptors"), nil); string(got.stdout) != "0 1 2\n" {
			t.Errorf("descriptors %q", got.stdout)
		}
		if got := s.run(hostileCommand("signals"), nil); string(got.stdout) != "blocked 0 ignored []\n" {
			t.Errorf("signals: %q", got.stdout)
		}
		if got := s.run(shell("ps -o pid=,sid=,pgid= -p $$ || echo $$"), nil); got.Code != 0 {
			t.Errorf("session: %+v", got.Exited)
		}
	})
}

func TestClosedOutputIsABrokenPipe(t *testing.T) {
	each(t, worlds, func(t *testing.T, s *session) {
		r := s.begin(command("/usr/bin/yes"))
		r.stdout.Close()
		if got := r.exited(); got.Signal != int(unix.SIGPIPE) {
			t.Errorf("yes without a reader: %+v", got)
		}
	})
}

func TestStdinCloseEndsReader(t *testing.T) {
	each(t, worlds, func(t *testing.T, s *session) {
		r := s.begin(command("/bin/cat"))
		if _, err := r.stdin.Write([]byte("one\n")); err != nil {
			t.Fatal(err)
		}
		if got := r.line(); got != "one" {
			t.Errorf("got %q", got)
		}
		r.stdin.Close()
		if got := r.exited(); got.Code != 0 || got.Signal != 0 {
			t.Errorf("%+v", got)
		}
	})
}
