package trust

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// Bounds of a bundle. That of Mozilla has about 140 certificates in 220 KiB; companies add tens.
const (
	MaxBundle       = 8 << 20
	MaxCertificates = 4096
)

// Bundle gives the system's roots followed by ca, in PEM. Of system everything is left out that is no certificate that
// can be parsed, as comments and other kinds of blocks are; a certificate stands in the result once. ca must be
// certificates only, and one at least. system may be empty: then nothing but opened hosts is trusted.
func Bundle(system, ca []byte) ([]byte, error) {
	if len(system)+len(ca) > MaxBundle {
		return nil, fmt.Errorf("a bundle of %d bytes, more than %d", len(system)+len(ca), MaxBundle)
	}
	own, skipped := certificates(ca)
	if len(own) == 0 || skipped > 0 {
		return nil, fmt.Errorf("the session's authority: %d certificates and %d other blocks", len(own), skipped)
	}
	roots, _ := certificates(system)
	return encode(append(roots, own...))
}

// Certificates gives the certificates of a text in PEM, each once, and nothing else of it: a file that a variable names may
// hold a private key beside them.
func Certificates(text []byte) ([]byte, error) {
	list, _ := certificates(text)
	return encode(list)
}

func encode(list []*x509.Certificate) ([]byte, error) {
	var out bytes.Buffer
	seen := map[string]bool{}
	for _, c := range list {
		if seen[string(c.Raw)] {
			continue
		}
		seen[string(c.Raw)] = true
		if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}); err != nil {
			return nil, fmt.Errorf("write a bundle: %w", err)
		}
	}
	if len(seen) > MaxCertificates {
		return nil, fmt.Errorf("a bundle of %d certificates, more than %d", len(seen), MaxCertificates)
	}
	return out.Bytes(), nil
}

// certificates reads the blocks that are certificates; skipped counts the others.
func certificates(text []byte) (list []*x509.Certificate, skipped int) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return list, skipped
		}
		if block.Type != "CERTIFICATE" {
			skipped++
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			skipped++
			continue
		}
		list = append(list, c)
	}
}

var errEmpty = errors.New("a bundle without certificates")
