// Command client is what runs inside a cell in the tests of load and in the benchmarks of the proxy: it makes requests as
// its one argument, a job in JSON, says, measures itself, and prints a result in JSON. It is no part of the product.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// job says what to do. Kinds: http, tls (requests on kept connections), tls-new, raw-new (a connection each),
// download, download-tls, and those of crowd.go.
type job struct {
	Kind    string
	Proxy   string // HOST:PORT to ask for a tunnel or a page; empty: none
	Host    string
	Port    int
	Path    string
	Workers int
	Seconds float64 // of measuring; a download ends by itself
	CA      string  // PEM file
	Bytes   int64   // of a download
	Count   int     // connections of the kinds of crowd.go
	During  *job    // done while the connections of crowd.go are held
}

// result is per second, in milliseconds and MB (10^6 bytes).
type result struct {
	Rate, P50, P99 float64
	MBps           float64
	Requests       int
	Errors         int
	Error          string // the first
	During         *result
}

func main() {
	r, err := run(os.Args[1:])
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(r)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
}

func run(args []string) (*result, error) {
	if len(args) != 1 {
		return nil, errors.New("usage: client JOB")
	}
	var j job
	if err := json.Unmarshal([]byte(args[0]), &j); err != nil {
		return nil, fmt.Errorf("job: %w", err)
	}
	return j.run()
}

func (j job) run() (*result, error) {
	c := &client{job: j}
	if err := c.trust(); err != nil {
		return nil, err
	}
	switch c.Kind {
	case "http", "tls", "tls-new", "raw-new":
		return c.requests(), nil
	case "download", "download-tls":
		return c.download()
	case "tunnels", "tunnels-each", "slow", "resets":
		return c.crowd()
	}
	return nil, fmt.Errorf("kind %q is unknown", c.Kind)
}

type client struct {
	job
	tls *tls.Config
}

func (c *client) trust() error {
	if c.CA == "" {
		return nil
	}
	pem, err := os.ReadFile(c.CA)
	if err != nil {
		return err
	}
	c.tls = &tls.Config{RootCAs: x509.NewCertPool(), ServerName: c.Host}
	if !c.tls.RootCAs.AppendCertsFromPEM(pem) {
		return fmt.Errorf("no certificate in %s", c.CA)
	}
	return nil
}

func (c *client) authority() string { return net.JoinHostPort(c.Host, fmt.Sprint(c.Port)) }

// secure says whether TLS is spoken with the origin.
func (c *client) secure() bool {
	return c.tls != nil && c.Kind != "http" && c.Kind != "raw-new" && c.Kind != "download"
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
