package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// outsideWrites change what lies beside the workspace, each in its own way.
func outsideWrites() []attempt {
	at := func(name string, f func(dir string) error) attempt {
		return attempt{"outside-" + name, func(t *target) error { return f(t.Outside) }}
	}
	file := func(dir string) string { return filepath.Join(dir, "file") }
	return []attempt{
		at("create", func(dir string) error { return create(filepath.Join(dir, "planted")) }),
		at("append", func(dir string) error { return write(file(dir), unix.O_APPEND) }),
		at("truncate", func(dir string) error { return unix.Truncate(file(dir), 0) }),
		at("unlink", func(dir string) error { return unix.Unlink(file(dir)) }),
		at("rename", func(dir string) error { return unix.Rename(file(dir), filepath.Join(dir, "moved")) }),
		at("mkdir", func(dir string) error { return unix.Mkdir(filepath.Join(dir, "planted"), 0o755) }),
		at("chmod", func(dir string) error { return unix.Chmod(file(dir), 0o777) }),
		at("utimes", func(dir string) error { return unix.Utimes(file(dir), make([]unix.Timeval, 2)) }),
		at("xattr", func(dir string) error { return unix.Setxattr(file(dir), "user.planted", []byte("1"), 0) }),
		at("open-world", func(dir string) error { return create(filepath.Join(dir, "open", "planted")) }),
		at("dotdot", func(dir string) error {
			// Many levels up from the workspace and down again.
			return create(strings.Repeat("../", 64) + filepath.Join(dir, "planted"))
		}),
		{"outside-by-link", func(t *target) error { return write(filepath.Join(t.Work, "link-out", "file"), 0) }},
		{"outside-by-new-link", func(t *target) error {
			link := filepath.Join(t.Scratch, "link")
			if err := symlink(t.Outside, link); err != nil {
				return err
			}
			return create(filepath.Join(link, "planted"))
		}},
		{"home-start-files", func(t *target) error {
			for _, name := range []string{".bashrc", ".zshrc", ".profile", ".bash_profile", ".zprofile", ".gitconfig", ".ssh/authorized_keys"} {
				if err := write(filepath.Join(t.Home, name), unix.O_APPEND|unix.O_CREAT); err != nil {
					return err
				}
			}
			return nil
		}},
		{"home-state", func(t *target) error {
			return write(filepath.Join(t.Home, ".local/state/coworker/planted"), unix.O_CREAT)
		}},
		{"home-sibling", func(t *target) error {
			return create(filepath.Join(filepath.Dir(t.Work), "sibling", "planted"))
		}},
		{"cwd-parent", func(t *target) error { return create(filepath.Join(t.Work, "..", "planted")) }},
		{"rename-out", func(t *target) error {
			from := filepath.Join(t.Scratch, "payload")
			if err := create(from); err != nil {
				return err
			}
			return unix.Rename(from, filepath.Join(t.Outside, "planted"))
		}},
		{"link-in-and-write", func(t *target) error {
			// A hard link of a file outside, made in the workspace, is the same file.
			link := filepath.Join(t.Scratch, "hard")
			if err := unix.Link(filepath.Join(t.Outside, "file"), link); err != nil {
				return err
			}
			return write(link, 0)
		}},
	}
}

// systemWrites open the system for writing and write nothing, so that the control harms no machine.
func systemWrites() []attempt {
	open := func(name string, flags int, paths ...string) attempt {
		return attempt{"system-" + name, func(*target) error {
			var list []func() error
			for _, p := range paths {
				list = append(list, func() error {
					fd, err := unix.Open(p, flags|unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o600)
					if err != nil {
						return fmt.Errorf("open %s: %w", p, err)
					}
					return unix.Close(fd)
				})
			}
			return first(list...)
		}}
	}
	return []attempt{
		open("folders", unix.O_TMPFILE, "/", "/usr", "/usr/bin", "/usr/lib", "/usr/local/bin", "/etc", "/lib", "/opt"),
		open("files", 0, "/usr/bin/env", "/bin/sh", "/etc/passwd", "/etc/hosts", "/etc/resolv.conf", "/etc/ld.so.cache"),
		open("kernel", 0, "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sysrq-trigger", "/proc/sys/vm/drop_caches",
			"/proc/sys/kernel/domainname", "/proc/sys/net/ipv4/ip_forward"),
		open("cgroup", 0, "/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/memory/release_agent", "/sys/fs/cgroup/pids/cgroup.procs",
			"/sys/fs/cgroup/unified/cgroup.procs"),
		open("devices", 0, "/dev/mem", "/dev/kmsg", "/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/loop-control", "/dev/kvm", "/dev/fuse", "/dev/net/tun"),
	}
}

