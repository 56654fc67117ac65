package trust

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"coworker/netproxy/inject"
)

func authority(t *testing.T) *inject.Authority {
	t.Helper()
	a, err := inject.NewAuthority(rand.Reader, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestBundleKeepsCertificatesOnly(t *testing.T) {
	root, ca := authority(t).CertificatePEM(), authority(t).CertificatePEM()
	damaged := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("no certificate")})
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("a key")})
	system := bytes.Join([][]byte{[]byte("# a comment\n"), root, damaged, key, root, []byte("-----BEGIN CERTIFICATE-----\nAAAA")}, nil)
	got, err := Bundle(system, ca)
	if err != nil || !bytes.Equal(got, append(bytes.Clone(root), ca...)) {
		t.Fatalf("%v\n%s", err, got)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(got) {
		t.Fatal("the bundle is not read")
	}
	for name, bad := range map[string][]byte{"nothing": nil, "damaged": damaged, "a key beside it": append(bytes.Clone(ca), key...)} {
		if _, err := Bundle(system, bad); err == nil {
			t.Errorf("authority of %s: accepted", name)
		}
	}
	if _, err := Bundle(make([]byte, MaxBundle), ca); err == nil {
		t.Error("a bundle without a bound")
	}
}

func FuzzBundle(f *testing.F) {
	a, err := inject.NewAuthority(rand.Reader, time.Now())
	if err != nil {
		f.Fatal(err)
	}
	ca := a.CertificatePEM()
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	f.Add(ca[:len(ca)/2])
	f.Fuzz(func(t *testing.T, system []byte) {
		out, err := Bundle(system, ca)
		if err != nil {
			return // too long
		}
		if _, skipped := certificates(out); skipped > 0 || !bytes.Contains(out, ca) {
			t.Fatalf("%d skipped in %q", skipped, out)
		}
	})
}

func TestEnvironmentRefusesPathsThatNeedQuoting(t *testing.T) {
	good := Paths{Bundle: "/run/coworker/ca.pem", Authority: "/run/coworker/own.pem", JavaStore: "/run/coworker/ca.p12", JavaPassword: javaPassword}
	list, err := Environment(good)
	if err != nil || len(list) != len(variables)+1 {
		t.Fatal(list, err)
	}
	for _, bad := range []string{"", "relative", "/a b", "/a\nb", "/a'b", "/a\"b", "/a$b", "/a:b"} {
		for _, p := range []Paths{{Bundle: bad, Authority: good.Authority}, {Bundle: good.Bundle, Authority: bad}, {Bundle: good.Bundle, Authority: good.Authority, Wgetrc: bad + " "}} {
			if _, err := Environment(p); err == nil {
				t.Errorf("%q: accepted", p)
			}
		}
		if _, err := JavaOptions(Paths{JavaStore: bad, JavaPassword: javaPassword}); err == nil {
			t.Errorf("Java store %q: accepted", bad)
		}
	}
	if _, err := JavaOptions(Paths{JavaStore: good.JavaStore, JavaPassword: "x -Dother"}); err == nil {
		t.Error("a password with an option in it: accepted")
	}
}

// install puts everything below a folder, the way a session does.
func install(t *testing.T, a *inject.Authority) (Paths, []string) {
	t.Helper()
	dir := t.TempDir()
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		dir = resolved
	}
	p := Paths{Bundle: dir + "/bundle.pem", Authority: dir + "/own.pem", JavaStore: dir + "/store.p12"}
	// Another authority stands for the system's roots: two entries, so that Java must keep both.
	bundle, err := Bundle(authority(t).CertificatePEM(), a.CertificatePEM())
	if err != nil {
		t.Fatal(err)
	}
	store, password, err := JavaTrustStore(bundle, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p.JavaPassword, p.Wgetrc = password, dir+"/wgetrc"
	wgetrc, err := Wgetrc(p)
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{p.Bundle: bundle, p.Authority: a.CertificatePEM(), p.JavaStore: store, p.Wgetrc: wgetrc} {
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	environment, err := Environment(p)
	if err != nil {
		t.Fatal(err)
	}
	return p, environment
}

func TestJavaReadsTheStore(t *testing.T) {
	keytool, err := exec.LookPath("keytool")
	if err != nil {
		t.Log("keytool is not installed")
		return
	}
	p, _ := install(t, authority(t))
	out, err := exec.Command(keytool, "-list", "-keystore", p.JavaStore, "-storepass", p.JavaPassword, "-storetype", "PKCS12").CombinedOutput()
	if err != nil || strings.Count(string(out), "trustedCertEntry") != 2 {
		t.Fatalf("%v\n%s", err, out)
	}
}

func TestJavaTrustStoreOfNothing(t *testing.T) {
	if _, _, err := JavaTrustStore([]byte("nothing"), rand.Reader); err == nil {
		t.Fatal("an empty store")
	}
	if _, _, err := JavaTrustStore(authority(t).CertificatePEM(), bytes.NewReader(nil)); err == nil {
		t.Fatal("a store without salt")
	}
}
