package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// secretFiles lie in the workspace of the test, each with the canary in it.
var secretFiles = []string{".env", ".env.local", "nested/deep/.env", "nested/deep/er/.env.production", "server.key", "nested/id.pem", ".netrc", ".aws/credentials"}

// homeSecrets lie in the real home.
var homeSecrets = []string{
	".ssh/id_ed25519", ".ssh/config", ".aws/credentials", ".kube/config", ".docker/config.json", ".azure/accessTokens.json",
	".config/gcloud/credentials.db", ".gnupg/private", ".password-store/mail.gpg", ".bash_history", ".zsh_history", ".netrc", ".npmrc",
	".sshfoo/key", ".awsbackup/key", ".local/state/coworker/canary",
}

// reads look at what is hidden, absent or somebody else's.
func reads() []attempt {
	var all []attempt
	for _, name := range secretFiles {
		all = append(all, attempt{"secret:" + name, func(t *target) error { return read(filepath.Join(t.Work, name)) }})
	}
	for _, name := range homeSecrets {
		all = append(all, attempt{"home-secret:" + name, func(t *target) error { return read(filepath.Join(t.Home, name)) }})
	}
	return slices.Concat(all, secretByName(), secretByDescriptor(), elsewhere())
}

// env attacks the hidden file of the workspace.
func env(name string, f func(path string, t *target) error) attempt {
	return attempt{"secret-" + name, func(t *target) error { return f(filepath.Join(t.Work, ".env"), t) }}
}

// secretByName changes names, so that the hidden file has another one.
func secretByName() []attempt {
	return []attempt{
		env("by-link", func(_ string, t *target) error { return read(filepath.Join(t.Work, "link-env")) }),
		env("by-new-link", func(path string, t *target) error {
			link := filepath.Join(t.Scratch, "link")
			if err := symlink(path, link); err != nil {
				return err
			}
			return read(link)
		}),
		env("hardlink", func(path string, t *target) error {
			link := filepath.Join(t.Scratch, "hard")
			if err := unix.Link(path, link); err != nil {
				return err
			}
			return read(link)
		}),
		env("move", func(path string, t *target) error {
			moved := filepath.Join(t.Scratch, "moved")
			if err := unix.Rename(path, moved); err != nil {
				return err
			}
			return read(moved)
		}),
		env("chmod", func(path string, _ *target) error {
			if err := unix.Chmod(path, 0o644); err != nil {
				return err
			}
			return read(path)
		}),
		env("replace", func(path string, t *target) error {
			from := filepath.Join(t.Scratch, "payload")
			if err := create(from); err != nil {
				return err
			}
			return unix.Rename(from, path)
		}),
		env("unlink", func(path string, _ *target) error { return unix.Unlink(path) }),
		env("write", func(path string, _ *target) error { return write(path, unix.O_APPEND) }),
	}
}

// secretByDescriptor goes by way of descriptors and of /proc.
func secretByDescriptor() []attempt {
	return []attempt{
		env("proc-root", func(path string, _ *target) error { return read("/proc/self/root" + path) }),
		env("proc-cwd", func(string, *target) error { return read("/proc/self/cwd/.env") }),
		env("by-parent", func(path string, _ *target) error {
			// A folder descriptor made earlier, as a process that was passed one would hold.
			dir, err := unix.Open(filepath.Dir(path), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(dir)
			fd, err := unix.Openat(dir, ".env", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return spill(fd)
		}),
		env("reopen", func(path string, _ *target) error {
			fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return read(fmt.Sprintf("/proc/self/fd/%d", fd))
		}),
		env("openat2", func(path string, _ *target) error {
			fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_RDONLY})
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return spill(fd)
		}),
		env("handle", func(path string, _ *target) error {
			_, _, err := unix.NameToHandleAt(unix.AT_FDCWD, path, 0)
			return err
		}),
		env("copy", func(path string, t *target) error { return program("cp", path, filepath.Join(t.Scratch, "copy")) }),
	}
}

