package credential

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha1"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// registry is an npm registry with one package.
func registry(t *testing.T) http.Handler {
	t.Helper()
	archive := archived(t, map[string]string{
		"package/package.json": `{"name":"left","version":"1.0.0","main":"left.js"}`, "package/left.js": "module.exports = 'left is here'\n",
	})
	sum, digest := sha512.Sum512(archive), sha1.Sum(archive)
	about := fmt.Sprintf(`{"name":"left","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"left","version":"1.0.0","main":"left.js",
		"dist":{"tarball":"https://npm.test/left/-/left-1.0.0.tgz","integrity":"sha512-%s","shasum":"%s"}}}}`,
		base64.StdEncoding.EncodeToString(sum[:]), hex.EncodeToString(digest[:]))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /left", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, about)
	})
	mux.HandleFunc("GET /left/-/left-1.0.0.tgz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(archive) })
	mux.HandleFunc("GET /simple/right/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<!DOCTYPE html><html><body><a href="/files/right-1.0.tar.gz">right-1.0.tar.gz</a></body></html>`)
	})
	source := archived(t, map[string]string{"right-1.0/PKG-INFO": "Metadata-Version: 1.0\nName: right\nVersion: 1.0\n", "right-1.0/setup.py": "from setuptools import setup\nsetup(name='right', version='1.0')\n"})
	mux.HandleFunc("GET /files/right-1.0.tar.gz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(source) })
	return mux
}

func archived(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	packed := gzip.NewWriter(&out)
	archive := tar.NewWriter(packed)
	for name, text := range files {
		if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(archive, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if err := packed.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// repositories serves repo.git with git's own program.
func repositories(t *testing.T) http.Handler {
	t.Helper()
	root := t.TempDir()
	run := func(dir string, args ...string) string {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "HOME="+root, "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
		return string(bytes.TrimSpace(out))
	}
	bare, seed := filepath.Join(root, "repo.git"), filepath.Join(root, "seed")
	run(root, "init", "-q", "--bare", "-b", "main", bare)
	run(bare, "config", "http.receivepack", "true")
	run(root, "init", "-q", "-b", "main", seed)
	if err := os.WriteFile(filepath.Join(seed, "README"), []byte("the first\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	run(seed, "add", ".")
	run(seed, "commit", "-q", "-m", "first")
	run(seed, "push", "-q", bare, "main")
	exe := filepath.Join(run(root, "--exec-path"), "git-http-backend")
	return &cgi.Handler{Path: exe, Dir: root, Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "HOME=" + root, "REMOTE_USER=ada"}, Stderr: io.Discard}
}

// gzipped answers in a form that was not asked for, with what it was sent inside.
func gzipped(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Encoding", "gzip")
	z := gzip.NewWriter(w)
	_, _ = io.WriteString(z, r.Header.Get("Authorization"))
	_ = z.Close()
}

// webSocket agrees, says what it was sent in one frame, and sends back what comes (RFC 6455).
func webSocket(w http.ResponseWriter, r *http.Request) {
	conn, both, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	fmt.Fprintf(both, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX-Echo: %s\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		r.Header.Get("Authorization"), base64.StdEncoding.EncodeToString(sum[:]))
	text := "you sent " + r.Header.Get("Authorization") + "." // the filter holds the last octets back while more could follow
	_, _ = both.Write(append([]byte{0x81, 126, byte(len(text) >> 8), byte(len(text))}, text...))
	_ = both.Flush()
	_, _ = io.Copy(conn, both)
}

// dribble sends back what it was sent, octet by octet.
func dribble(w http.ResponseWriter, r *http.Request) {
	for _, octet := range []byte("you sent " + r.Header.Get("Authorization") + ".\n") {
		_, _ = w.Write([]byte{octet})
		w.(http.Flusher).Flush()
	}
}
