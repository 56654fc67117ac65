package clients

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
)

// cargoRegistry serves a sparse index with one crate (Cargo's "Registry Index").
func cargoRegistry(t *testing.T, mux *http.ServeMux) {
	t.Helper()
	var b bytes.Buffer
	zipped := gzip.NewWriter(&b)
	packed := tar.NewWriter(zipped)
	for name, content := range map[string]string{
		"Cargo.toml": "[package]\nname = \"far-greeting\"\nversion = \"1.0.0\"\nedition = \"2021\"\n", "src/lib.rs": "pub const TEXT: &str = \"" + greeting + "\";\n",
	} {
		err := packed.WriteHeader(&tar.Header{Name: "far-greeting-1.0.0/" + name, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg})
		if err == nil {
			_, err = io.WriteString(packed, content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(packed.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	mux.HandleFunc("/cargo/index/config.json", func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(rw, `{"dl":"https://%s/cargo/crates"}`, r.Host)
	})
	serve(mux, "/cargo/index/fa/r-/far-greeting", "text/plain", fmt.Appendf(nil, `{"name":"far-greeting","vers":"1.0.0","deps":[],"cksum":"%x","features":{},"yanked":false}`+"\n", sha256.Sum256(b.Bytes())))
	serve(mux, "/cargo/crates/far-greeting/1.0.0/download", "application/gzip", b.Bytes())
}
