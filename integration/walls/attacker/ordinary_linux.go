package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ordinary is what honest programs do. It must work inside as it does outside.
func ordinary() []attempt {
	file := func(name, path string) attempt {
		return attempt{"may-" + name, func(t *target) error { return create(filepath.Join(t.Work, path)) }}
	}
	return []attempt{
		file("write", "scratch/new"), file("write-top", "scratch-top"), file("objects", ".git/objects/attacker"), file("refs", ".git/refs/heads/attacker"),
		file("index", ".git/index.attacker"), file("other-in-vscode", ".vscode/extensions.json"), file("other-in-github", ".github/CODEOWNERS"),
		file("gitmodules", ".gitmodules"), file("gitignore", "scratch/.gitignore"),
		{"may-null", func(*target) error { return write("/dev/null", 0) }},
		{"may-tmp", func(*target) error {
			if err := create("/tmp/coworker-walls-attacker"); err != nil {
				return err
			}
			return unix.Unlink("/tmp/coworker-walls-attacker")
		}},
		{"may-rename", func(t *target) error {
			from := filepath.Join(t.Scratch, "payload")
			if err := create(from); err != nil {
				return err
			}
			return unix.Rename(from, filepath.Join(t.Scratch, "renamed"))
		}},
		{"may-link", func(t *target) error { return unix.Symlink("renamed", filepath.Join(t.Scratch, "symlink")) }},
		{"may-fifo", func(t *target) error { return unix.Mkfifo(filepath.Join(t.Scratch, "fifo"), 0o600) }},
		{"may-chmod", func(t *target) error { return unix.Chmod(t.Scratch, 0o755) }},
		{"may-memfd", func(*target) error {
			fd, err := unix.MemfdCreate("own", unix.MFD_CLOEXEC)
			if err != nil {
				return err
			}
			return unix.Close(fd)
		}},
		{"may-terminal", func(*target) error {
			fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			return unix.Close(fd)
		}},
		{"may-proc-self", func(*target) error { return program("sh", "-c", "sh -c 'grep -q Name: /proc/self/status'") }},
		{"may-serve4", func(*target) error { return serve("tcp4", "127.0.0.1:0") }},
		{"may-serve6", func(*target) error { return serve("tcp6", "[::1]:0") }},
		{"may-serve-unix", func(t *target) error {
			if err := os.Chdir(t.Scratch); err != nil {
				return err
			}
			return serve("unix", "own.sock")
		}},
		{"may-serve-abstract", func(*target) error { return serve("unix", fmt.Sprintf("@coworker-walls-%d", os.Getpid())) }},
		{"may-socketpair", func(*target) error {
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			unix.Close(pair[1])
			return unix.Close(pair[0])
		}},
		{"may-signal-own", func(*target) error { return unix.Kill(os.Getpid(), 0) }},
	}
}

// serve connects to itself.
func serve(network, address string) error {
	l, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	defer l.Close()
	c, err := net.Dial(network, l.Addr().String())
	if err != nil {
		return err
	}
	return c.Close()
}