// presentFiles and presentFolders are the protected names that the workspace of the test has.
var (
	presentFiles = []string{
		".git/config", ".git/info/attributes", ".git/hooks/post-checkout", ".mcp.json", ".envrc", ".gitlab-ci.yml",
		".vscode/tasks.json", ".vscode/settings.json", ".vscode/launch.json", ".claude/settings.json", ".codex/config.toml", ".gemini/settings.json",
		".agents/skill.md", ".cursor/mcp.json", ".coworker/config.toml", ".idea/workspace.xml", ".husky/pre-commit",
		".devcontainer/devcontainer.json", ".github/workflows/ci.yml", ".github/hooks/agent.json",
		"nested/deep/er/vendored/.git/config", "nested/deep/er/vendored/.git/hooks/post-checkout", "sub/.git",
		".git/modules/sub/config", ".git/worktrees/side/commondir", ".git/worktrees/side/gitdir", "bare/config", "bare/hooks/post-checkout",
	}
	presentFolders = []string{
		".git/hooks", ".claude", ".codex", ".gemini", ".agents", ".cursor", ".coworker", ".idea", ".husky", ".devcontainer",
		".github/workflows", ".github/hooks", "nested/deep/er/vendored/.git/hooks", "bare/hooks",
	}
	// ancestors hold protected names. Moving one aside and making a new one in its place would go round a mount on
	// the name alone.
	ancestors = []string{
		".git", ".vscode", ".github", "nested", "nested/deep", "nested/deep/er/vendored", "nested/deep/er/vendored/.git",
		".git/info", ".git/modules", ".git/worktrees", ".git/worktrees/side", "bare",
	}
)

// protectedNames attack names that are there: every file and folder in every way.
func protectedNames() []attempt {
	ways := []struct {
		name string
		run  func(path, scratch string) error
	}{
		{"write", func(path, _ string) error { return write(path, unix.O_APPEND) }},
		{"truncate", func(path, _ string) error { return unix.Truncate(path, 0) }},
		{"unlink", func(path, _ string) error { return unix.Unlink(path) }},
		{"replace", func(path, scratch string) error {
			from := filepath.Join(scratch, "payload")
			if err := create(from); err != nil {
				return err
			}
			return unix.Rename(from, path)
		}},
		{"exchange", func(path, scratch string) error {
			from := filepath.Join(scratch, "payload")
			if err := create(from); err != nil {
				return err
			}
			return unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, path, unix.RENAME_EXCHANGE)
		}},
		{"move", func(path, scratch string) error { return unix.Rename(path, filepath.Join(scratch, "moved")) }},
		{"hardlink", func(path, scratch string) error {
			link := filepath.Join(scratch, "hard")
			if err := unix.Link(path, link); err != nil {
				return err
			}
			return write(link, unix.O_APPEND)
		}},
		{"chmod", func(path, _ string) error { return unix.Chmod(path, 0o777) }},
		{"utimes", func(path, _ string) error { return unix.Utimes(path, make([]unix.Timeval, 2)) }},
		{"xattr", func(path, _ string) error { return unix.Setxattr(path, "user.planted", []byte("1"), 0) }},
		{"reopen", func(path, _ string) error { return reopen(path) }},
	}
	var all []attempt
	for _, w := range ways {
		for _, file := range presentFiles {
			all = append(all, attempt{"protect-" + w.name + ":" + file, func(t *target) error { return w.run(filepath.Join(t.Work, file), t.Scratch) }})
		}
	}
	for _, dir := range presentFolders {
		all = append(all,
			attempt{"protect-create:" + dir, func(t *target) error { return create(filepath.Join(t.Work, dir, "planted")) }},
			attempt{"protect-aside:" + dir, func(t *target) error { return aside(filepath.Join(t.Work, dir), t.Scratch) }})
	}
	for _, dir := range ancestors {
		all = append(all, attempt{"protect-aside:" + dir, func(t *target) error { return aside(filepath.Join(t.Work, dir), t.Scratch) }})
	}
	return append(all, attempt{"protect-other-case", func(t *target) error {
		return create(filepath.Join(t.Work, ".claude", "..", ".Claude", "..", ".claude", "planted"))
	}})
}

