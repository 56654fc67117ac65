package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"time"
)

// greeting is what the server says.
const greeting = "hello from outside"

// webPorts are served at an address; the one behind a colon is for TLS.
var webPorts = []struct {
	port   string
	secure bool
}{{"80", false}, {"8080", false}, {"443", true}}

// serveWeb serves HTTP and HTTPS at an address until it is killed, and says on standard output when it accepts connections.
func serveWeb(address string) error {
	certificate, err := selfSigned()
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, greeting) }),
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{certificate}},
		ReadHeaderTimeout: time.Minute,
	}
	ended := make(chan error)
	for _, w := range webPorts {
		l, err := net.Listen("tcp", net.JoinHostPort(address, w.port))
		if err != nil {
			return err
		}
		go func() {
			if w.secure {
				ended <- server.ServeTLS(l, "", "")
			} else {
				ended <- server.Serve(l)
			}
		}()
	}
	fmt.Println("listening")
	return <-ended
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// get prints what a server says. Who it is does not matter here: the cell's proxy judges the name, not the certificate.
func get(address string, proxy func(*http.Request) (*url.URL, error)) error {
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		Proxy: proxy, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
	answer, err := client.Get(address)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK || string(body) != greeting+"\n" {
		return fmt.Errorf("%s: %.200q", answer.Status, body)
	}
	return nil
}

// lookUp wants one address of a name, or one of each family, and nothing but addresses that stand for names.
func lookUp(name string) error {
	found, err := net.DefaultResolver.LookupNetIP(context.Background(), "ip", name)
	if err != nil {
		return err
	}
	for _, a := range found {
		fmt.Println(a.Unmap())
	}
	if len(found) == 0 || len(found) > 2 {
		return errors.New("not one address or two")
	}
	return nil
}
