package vm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const emulator = "qemu-system-x86_64"

// Packages returns the Debian packages that the matrix needs, to be installed
// without recommended packages; `make deps` does. xz-utils unpacks the modules of
// newer kernels.
func Packages() []string {
	return []string{"qemu-system-x86", "busybox-static", "xz-utils"}
}

// run returns the standard output of a tool. A failure carries its last words.
func run(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	path, err := lookTool(name)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = dir
	// The messages of apt and dpkg are parsed by nobody, but read by people.
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, lastWords(stderr.String()))
	}
	return stdout.Bytes(), nil
}

func lookTool(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%w: %s (`make deps` installs it; packages: %s): %w",
			ErrMissingTool, name, strings.Join(Packages(), " "), err)
	}
	return path, nil
}

func lastWords(s string) string {
	const limit = 1000
	s = strings.TrimSpace(s)
	if len(s) > limit {
		s = "…" + s[len(s)-limit:]
	}
	return s
}

// BuildStatic compiles a package of this module for the guest.
func BuildStatic(ctx context.Context, pkg, out string) error {
	abs, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	goTool, err := exec.LookPath("go")
	if err != nil {
		return fmt.Errorf("building %s: %w", pkg, err)
	}
	cmd := exec.CommandContext(ctx, goTool, "build", "-trimpath", "-ldflags=-s -w", "-o", abs, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOFLAGS=")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w: %s", pkg, err, lastWords(string(text)))
	}
	return nil
}