// elsewhere reads what belongs to nobody inside, and what everybody may read.
func elsewhere() []attempt {
	return []attempt{
		{"secret-folder", func(t *target) error { return read(filepath.Join(t.Work, "private", "note")) }},
		{"ordinary-key", func(t *target) error { return read(filepath.Join(t.Work, "public.pem")) }},
		{"example-env", func(t *target) error { return read(filepath.Join(t.Work, ".env.example")) }},
		{"ordinary-file", func(t *target) error { return read(filepath.Join(t.Work, "main.txt")) }},
		{"read-outside", func(t *target) error { return read(filepath.Join(t.Outside, "file")) }},
		{"read-sibling", func(t *target) error { return read(filepath.Join(filepath.Dir(t.Work), "sibling", "file")) }},
		{"list-outside", func(t *target) error { return list(t.Outside) }},
		{"list-home-ssh", func(t *target) error { return list(filepath.Join(t.Home, ".ssh")) }},
		{"stat-outside", func(t *target) error {
			var st unix.Stat_t
			return unix.Stat(filepath.Join(t.Outside, "file"), &st)
		}},
		{"read-shadow", func(*target) error { return readable("/etc/shadow") }},
		{"read-host-files", func(*target) error {
			return first(
				func() error { return readable("/etc/sudoers") },
				func() error { return readable("/var/lib/dpkg/status") },
				func() error { return readable("/var/log/dpkg.log") },
				func() error { return readable("/etc/machine-id") })
		}},
		{"read-kernel-memory", func(*target) error {
			return first(
				func() error { return readable("/dev/mem") },
				func() error { return readable("/proc/kcore") },
				func() error { return readable("/dev/kmsg") },
				func() error { return readable("/proc/kmsg") },
				func() error { return readable("/proc/kpagecount") },
				func() error { return list("/sys/module") },
				func() error { return list("/sys/kernel/debug") },
				func() error { return list("/sys/class/net") },
				func() error { return list("/sys/bus/pci/devices") })
		}},
		{"old-root", func(*target) error {
			return first(
				func() error { return list("/oldroot") }, func() error { return list("/newroot") },
				func() error { return list("/.oldroot") }, func() error { return list("/put_old") })
		}},
	}
}

// readable opens without reading: the file may be the machine's own.
func readable(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func list(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return fmt.Errorf("the folder %s is empty: %w", dir, unix.ENOENT)
	}
	return nil
}

// links walk to hidden things by way of /proc and by way of other processes.
func links() []attempt {
	other := func(name, file string) attempt {
		return attempt{"proc-other:" + name, func(t *target) error {
			path := fmt.Sprintf("/proc/%d/%s", t.Pid, file)
			switch name {
			case "root", "cwd":
				return list(path)
			case "fd":
				// The names alone say how many there are; what they are is the secret.
				_, err := os.Readlink(path + "/0")
				return err
			}
			return readable(path)
		}}
	}
	return []attempt{
		other("root", "root"), other("cwd", "cwd"), other("fd", "fd"), other("environ", "environ"), other("maps", "maps"), other("mem", "mem"),
		{"proc-many", func(*target) error {
			entries, err := os.ReadDir("/proc")
			if err != nil {
				return err
			}
			n := 0
			for _, e := range entries {
				if strings.Trim(e.Name(), "0123456789") == "" {
					n++
				}
			}
			if n > 12 {
				return nil
			}
			return fmt.Errorf("%d processes are visible: %w", n, unix.ENOENT)
		}},
		{"proc-foreign-environ", foreignEnviron},
	}
}

// foreignEnviron looks for the canary variable in the environment of every process that can be seen.
func foreignEnviron(*target) error {
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return err
	}
	for _, f := range files {
		if data, err := os.ReadFile(f); err == nil && strings.Contains(string(data), "CANARY_TOKEN=") {
			fmt.Fprintf(os.Stderr, "read: %s holds CANARY_TOKEN\n", f)
			return nil
		}
	}
	return unix.ENOENT
}
