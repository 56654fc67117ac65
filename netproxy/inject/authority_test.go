package inject

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"coworker/netproxy/control"
	"coworker/netproxy/hostmatch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var begun = time.Date(2030, 2, 3, 4, 5, 6, 789, time.FixedZone("", 3600))

func newAuthority(t testing.TB, now time.Time) *Authority {
	t.Helper()
	a, err := NewAuthority(rand.Reader, now)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func host(t testing.TB, s string) hostmatch.Host {
	t.Helper()
	h, err := hostmatch.ParseHost(s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestCertificatesHaveWhatStrictReadersWant(t *testing.T) {
	a := newAuthority(t, begun)
	ca := a.certificate
	if !ca.IsCA || !ca.MaxPathLenZero || ca.KeyUsage != x509.KeyUsageCertSign || len(ca.SubjectKeyId) != 20 {
		t.Errorf("authority: %+v", ca)
	}
	if !ca.NotBefore.Equal(begun.Add(-backdate).Truncate(time.Second)) || ca.NotAfter.Sub(ca.NotBefore) != backdate+lifetime {
		t.Errorf("authority valid from %s to %s", ca.NotBefore, ca.NotAfter)
	}
	long := strings.Repeat("a23456789.", 10) + "example"
	for _, name := range []string{"github.com", "xn--bcher-kva.example", long, "203.0.113.7", "[2001:db8::1]"} {
		leaf, err := a.Leaf(host(t, name))
		if err != nil {
			t.Fatal(err)
		}
		c := leaf.Leaf
		if len(c.DNSNames)+len(c.IPAddresses) != 1 || c.VerifyHostname(name) != nil || c.VerifyHostname("other.example") == nil || c.VerifyHostname("x."+name) == nil {
			t.Errorf("%s: names %v %v", name, c.DNSNames, c.IPAddresses)
		}
		if !c.NotBefore.Equal(ca.NotBefore) || !c.NotAfter.Equal(ca.NotAfter) || c.IsCA || !c.BasicConstraintsValid {
			t.Errorf("%s: %+v", name, c)
		}
		if string(c.AuthorityKeyId) != string(ca.SubjectKeyId) || len(c.SubjectKeyId) != 20 || c.SerialNumber.BitLen() < 120 || c.SerialNumber.BitLen() > 127 {
			t.Errorf("%s: identifiers or serial number %x", name, c.SerialNumber)
		}
		verify(t, a, leaf, name)
	}
	if _, err := a.Leaf(hostmatch.Host{}); err == nil {
		t.Error("a certificate for no host")
	}
}

// verify asks Go, and OpenSSL where it is, with its strictest setting.
func verify(t *testing.T, a *Authority, leaf *tls.Certificate, name string) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(a.certificate)
	if _, err := leaf.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: begun}); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Log("openssl is not installed")
		return
	}
	dir := t.TempDir()
	write(t, dir+"/ca", a.CertificatePEM())
	write(t, dir+"/leaf", encode("CERTIFICATE", leaf.Certificate[0]))
	args := []string{"verify", "-x509_strict", "-purpose", "sslserver", "-attime", fmt.Sprint(begun.Unix()), "-no-CApath", "-CAfile", dir + "/ca"}
	check := "-verify_hostname"
	if _, literal := host(t, name).Addr(); literal {
		check = "-verify_ip"
	}
	if out, err := exec.Command(openssl, append(args, check, strings.Trim(name, "[]"), dir+"/leaf")...).CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", name, err, out)
	}
	write(t, dir+"/ca", newAuthority(t, begun).CertificatePEM())
	if out, err := exec.Command(openssl, append(args, dir+"/leaf")...).CombinedOutput(); err == nil {
		t.Errorf("%s: OpenSSL takes it from another authority\n%s", name, out)
	}
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.FromSlash(path), b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// shake makes a handshake over loopback and gives the errors of both ends. A pipe would not do: an alert that nobody reads
// blocks its writer.
func shake(t *testing.T, config, client *tls.Config) (state tls.ConnectionState, clientErr, serverErr error) {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	done := make(chan error, 1)
	go func() {
		raw, err := listener.Accept()
		if err == nil {
			server := tls.Server(raw, config)
			err = server.Handshake()
			_ = raw.Close()
		}
		done <- err
	}()
	raw, err := net.Dial("tcp4", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn := tls.Client(raw, client)
	clientErr = conn.Handshake()
	_ = raw.Close()
	serverErr = <-done
	return conn.ConnectionState(), clientErr, serverErr
}

func TestHandshake(t *testing.T) {
	a := newAuthority(t, time.Now())
	roots := x509.NewCertPool()
	roots.AddCert(a.certificate)
	config, err := a.TLSConfig(host(t, "a.example"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		client *tls.Config
		fails  bool
	}{
		"trusting":              {&tls.Config{RootCAs: roots, ServerName: "a.example"}, false},
		"TLS 1.2":               {&tls.Config{RootCAs: roots, ServerName: "a.example", MaxVersion: tls.VersionTLS12}, false},
		"h2 first":              {&tls.Config{RootCAs: roots, ServerName: "a.example", NextProtos: []string{"h2", "http/1.1"}}, false},
		"h2 only":               {&tls.Config{RootCAs: roots, ServerName: "a.example", NextProtos: []string{"h2"}}, true},
		"TLS 1.1":               {&tls.Config{RootCAs: roots, ServerName: "a.example", MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, true},
		"another name":          {&tls.Config{RootCAs: roots, ServerName: "b.example"}, true},
		"another, no checking":  {&tls.Config{InsecureSkipVerify: true, ServerName: "b.example"}, true},
		"no name, no checking":  {&tls.Config{InsecureSkipVerify: true}, true},
		"trusting nobody":       {&tls.Config{RootCAs: x509.NewCertPool(), ServerName: "a.example"}, true},
		"trusting another run":  {&tls.Config{RootCAs: poolOf(newAuthority(t, time.Now())), ServerName: "a.example"}, true},
		"with the system roots": {&tls.Config{ServerName: "a.example"}, true},
	} {
		state, clientErr, serverErr := shake(t, config, c.client)
		if failed := clientErr != nil || serverErr != nil; failed != c.fails {
			t.Errorf("%s: %v, %v", name, clientErr, serverErr)
		}
		if !c.fails && (state.NegotiatedProtocol == "h2" || state.DidResume) {
			t.Errorf("%s: %+v", name, state)
		}
	}
}

func poolOf(a *Authority) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// A client that offers the ticket of one host to another must do a whole handshake: there is no ticket.
func TestNoTicketPassesBetweenHosts(t *testing.T) {
	a := newAuthority(t, time.Now())
	cache := tls.NewLRUClientSessionCache(8)
	for _, name := range []string{"a.example", "a.example", "b.example"} {
		config, err := a.TLSConfig(host(t, name))
		if err != nil {
			t.Fatal(err)
		}
		state, clientErr, serverErr := shake(t, config, &tls.Config{RootCAs: poolOf(a), ServerName: name, ClientSessionCache: cache, MaxVersion: tls.VersionTLS12})
		if clientErr != nil || serverErr != nil || state.DidResume {
			t.Fatalf("%s: %v, %v, resumed %v", name, clientErr, serverErr, state.DidResume)
		}
	}
}

func TestEncodeAndParse(t *testing.T) {
	a, other := newAuthority(t, time.Now()), newAuthority(t, time.Now())
	ca, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	b, err := ParseAuthority(ca, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	config, err := b.TLSConfig(host(t, "a.example"))
	if err != nil {
		t.Fatal(err)
	}
	if _, c, s := shake(t, config, &tls.Config{RootCAs: poolOf(a), ServerName: "a.example"}); c != nil || s != nil {
		t.Errorf("after a round trip: %v, %v", c, s)
	}
	leaf, _ := a.Leaf(host(t, "a.example"))
	foreign, _ := other.Encode()
	for name, bad := range map[string]control.CA{
		"nothing":            {},
		"no key":             {Certificate: ca.Certificate},
		"another key":        {Certificate: ca.Certificate, Key: foreign.Key},
		"swapped":            {Certificate: ca.Key, Key: ca.Certificate},
		"two certificates":   {Certificate: append(append([]byte{}, ca.Certificate...), foreign.Certificate...), Key: ca.Key},
		"damaged":            {Certificate: encode("CERTIFICATE", []byte("x")), Key: ca.Key},
		"damaged key":        {Certificate: ca.Certificate, Key: encode("PRIVATE KEY", []byte("x"))},
		"no authority":       {Certificate: encode("CERTIFICATE", leaf.Certificate[0]), Key: ca.Key},
		"text after the key": {Certificate: ca.Certificate, Key: append(append([]byte{}, ca.Key...), 'x')},
	} {
		if _, err := ParseAuthority(bad, rand.Reader); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if s := fmt.Sprintf("%v %+v %#v %s", a, a, a, a); strings.Count(s, "coworker session ") != 4 || strings.Contains(s, "ecdsa") {
		t.Errorf("an authority prints as %s", s)
	}
}

func TestNoRandomness(t *testing.T) {
	if _, err := NewAuthority(noRandom{}, begun); err == nil {
		t.Error("an authority without randomness")
	}
}

type noRandom struct{}

func (noRandom) Read([]byte) (int, error) { return 0, errors.New("no randomness") }

func TestLeafCacheIsBounded(t *testing.T) {
	a := newAuthority(t, time.Now())
	const workers, each = 4, 400 // more than maxLeaves together
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			for i := range each {
				h := host(t, fmt.Sprintf("h%d.w%d.example", i, w))
				if i%4 == 0 {
					h = host(t, "shared.example")
				}
				leaf, err := a.Leaf(h)
				if err != nil || leaf.Leaf.VerifyHostname(h.String()) != nil {
					t.Errorf("%s: %v", h, err)
				}
			}
		})
	}
	group.Wait()
	if n := len(a.leaves); n > maxLeaves || n == 0 {
		t.Errorf("%d certificates are kept", n)
	}
	one, _ := a.Leaf(host(t, "again.example"))
	if two, _ := a.Leaf(host(t, "again.example")); one != two {
		t.Error("the second certificate is a new one")
	}
}
