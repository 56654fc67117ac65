package bench

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"coworker/integration/load/network"
)

// nginxConf is an origin on all three ports. %[1]s is its folder.
const nginxConf = `daemon off; worker_processes 2; pid %[1]s/pid; error_log %[1]s/error.log; user nobody nogroup;
events { worker_connections 4096; }
http {
	access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000000; default_type application/octet-stream;
	client_body_temp_path %[1]s/t1; proxy_temp_path %[1]s/t2; fastcgi_temp_path %[1]s/t3; uwsgi_temp_path %[1]s/t4; scgi_temp_path %[1]s/t5;
	server {
		listen 203.0.113.9:80 backlog=4096; listen 203.0.113.9:8080 backlog=4096; listen 203.0.113.9:443 ssl backlog=4096;
		ssl_certificate %[1]s/ca.pem; ssl_certificate_key %[1]s/key.pem; ssl_protocols TLSv1.3;
		root %[1]s/pages;
	}
}
`

// startOrigin starts nginx at the far end.
func (w *proxyWorld) startOrigin(b *testing.B) {
	b.Helper()
	dir := openDir(b)
	pages := filepath.Join(dir, "pages")
	if err := os.Mkdir(pages, 0o755); err != nil {
		b.Fatal(err)
	}
	certificate, key := selfSigned(b)
	for file, data := range map[string][]byte{
		filepath.Join(dir, "ca.pem"): certificate, filepath.Join(dir, "key.pem"): key, filepath.Join(w.place.workspace, "ca.pem"): certificate,
		filepath.Join(dir, "nginx.conf"): fmt.Appendf(nil, nginxConf, dir), pages + small: make([]byte, 1024), pages + large: make([]byte, largeBytes),
	} {
		if err := os.WriteFile(file, data, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	w.start(b, w.net.Far, network.Address+":443", "nginx", "-p", dir, "-c", filepath.Join(dir, "nginx.conf"))
}

// openDir is a folder that servers of any user can read.
func openDir(b *testing.B) string {
	b.Helper()
	dir, err := os.MkdirTemp("", "coworker-bench-")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			b.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	return dir
}

// selfSigned is a certificate for the origin that is its own authority, and its key.
func selfSigned(b *testing.B) (certificate, key []byte) {
	b.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: network.Name}, DNSNames: []string{network.Name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		b.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		b.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}

// start runs a server until the benchmark ends, and waits until it accepts connections.
func (w *proxyWorld) start(b *testing.B, where func(func() error) error, address, name string, args ...string) {
	b.Helper()
	cmd := exec.Command(name, args...)
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := where(cmd.Start); err != nil {
		b.Fatalf("%s: %v", name, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	b.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			cmd.Process.Kill()
			<-ended
		}
	})
	var err error
	for range 200 {
		err = where(func() error {
			c, err := net.Dial("tcp", address)
			if err == nil {
				err = c.Close()
			}
			return err
		})
		if err == nil {
			return
		}
		select {
		case how := <-ended:
			ended <- how
			b.Fatalf("%s: %v\n%s", name, how, text.String())
		case <-time.After(25 * time.Millisecond):
		}
	}
	b.Fatalf("%s does not accept connections: %v", name, err)
}

// build puts the client into the workspace.
func (w *proxyWorld) build(b *testing.B) {
	b.Helper()
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", filepath.Join(w.place.workspace, "client"), "coworker/integration/load/client")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("build the client: %v\n%s", err, out)
	}
}

const squidConf = `http_port 127.0.0.1:3130
acl allowed dstdomain origin.test
acl tunnel method CONNECT
http_access allow allowed
http_access deny all
cache deny all
cache_mem 8 MB
access_log none
cache_log /dev/null
cache_store_log none
pid_filename none
netdb_filename none
coredump_dir /
shutdown_lifetime 0 seconds
max_filedescriptors 4096
via off
forwarded_for delete
`

const tinyproxyConf = `User nobody
Group nogroup
Port 3131
Listen 127.0.0.1
Timeout 60
MaxClients 400
LogLevel Critical
Filter "%[1]s/filter"
FilterDefaultDeny Yes
FilterExtended On
ConnectPort 443
ConnectPort 8080
`

// startPeers starts the proxies that are installed, with an allow-list of the one host and without a cache.
func (w *proxyWorld) startPeers(b *testing.B) {
	b.Helper()
	dir := openDir(b)
	for name, text := range map[string]string{"squid.conf": squidConf, "tinyproxy.conf": fmt.Sprintf(tinyproxyConf, dir), "filter": "^origin\\.test$\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	for name, peer := range map[string][]string{
		"squid":     {"127.0.0.1:3130", "-N", "-f", filepath.Join(dir, "squid.conf")},
		"tinyproxy": {"127.0.0.1:3131", "-d", "-c", filepath.Join(dir, "tinyproxy.conf")},
	} {
		if _, err := exec.LookPath(name); err != nil {
			report.note("%s is not installed, so it is not compared", name)
			continue
		}
		w.start(b, w.net.Near, peer[0], name, peer[1:]...)
		w.peers[name] = peer[0]
	}
}
