package trust

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"coworker/netproxy/hostmatch"
)

// client is an unmodified program. It trusts the session's authority if its request for the path arrives, whatever it
// makes of the answer.
type client struct {
	name string
	args []string // URL stands for the server, DIR for an empty folder
	// only is what the program gets beside PATH and HOME in place of the whole environment: it shows which variable it is.
	only []string
}

const javaClient = `public class Get { public static void main(String[] a) throws Exception {
  ((java.net.HttpURLConnection) new java.net.URL(a[0]).openConnection()).getResponseCode(); } }`

var clients = []client{
	{"openssl", []string{"openssl", "s_client", "-verify_return_error", "-verify_hostname", "localhost", "-x509_strict", "-quiet", "-connect", "HOST"}, []string{"SSL_CERT_FILE"}},
	{"curl", []string{"curl", "-sS", "URL"}, []string{"CURL_CA_BUNDLE"}},
	{"curl", []string{"curl", "-sS", "URL"}, []string{"SSL_CERT_FILE"}},
	{"git", []string{"git", "ls-remote", "URL"}, []string{"GIT_SSL_CAINFO"}},
	{"node", []string{"node", "-e", "fetch(process.argv[1]).catch(e => { console.error(e.cause); process.exit(1) })", "URL"}, []string{"NODE_EXTRA_CA_CERTS"}},
	{"node", []string{"node", "-e", "require('https').get(process.argv[1], r => r.resume())", "URL"}, []string{"NODE_EXTRA_CA_CERTS"}},
	{"npm", []string{"npm", "view", "x", "--fetch-retries=0", "--registry=URL"}, []string{"NPM_CONFIG_CAFILE"}},
	{"python", []string{"python3", "-c", "import sys, urllib.request; urllib.request.urlopen(sys.argv[1])", "URL"}, []string{"SSL_CERT_FILE"}},
	{"python strict", []string{"python3", "-c", "import ssl, sys, urllib.request; c = ssl.create_default_context(); c.verify_flags |= ssl.VERIFY_X509_STRICT; urllib.request.urlopen(sys.argv[1], context=c)", "URL"}, []string{"SSL_CERT_FILE"}},
	{"pip", []string{"python3", "-m", "pip", "download", "--retries=0", "--no-cache-dir", "--disable-pip-version-check", "--index-url=URL", "x"}, []string{"PIP_CERT"}},
	{"cargo", []string{"cargo", "search", "x", "--index=sparse+URL/"}, []string{"CARGO_HTTP_CAINFO"}},
	{"java", []string{"java", "DIR/Get.java", "URL"}, []string{"JAVA_TOOL_OPTIONS"}},
	{"wget", []string{"wget", "-q", "-O", "-", "--tries=1", "URL"}, []string{"SYSTEM_WGETRC"}},
	{"aws", []string{"aws", "--endpoint-url=URL", "--no-sign-request", "--region=x", "s3", "ls"}, []string{"AWS_CA_BUNDLE"}},
}

func TestClients(t *testing.T) {
	a := authority(t)
	host, err := hostmatch.ParseName("localhost")
	if err != nil {
		t.Fatal(err)
	}
	config, err := a.TLSConfig(host)
	if err != nil {
		t.Fatal(err)
	}
	config.GetConfigForClient = nil // Java sends no name that has no dot
	address, arrived := serve(t, config)
	_, environment := install(t, a)
	for _, c := range clients {
		if _, err := exec.LookPath(c.args[0]); err != nil {
			t.Logf("%s is not installed", c.args[0])
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			if out, _ := run(t, c, address, nil); arrived() {
				t.Errorf("arrives without a reason to trust the certificate\n%s", out)
			}
			if out, err := run(t, c, address, environment); !arrived() {
				t.Errorf("with the whole environment: %v\n%s", err, out)
			}
			if out, err := run(t, c, address, pick(environment, c.only)); !arrived() {
				t.Errorf("with %v: %v\n%s", c.only, err, out)
			}
		})
	}
}

// pick gives the named variables of an environment.
func pick(environment, names []string) []string {
	var out []string
	for _, e := range environment {
		name, _, _ := strings.Cut(e, "=")
		for _, wanted := range names {
			if name == wanted {
				out = append(out, e)
			}
		}
	}
	return out
}

// run gives a client an empty home. Toolchains that find themselves through the home keep theirs.
func run(t *testing.T, c client, address string, environment []string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "Get.java"), []byte(javaClient), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	replace := strings.NewReplacer("URL", "https://"+address, "HOST", address, "DIR", dir)
	args := make([]string, len(c.args))
	for i, arg := range c.args {
		args[i] = replace.Replace(arg)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "RUSTUP_HOME=" + rustup(), "GIT_TERMINAL_PROMPT=0"}, environment...)
	out, err := cmd.CombinedOutput()
	return fmt.Sprintf("%s\n%s", args, out), err
}

func rustup() string {
	if dir := os.Getenv("RUSTUP_HOME"); dir != "" {
		return dir
	}
	return filepath.Join(os.Getenv("HOME"), ".rustup")
}

// serve answers 404 and notes that something was asked; arrived tells it once.
func serve(t *testing.T, config *tls.Config) (address string, arrived func() bool) {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	seen := false
	server := &http.Server{ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			mu.Lock()
			seen = true
			mu.Unlock()
			http.Error(w, "nothing here", http.StatusNotFound)
		})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(tls.NewListener(listener, config))
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return net.JoinHostPort("localhost", port), func() bool {
		mu.Lock()
		defer mu.Unlock()
		was := seen
		seen = false
		return was
	}
}
