package cli

import (
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"
	"time"

	"coworker/netproxy/inject"
	"coworker/runtime/wallspec"
)

// TestCertificatesOnly: a file that a variable names may hold a key beside its certificates, and what it holds is shown
// inside.
func TestCertificatesOnly(t *testing.T) {
	authority, err := inject.NewAuthority(rand.Reader, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	both, err := authority.Encode()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "combined.pem")
	text := bytes.Join([][]byte{[]byte("planted-note"), both.Key, both.Certificate, []byte("planted-end")}, []byte("\n"))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	b := certificates(wallspec.Host{Files: wallspec.LocalFiles(), Environ: []string{"NODE_EXTRA_CA_CERTS=" + file, "PIP_CERT=" + file}})
	if !bytes.Equal(b.own, both.Certificate) {
		t.Errorf("want the certificate once and nothing else, got\n%s", b.own)
	}
	e := &environment{now: time.Now}
	_, files, _, err := e.trustInside(&planned{host: wallspec.Host{Files: wallspec.LocalFiles(), Environ: []string{"SSL_CERT_FILE=" + file}}}, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if bytes.Contains(f.Data, []byte("PRIVATE KEY")) || bytes.Contains(f.Data, []byte("planted")) {
			t.Errorf("%s holds more than certificates", f.Path)
		}
	}
	if len(files) == 0 {
		t.Error("no files")
	}
}
