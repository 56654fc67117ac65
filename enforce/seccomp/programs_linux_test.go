package seccomp

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// under runs a command behind the filter, in a folder of its own.
func under(t *testing.T, v Variant, dir string, argv ...string) (string, error) {
	t.Helper()
	path, err := exec.LookPath(argv[0])
	if err != nil {
		t.Fatalf("%s is not installed here; scripts/deps test installs it", argv[0])
	}
	cmd := rerun(t, "exec", v, append([]string{path}, argv[1:]...)...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Env, "GOFLAGS=", "GOPROXY=off", "GOTELEMETRY=off",
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com", "DEBUGINFOD_URLS=")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

const (
	pythonProgram = `
import asyncio, multiprocessing, os, socket, subprocess, tempfile, threading, resource
assert subprocess.run(["true"], close_fds=True).returncode == 0
with multiprocessing.Pool(2) as p: assert p.map(abs, [-1, -2]) == [1, 2]
async def main():
    server = await asyncio.start_server(lambda r, w: (w.write(b"ok"), w.close()), "127.0.0.1", 0)
    r, w = await asyncio.open_connection(*server.sockets[0].getsockname())
    assert await r.read() == b"ok"
    p = await asyncio.create_subprocess_exec("true"); assert await p.wait() == 0
asyncio.run(main())
t = threading.Thread(target=lambda: None); t.start(); t.join()
a, b = socket.socketpair(); a.sendmsg([b"x"]); assert b.recv(1) == b"x"
with tempfile.TemporaryDirectory() as d: os.mkfifo(d + "/p"); os.chmod(d, 0o2755)
socket.getaddrinfo("localhost", 80); resource.getrlimit(resource.RLIMIT_NOFILE)
try: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM); raise SystemExit("vsock")
except OSError as e: print("fine", e.errno)`
	nodeProgram = `
const http = require("http"), fs = require("fs"), { execFileSync, spawn } = require("child_process"), { Worker } = require("worker_threads");
execFileSync("true"); fs.writeFileSync("x", "y"); fs.copyFileSync("x", "z"); fs.watch(".").close();
const server = http.createServer((q, s) => s.end("ok")).listen(0, "127.0.0.1", () =>
  http.get({ port: server.address().port, host: "127.0.0.1" }, r => { r.resume(); r.on("end", () => { server.close();
    spawn("true").on("exit", () => new Worker("0", { eval: true }).on("exit", () => console.log("fine"))); }); }));`
	javaProgram = `public class T { public static void main(String[] a) throws Exception {
Thread t = new Thread(() -> {}); t.start(); t.join();
if (new ProcessBuilder("true").start().waitFor() != 0) throw new Exception("child");
try (var s = java.nio.channels.ServerSocketChannel.open().bind(null); var c = java.nio.channels.Selector.open()) {}
System.out.println("fine"); } }`
	goProgram = "package main\n\nimport (\n\t\"fmt\"\n\t\"net\"\n\t\"os/exec\"\n)\n\nfunc main() {\n" +
		"\tl, err := net.Listen(\"tcp\", \"127.0.0.1:0\")\n\tif err != nil {\n\t\tpanic(err)\n\t}\n" +
		"\tif _, err := net.Dial(\"tcp\", l.Addr().String()); err != nil {\n\t\tpanic(err)\n\t}\n" +
		"\tif err := exec.Command(\"true\").Run(); err != nil {\n\t\tpanic(err)\n\t}\n\tfmt.Println(\"fine\")\n}\n"
	goTest   = "package main\n\nimport \"testing\"\n\nfunc TestMain1(t *testing.T) { main() }\n"
	cProgram = `#include <stdio.h>
#include <stdlib.h>
#include <pthread.h>
static void *run(void *p) { return p; }
int main(int argc, char **argv) { pthread_t t; char *m = malloc(4); if (pthread_create(&t, 0, run, 0)) return 3; pthread_join(t, 0);
m[argc > 1 ? 4 : 0] = 1; int c = m[0]; free(m); puts("fine"); return c != 1; }`
	rustProgram = `fn main() { std::thread::spawn(|| {}).join().unwrap(); assert!(std::process::Command::new("true").status().unwrap().success());
std::net::TcpListener::bind("127.0.0.1:0").unwrap(); println!("fine"); }`
)

func TestProgramsRun(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "t.c", cProgram)
	write(t, dir, "T.java", javaProgram)
	write(t, dir, "t.rs", rustProgram)
	write(t, dir, "Makefile", "all:\n\t@echo fine\n")
	gomod := filepath.Join(dir, "mod")
	if err := os.Mkdir(gomod, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, gomod, "go.mod", "module tiny\n\ngo 1.24\n")
	write(t, gomod, "main.go", goProgram)
	write(t, gomod, "main_test.go", goTest)
	programs := []struct {
		name    string
		variant Variant
		argv    []string
	}{
		{"bash", Native, []string{"bash", "-c", `f() { echo "$1"; }; exec 3< <(echo a); cat <&3; sleep 0 & wait; diff <(echo x) <(echo x); f fine | cat`}},
		{"git", Native, []string{"bash", "-ec", `git init -q r; cd r; echo x > a; git add a; git commit -qm m; git clone -q . ../c; git -C ../c log -1; git gc -q; git init -q --shared=group ../s; git status -s; echo fine`}},
		{"tar", Native, []string{"bash", "-ec", `mkdir tt; echo x > tt/a; chmod 2755 tt; tar czf t.tgz tt; rm -r tt; tar xpzf t.tgz; cp -a tt tu; mv tu tv; find tv -type f | xargs cat; echo fine`}},
		{"make", Native, []string{"make", "-s", "-j2"}},
		{"python", Native, []string{"python3", "-c", pythonProgram}},
		{"node", Native, []string{"node", "-e", nodeProgram}},
		{"java", Native, []string{"bash", "-ec", `java -version; java T.java`}},
		{"gcc", Native, []string{"bash", "-ec", `gcc -pthread -o t t.c; ./t`}},
		{"address sanitizer", Native, []string{"bash", "-ec", `gcc -g -fsanitize=address -pthread -o ta t.c; ASAN_OPTIONS=detect_leaks=0 ./ta; (ASAN_OPTIONS=detect_leaks=0 ./ta x 2>&1 || true) | grep -q heap-buffer-overflow`}},
		{"leak sanitizer", Debug, []string{"bash", "-ec", `gcc -g -fsanitize=address -pthread -o tl t.c; ASAN_OPTIONS=detect_leaks=1 ./tl`}},
		{"gdb", Debug, []string{"bash", "-ec", `gcc -g -pthread -o tg t.c; gdb -nx -q -batch -ex 'break run' -ex run -ex bt -ex cont ./tg | tee tg.log; grep 'Breakpoint 1, run' tg.log`}},
		{"go", Native, []string{"bash", "-ec", `cd mod; go build -o tiny .; ./tiny; go test .; go vet .`}},
		{"rust", Native, []string{"bash", "-ec", `rustc -o tr t.rs; ./tr`}},
		{"bash bare", Bare, []string{"bash", "-c", `sleep 0 & wait; echo fine | cat`}},
		{"git bare", Bare, []string{"bash", "-ec", `git init -q rb; cd rb; echo x > a; git add a; git commit -qm m; git gc -q; echo fine`}},
		{"python bare", Bare, []string{"python3", "-c", `import subprocess, asyncio; subprocess.run(["true"], check=True); asyncio.run(asyncio.sleep(0)); print("fine")`}},
		{"node bare", Bare, []string{"node", "-e", `require("child_process").execFileSync("true"); require("child_process").spawn("true").on("exit", () => console.log("fine"))`}},
	}
	// Java and Rust are tried where they work; installing them takes longer than all tests.
	present := map[string]string{"java": "javac", "rust": "rustc"}
	for _, p := range programs {
		if program, ok := present[p.name]; ok {
			if err := exec.Command(program, "--version").Run(); err != nil {
				t.Logf("%s does not work here: left out", program)
				continue
			}
		}
		t.Run(p.name, func(t *testing.T) {
			out, err := under(t, p.variant, dir, p.argv...)
			if err != nil || !strings.Contains(out, "fine") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestLeakSanitizerNeedsDebug documents what a person meets: finding leaks is ptrace.
func TestLeakSanitizerNeedsDebug(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "t.c", cProgram)
	out, err := under(t, Native, dir, "bash", "-c", `gcc -fsanitize=address -pthread -o t t.c && ASAN_OPTIONS=detect_leaks=1 ./t`)
	if err == nil || !strings.Contains(out, "LeakSanitizer has encountered a fatal error") {
		t.Errorf("%v\n%s", err, out)
	}
}

func diedOf(t *testing.T, err error) syscall.Signal {
	t.Helper()
	exit, ok := err.(*exec.ExitError)
	if !ok {
		return 0
	}
	status := exit.Sys().(syscall.WaitStatus)
	if !status.Signaled() {
		return 0
	}
	return status.Signal()
}

const socketcall = `int main(void) { static unsigned args[3] = {40, 1, 0}; int r;
__asm__ volatile("int $0x80" : "=a"(r) : "a"(102), "b"(1), "c"(args) : "memory");
__asm__ volatile("int $0x80" : "=a"(r) : "a"(20)); return r > 0 ? 0 : 1; }`

// TestForeignCallsKill goes round the table of this architecture by way of the others the CPU speaks: a socket of the
// host-guest family by the 32-bit socketcall, and an x32 number.
func TestForeignCallsKill(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		return // only x86-64 has a second and third table
	}
	dir := t.TempDir()
	write(t, dir, "s.c", socketcall)
	// Addresses below 4 GiB: the 32-bit call takes no others.
	if out, err := exec.Command("gcc", "-static", "-no-pie", "-o", filepath.Join(dir, "s"), filepath.Join(dir, "s.c")).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	if err := exec.Command(filepath.Join(dir, "s")).Run(); err != nil {
		t.Logf("control: the kernel has no 32-bit calls: %v", err)
	}
	for _, v := range Variants() {
		out, err := under(t, v, dir, filepath.Join(dir, "s"))
		if diedOf(t, err) != unix.SIGSYS {
			t.Errorf("%s: int 0x80: %v\n%s, want SIGSYS", v, err, out)
		}
		if out, err := rerun(t, "x32", v).CombinedOutput(); diedOf(t, err) != unix.SIGSYS {
			t.Errorf("%s: x32: %v\n%s, want SIGSYS", v, err, out)
		}
	}
	out, err := rerun(t, "x32", "").Output()
	if err != nil || strings.TrimSpace(string(out)) != fmt.Sprint(eNOSYS) && strings.TrimSpace(string(out)) != "0" {
		t.Errorf("control: x32: %v %s", err, out)
	}
}
