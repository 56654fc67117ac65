package credential

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"coworker/integration/netns"
)

// outside is where the servers are: addresses that no rule reaches without naming them (RFC 5737).
const outside = "203.0.113.0/24"

// addresses are the hosts of the world. The company's proxy knows one more name than this machine does.
var addresses = map[string]string{
	"ok.test": "203.0.113.10", "git.test": "203.0.113.11", "npm.test": "203.0.113.12", "other.test": "203.0.113.13",
	"cert.test": "203.0.113.14", "wrong.test": "203.0.113.15", "proxy.test": "203.0.113.16", "direct.test": "203.0.113.17",
	"ask.test": "198.20.0.10", // a public address: a person's yes opens no other
}

// hidden is resolved by the company's proxy only.
const hidden = "hidden.test"

// world is two network namespaces and a wire between them: coworker runs near, the servers listen far. Near has a mount
// namespace too, in which the hosts file and the bundle of certificates are the world's.
type world struct {
	near, mounts, far *os.File
	authority         *x509.Certificate
	key               *ecdsa.PrivateKey
	*servers
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{}
	if err := w.makeAuthority(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var err error
	if w.far, err = netns.New(); err != nil {
		t.Fatalf("namespace of the servers: %v", err)
	}
	t.Cleanup(func() { w.far.Close() })
	if err := w.makeNear(dir); err != nil {
		t.Fatalf("namespaces of coworker: %v", err)
	}
	t.Cleanup(func() { w.near.Close(); w.mounts.Close() })
	w.servers = newServers(t, w)
	return w
}

func (w *world) makeNear(dir string) error {
	hosts := "127.0.0.1 localhost\n"
	for name, address := range addresses {
		hosts += address + " " + name + "\n"
	}
	bundle, err := os.ReadFile("/etc/ssl/certs/ca-certificates.crt")
	if err != nil {
		return err
	}
	bundle = append(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.authority.Raw})...)
	files := map[string]string{"hosts": "/etc/hosts", "bundle": "/etc/ssl/certs/ca-certificates.crt", "nsswitch": "/etc/nsswitch.conf"}
	for name, text := range map[string]string{"hosts": hosts, "bundle": string(bundle), "nsswitch": "passwd: files\ngroup: files\nhosts: files\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return netns.OnThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
			return err
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
		for name, target := range files {
			if err := unix.Mount(filepath.Join(dir, name), target, "", unix.MS_BIND, ""); err != nil {
				return fmt.Errorf("bind over %s: %w", target, err)
			}
		}
		if w.near, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			return err
		}
		if w.mounts, err = os.Open("/proc/thread-self/ns/mnt"); err != nil {
			return err
		}
		return w.wire()
	})
}

// wire runs near.
func (w *world) wire() error {
	far := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), w.far.Fd())
	err := netns.IP("link set lo up", "link add near type veth peer name far", "link set far netns "+far, "address add 203.0.113.1/24 dev near",
		"link set near up", "route add default dev near")
	if err != nil {
		return err
	}
	return w.inFar(func() error {
		lines := []string{"link set lo up", "link set far up"}
		for _, address := range addresses {
			lines = append(lines, "address add "+address+"/24 dev far")
		}
		return netns.IP(append(lines, "route add default dev far")...)
	})
}

// inFar runs f where the servers are: sockets that it makes belong there.
func (w *world) inFar(f func() error) error { return netns.In(w.far, f) }

// begin starts a process near.
func (w *world) begin(cmd *exec.Cmd) error {
	return netns.OnThread(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil { // setns(2) wants it of a thread
			return err
		}
		if err := unix.Setns(int(w.mounts.Fd()), unix.CLONE_NEWNS); err != nil {
			return err
		}
		if err := unix.Setns(int(w.near.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		// What the test has in a user namespace of its own is not for the person.
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
			return err
		}
		return cmd.Start()
	})
}

func (w *world) listen(t testing.TB, address string) net.Listener {
	t.Helper()
	var l net.Listener
	err := w.inFar(func() (err error) { l, err = net.Listen("tcp", address); return err })
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (w *world) makeAuthority() (err error) {
	if w.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority of the world"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, w.key.Public(), w.key)
	if err != nil {
		return err
	}
	w.authority, err = x509.ParseCertificate(raw)
	return err
}

// certificate is one for a host of the world.
func (w *world) certificate(t testing.TB, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), DNSNames: []string{name}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, w.authority, key.Public(), w.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}
}

// TestWorld shows that the person's own programs reach the servers, so that a refusal is not one of the world's.
func TestWorld(t *testing.T) {
	eachUser(t, func(t *testing.T, p *person) {
		for url, want := range map[string]string{
			"https://ok.test/": "401", "https://other.test/": "200", "http://ok.test/": "200", "https://npm.test/left": "401", "https://git.test/repo.git/info/refs?service=git-upload-pack": "401",
		} {
			cmd := p.user.Command(t.Context(), p.home, "curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", url)
			var out, errs strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &errs
			if err := errors.Join(p.begin(cmd), cmd.Wait()); err != nil || out.String() != want {
				t.Errorf("%s answers %s, want %s (%v %s)", url, out.String(), want, err, errs.String())
			}
		}
	})
}
