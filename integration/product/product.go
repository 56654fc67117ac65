// Package product builds coworker and its helpers for a test binary, into a folder that every user can execute from.
//
// The packages below integration import it, nobody else. It knows how programs are built and nothing about what is tested
// with them.
package product

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
)

// Main is the body of a TestMain: it makes a folder, has build fill it, hands it to use, and runs the tests. It returns the
// exit code.
func Main(tests interface{ Run() int }, build func(dir string) error, use func(dir string)) int {
	dir, err := os.MkdirTemp("", "coworker-product-")
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), build(dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, errors.Join(err, os.RemoveAll(dir)))
		return 1
	}
	use(dir)
	code := tests.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// Release builds all programs by the script and with the variables that make build uses. What follows the version in
// version goes to the linker too.
func Release(dir, version string) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		return err
	}
	cmd := exec.Command("bash", "scripts/build", dir, "box")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "VERSION="+version)
	for _, m := range regexp.MustCompile(`(?m)^export (\w+_VAR) +:= (\S+)$`).FindAllStringSubmatch(string(makefile), -1) {
		cmd.Env = append(cmd.Env, m[1]+"="+m[2])
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the binaries: %w\n%s", err, out)
	}
	return nil
}

// Proxy is the package of the proxy that a release has.
const Proxy = "coworker/cmd/coworker-proxy"

// Build compiles the programs as scripts/build does, with build tags and with a proxy from some package.
func Build(dir, proxy, tags string) error {
	flags, err := Helpers(dir, proxy, tags)
	if err != nil {
		return err
	}
	return Compile(dir, "coworker", "coworker/cmd/coworker", flags, tags)
}

// Helpers compiles the cell, a proxy and the helper of people without privileges, and gives the linker flags of a program that is to start them: it carries their
// digests, whatever they are.
func Helpers(dir, proxy, tags string) (flags string, err error) {
	for _, helper := range []struct{ name, pkg, variable string }{
		{"coworker-cell", "coworker/cmd/coworker-cell", "CellDigest"}, {"coworker-proxy", proxy, "ProxyDigest"},
		{"coworker-wallsd", "coworker/cmd/coworker-wallsd", "WallsdDigest"},
	} {
		if err := Compile(dir, helper.name, helper.pkg, "", tags); err != nil {
			return "", err
		}
		digest, err := Digest(filepath.Join(dir, helper.name))
		if err != nil {
			return "", err
		}
		flags += " -X coworker/runtime/session." + helper.variable + "=" + digest
	}
	return flags, nil
}

// BuildAll is Build with the helper of the backend container, which needs a C compiler.
func BuildAll(dir string) error {
	flags, err := Helpers(dir, Proxy, "")
	if err != nil {
		return err
	}
	box, err := Box(dir)
	if err != nil {
		return err
	}
	return Compile(dir, "coworker", "coworker/cmd/coworker", flags+box, "")
}

// Box compiles the helper of the backend container as scripts/build does, and gives the linker flag with its digest.
func Box(dir string) (flag string, err error) {
	file := filepath.Join(dir, "coworker-box")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", "netgo,osusergo,runc_nocriu",
		"-ldflags", "-s -w -buildid= -linkmode external -extldflags '-static -Wl,--build-id=none'", "-o", file, "coworker/cmd/coworker-box")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build coworker-box: %w\n%s", err, out)
	}
	digest, err := Digest(file)
	return " -X coworker/runtime/session.BoxDigest=" + digest, errors.Join(err, os.Chmod(file, 0o755))
}

// Digest is the SHA-256 of a program, in hex.
func Digest(file string) (string, error) {
	data, err := os.ReadFile(file)
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), err
}

// Compile builds one program, static and executable by everybody. Its symbols stay: tests look for functions in them.
func Compile(dir, name, pkg, flags, tags string) error {
	file := filepath.Join(dir, name)
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", tags, "-ldflags", "-w -buildid= "+flags,
		"-o", file, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return os.Chmod(file, 0o755)
}

// moduleRoot is the folder of go.mod, above the package whose tests run.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, statErr := os.Stat(filepath.Join(dir, "go.mod")); statErr == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			err = errors.New("no go.mod above the working folder")
		}
		dir = up
	}
	return "", err
}