// reopen turns a descriptor that was opened for reading into one for writing, by way of /proc.
func reopen(path string) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return write(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_APPEND)
}

// aside moves a folder away and puts another in its place.
func aside(dir, scratch string) error {
	if err := unix.Rename(dir, filepath.Join(scratch, "aside")); err != nil {
		return err
	}
	return unix.Mkdir(dir, 0o755)
}

// absentNames are made where nothing stood. Inside a live workspace that works, and the sweep takes them away before
// a result is returned.
func absentNames() []attempt {
	var all []attempt
	for i, file := range []string{
		".mcp.json", ".claude/settings.json", ".codex/config.toml", ".gemini/settings.json", ".agents/run", ".cursor/mcp.json",
		".vscode/tasks.json", ".idea/workspace.xml", ".husky/pre-commit", ".envrc", ".devcontainer/devcontainer.json",
		".github/workflows/x.yml", ".github/hooks/x.json", ".gitlab-ci.yml", ".coworker/config.toml", ".MCP.JSON", ".Claude/settings.json",
	} {
		all = append(all, attempt{"absent:" + file, func(t *target) error { return plant(t, i, file) }})
	}
	return append(all,
		attempt{"absent-renamed", func(t *target) error {
			from := filepath.Join(t.Scratch, "payload")
			if err := create(from); err != nil {
				return err
			}
			if err := os.MkdirAll(filepath.Join(t.Work, "fresh/renamed"), 0o755); err != nil {
				return err
			}
			return unix.Rename(from, filepath.Join(t.Work, "fresh/renamed/.mcp.json"))
		}},
		attempt{"absent-tree-renamed", func(t *target) error {
			from := filepath.Join(t.Scratch, "tree")
			if err := os.MkdirAll(filepath.Join(from, "a/b"), 0o755); err != nil {
				return err
			}
			if err := create(filepath.Join(from, "a/b/.envrc")); err != nil {
				return err
			}
			return unix.Rename(from, filepath.Join(t.Work, "fresh-tree"))
		}},
		attempt{"absent-linked", func(t *target) error {
			from := filepath.Join(t.Scratch, "payload")
			if err := create(from); err != nil {
				return err
			}
			if err := os.MkdirAll(filepath.Join(t.Work, "fresh/linked"), 0o755); err != nil {
				return err
			}
			return unix.Link(from, filepath.Join(t.Work, "fresh/linked/.mcp.json"))
		}},
		attempt{"absent-unreadable", func(t *target) error { return shut(t, 0) }},
		attempt{"absent-unlistable", func(t *target) error { return shut(t, 0o100) }},
		attempt{"absent-symlink", func(t *target) error {
			if err := os.MkdirAll(filepath.Join(t.Work, "fresh/symlink/tools"), 0o755); err != nil {
				return err
			}
			return unix.Symlink("tools", filepath.Join(t.Work, "fresh/symlink/.claude"))
		}},
		attempt{"absent-in-git", func(t *target) error {
			return first(
				func() error { return create(filepath.Join(t.Work, ".git/commondir")) },
				func() error { return create(filepath.Join(t.Work, ".git/config.worktree")) })
		}})
}

// shut plants a name and takes away the right to look into its folder: who sweeps with the rights of the same user
// must take it back first. With mode 0100 every program that knows the name still finds it.
func shut(t *target, mode uint32) error {
	dir := filepath.Join(t.Work, "fresh", fmt.Sprintf("shut%o", mode))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := create(filepath.Join(dir, ".mcp.json")); err != nil {
		return err
	}
	return unix.Chmod(dir, mode)
}

// plant makes a protected name in a folder that is new too.
func plant(t *target, i int, file string) error {
	path := filepath.Join(t.Work, "fresh", fmt.Sprint(i), file)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return create(path)
}
