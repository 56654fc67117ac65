package clients

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/module"
	modzip "golang.org/x/mod/zip"
)

// greeting is what every service hands out, in the form of its protocol.
const greeting = "hello from the far side"

// serveWeb answers https on every address: a page, a git repository, and the registries of npm, Python, Go and cargo.
func (w *world) serveWeb(t *testing.T) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, greeting+"\n") })
	w.gitRepository(t, mux)
	npmRegistry(t, mux)
	pythonIndex(t, mux)
	goProxy(t, mux)
	cargoRegistry(t, mux)
	server := &http.Server{Handler: mux, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{w.ca.server}, MinVersion: tls.VersionTLS12}}
	listener := w.listen(t, "443")
	done := make(chan error, 1)
	go func() { done <- server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() {
		if err := errors.Join(server.Close(), <-done); err != nil && !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

func serve(mux *http.ServeMux, path, kind string, content []byte) {
	mux.HandleFunc(path, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", kind)
		rw.Write(content)
	})
}

// gitRepository serves a bare repository by git's own http-backend, which must not read settings of whoever runs the test.
func (w *world) gitRepository(t *testing.T, mux *http.ServeMux) {
	t.Helper()
	source, bare := filepath.Join(w.dir, "source"), filepath.Join(w.dir, "git/repo.git")
	w.write(t, "source/greeting.txt", greeting+"\n")
	for _, args := range [][]string{
		{"init", "-q", "-b", "main", source}, {"-C", source, "add", "."}, {"-C", source, "commit", "-q", "-m", "greet"}, {"clone", "-q", "--bare", source, bare},
		{"-C", bare, "update-server-info"},
	} {
		run(t, w.dir, gitEnvironment(w.dir), "git", args...)
	}
	execPath := strings.TrimSpace(run(t, w.dir, gitEnvironment(w.dir), "git", "--exec-path"))
	mux.Handle("/git/", &cgi.Handler{Path: filepath.Join(execPath, "git-http-backend"), Root: "/git", Dir: w.dir, Logger: log.New(io.Discard, "", 0),
		Env: append(gitEnvironment(w.dir), "GIT_PROJECT_ROOT="+filepath.Join(w.dir, "git"), "GIT_HTTP_EXPORT_ALL=1")})
}

// gitEnvironment lets git work on repositories of another owner (safe.directory counts from the environment too).
func gitEnvironment(home string) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_COUNT=1",
		"GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*", "GIT_AUTHOR_NAME=T", "GIT_AUTHOR_EMAIL=t@corp.example", "GIT_COMMITTER_NAME=T", "GIT_COMMITTER_EMAIL=t@corp.example"}
}

// run runs a command to its end and wants success.
func run(t *testing.T, dir string, env []string, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = dir, env
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %q: %v\n%s", program, args, err, errs.String())
	}
	return out.String()
}

// npmRegistry packs a package with npm and serves it: the document of the package and the tarball.
func npmRegistry(t *testing.T, mux *http.ServeMux) {
	t.Helper()
	dir := t.TempDir()
	manifest := `{"name":"far-greeting","version":"1.0.0","main":"index.js"}`
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "package.json"), []byte(manifest), 0o644),
		os.WriteFile(filepath.Join(dir, "index.js"), []byte("module.exports = '"+greeting+"'\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	run(t, dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, "npm", "pack", "--silent", "--offline")
	tarball, err := os.ReadFile(filepath.Join(dir, "far-greeting-1.0.0.tgz"))
	if err != nil {
		t.Fatal(err)
	}
	short, long := sha1.Sum(tarball), sha512.Sum512(tarball)
	serve(mux, "/npm/far-greeting/-/far-greeting-1.0.0.tgz", "application/octet-stream", tarball)
	mux.HandleFunc("/npm/far-greeting", func(rw http.ResponseWriter, r *http.Request) {
		answer := map[string]any{"name": "far-greeting", "dist-tags": map[string]string{"latest": "1.0.0"}, "versions": map[string]any{"1.0.0": map[string]any{
			"name": "far-greeting", "version": "1.0.0", "main": "index.js", "dist": map[string]string{
				"tarball": "https://" + r.Host + "/npm/far-greeting/-/far-greeting-1.0.0.tgz", "shasum": hex.EncodeToString(short[:]),
				"integrity": "sha512-" + base64.StdEncoding.EncodeToString(long[:])}}}}
		rw.Header().Set("Content-Type", "application/json")
		json.NewEncoder(rw).Encode(answer)
	})
}

// pythonIndex serves a wheel in a simple index (PEP 503). A wheel is a zip archive with three files about itself (PEP 427).
func pythonIndex(t *testing.T, mux *http.ServeMux) {
	t.Helper()
	const name = "far_greeting-1.0.0-py3-none-any.whl"
	files := []struct{ name, content string }{
		{"far_greeting.py", "TEXT = '" + greeting + "'\n"},
		{"far_greeting-1.0.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: far-greeting\nVersion: 1.0.0\n"},
		{"far_greeting-1.0.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
	}
	record := ""
	for _, f := range files {
		sum := sha256.Sum256([]byte(f.content))
		record += fmt.Sprintf("%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(f.content))
	}
	files = append(files, struct{ name, content string }{"far_greeting-1.0.0.dist-info/RECORD", record + "far_greeting-1.0.0.dist-info/RECORD,,\n"})
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range files {
		out, err := z.Create(f.name)
		if err == nil {
			_, err = io.WriteString(out, f.content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(b.Bytes())
	serve(mux, "/pypi/simple/far-greeting/", "text/html", fmt.Appendf(nil, "<!DOCTYPE html><a href=\"/pypi/files/%s#sha256=%x\">%s</a>", name, sum, name))
	serve(mux, "/pypi/files/"+name, "application/octet-stream", b.Bytes())
}

// goModule is the module that goProxy serves.
const goModule = "corp.example/greeting"

// goProxy speaks the protocol of go help goproxy.
func goProxy(t *testing.T, mux *http.ServeMux) {
	t.Helper()
	dir := t.TempDir()
	gomod := "module " + goModule + "\n\ngo 1.21\n"
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "go.mod"), []byte(gomod), 0o644),
		os.WriteFile(filepath.Join(dir, "greeting.go"), []byte("package greeting\n\nconst Text = \""+greeting+"\"\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := modzip.CreateFromDir(&b, module.Version{Path: goModule, Version: "v1.0.0"}, dir); err != nil {
		t.Fatal(err)
	}
	base := "/go/" + goModule + "/@v/"
	serve(mux, base+"list", "text/plain", []byte("v1.0.0\n"))
	serve(mux, base+"v1.0.0.info", "application/json", []byte(`{"Version":"v1.0.0","Time":"2026-01-02T03:04:05Z"}`))
	serve(mux, base+"v1.0.0.mod", "text/plain", []byte(gomod))
	serve(mux, base+"v1.0.0.zip", "application/zip", b.Bytes())
}
