//go:build testclients

package clients

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"

	"software.sslmate.com/src/go-pkcs12"

	"coworker/integration/house/testuser"
)

// moreClients are those that need large packages: make test-clients.
var moreClients = []client{
	{name: "java", files: map[string]string{"Fetch.java": `import java.net.URI;
public class Fetch {
	public static void main(String[] args) throws Exception {
		try (var in = URI.create("https://HOST/hello").toURL().openStream()) {
			System.out.print(new String(in.readAllBytes()));
		}
	}
}
`}, argv: []string{"java", "Fetch.java"}},
	{name: "psql", port: "5432", argv: []string{"psql", "-X", "-A", "-t", "-h", "HOST", "-U", "test", "-c", "select 1", "postgres"}},
	{name: "cargo", sign: "response 403", limit: retrying, files: map[string]string{
		"Cargo.toml": "[package]\nname = \"project\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[dependencies]\nfar-greeting = \"1\"\n", "src/main.rs": "fn main() {}\n",
		".cargo/config.toml": "[source.crates-io]\nreplace-with = \"corp\"\n\n[source.corp]\nregistry = \"sparse+https://HOST/cargo/index/\"\n"},
		argv: []string{"sh", "-c", "/usr/bin/cargo fetch && cat \"${CARGO_HOME:-$HOME/.cargo}\"/registry/src/*/far-greeting-1.0.0/src/lib.rs"}},
}

// javaStore is where Debian's Java looks for authorities; its tools write it from the machine's bundle.
const javaStore = "java/cacerts"

// trustInJava writes a store with the test's authority alone (PKCS #12, the default since Java 9).
func (w *world) trustInJava(t *testing.T) {
	t.Helper()
	store, err := pkcs12.Passwordless.EncodeTrustStore([]*x509.Certificate{w.ca.certificate}, "")
	if err != nil {
		t.Fatal(err)
	}
	p := filepath.Join(w.dir, "certs", javaStore)
	if err := os.Remove(p); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	w.write(t, filepath.Join("certs", javaStore), string(store))
}

func TestMoreClients(t *testing.T) {
	needRoot(t)
	w := newWorld(t)
	w.trustInJava(t)
	for _, u := range testuser.All(t) {
		for _, c := range moreClients {
			t.Run(u.String()+"/"+c.name, func(t *testing.T) {
				t.Run("direct", func(t *testing.T) { c.checkDirect(t, w, u) })
				c.check(t, w, u)
			})
		}
	}
}
