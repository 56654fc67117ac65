package clients

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"testing"
)

// binaries is the folder with coworker and its helpers, open to all users.
var binaries string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "coworker-clients-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err == nil {
		err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binaries = dir
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// build makes the binaries as make build does: by the same script, with the variables of the Makefile.
func build(dir string) error {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		return err
	}
	cmd := exec.Command("bash", "scripts/build", dir)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "VERSION=test")
	for _, m := range regexp.MustCompile(`(?m)^export (\w+_VAR) +:= (\S+)$`).FindAllStringSubmatch(string(makefile), -1) {
		cmd.Env = append(cmd.Env, m[1]+"="+m[2])
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the binaries: %w\n%s", err, out)
	}
	return nil
}
