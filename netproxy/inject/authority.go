package inject

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"sync"
	"time"

	"coworker/netproxy/control"
	"coworker/netproxy/hostmatch"
)

// Validity of a session's authority around its beginning. The hour before is for clocks of virtual machines; a session
// of more than a week gets no new certificates accepted, and says so in the client's own words.
const (
	backdate = time.Hour
	lifetime = 7 * 24 * time.Hour
)

// maxLeaves bounds the cache of certificates; when it is full it is emptied. Hosts with rules are named by a person, so
// this is reached by mistake only.
const maxLeaves = 1024

// maxCommonName is ub-common-name of RFC 5280 appendix A.1. Longer names stand in the alternative name alone.
const maxCommonName = 64

// Authority signs the certificates that the proxy shows in place of the real ones. It lives as long as a session, and is
// trusted inside its cell only. Its methods may be called from several goroutines.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	leafKey     *ecdsa.PrivateKey // of all leaves: who holds it holds the authority too

	mu     sync.Mutex // also guards random
	random io.Reader
	leaves map[hostmatch.Host]*tls.Certificate
}

// NewAuthority makes the authority of a session that begins now. random is crypto/rand.Reader outside of tests.
func NewAuthority(random io.Reader, now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), random)
	if err != nil {
		return nil, fmt.Errorf("key of the session's authority: %w", err)
	}
	serial, err := newSerial(random)
	if err != nil {
		return nil, err
	}
	id, err := keyID(key)
	if err != nil {
		return nil, err
	}
	now = now.UTC().Truncate(time.Second)
	template := &x509.Certificate{
		SerialNumber: serial,
		// The name is different in each session: a client that kept an older certificate would otherwise try it.
		Subject:   pkix.Name{CommonName: "coworker session " + hex.EncodeToString(id[:8])},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(lifetime),
		BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign, SubjectKeyId: id, AuthorityKeyId: id,
	}
	der, err := x509.CreateCertificate(random, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("certificate of the session's authority: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("certificate of the session's authority: %w", err)
	}
	return assemble(certificate, key, random)
}

// ParseAuthority reads what Encode wrote. The pair must belong together and be an authority as NewAuthority makes it.
func ParseAuthority(ca control.CA, random io.Reader) (*Authority, error) {
	der, err := onlyBlock(ca.Certificate, "CERTIFICATE")
	if err != nil {
		return nil, fmt.Errorf("certificate of the authority: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("certificate of the authority: %w", err)
	}
	if der, err = onlyBlock(ca.Key, "PRIVATE KEY"); err != nil {
		return nil, fmt.Errorf("key of the authority: %w", err)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, errors.New("key of the authority: not PKCS #8") // the parser's words may quote the key
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	switch {
	case !ok || key.Curve != elliptic.P256():
		return nil, fmt.Errorf("key of the authority: a %T that is not of the curve P-256", parsed)
	case !key.PublicKey.Equal(certificate.PublicKey):
		return nil, errors.New("key and certificate of the authority do not belong together")
	case !certificate.BasicConstraintsValid || !certificate.IsCA || certificate.KeyUsage&x509.KeyUsageCertSign == 0:
		return nil, fmt.Errorf("the certificate %s may sign no others", hostmatch.Quote(certificate.Subject.CommonName))
	}
	return assemble(certificate, key, random)
}

func assemble(certificate *x509.Certificate, key *ecdsa.PrivateKey, random io.Reader) (*Authority, error) {
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), random)
	if err != nil {
		return nil, fmt.Errorf("key of the session's certificates: %w", err)
	}
	return &Authority{certificate: certificate, key: key, leafKey: leafKey, random: random,
		leaves: map[hostmatch.Host]*tls.Certificate{}}, nil
}

// CertificatePEM is what has to be trusted inside.
func (a *Authority) CertificatePEM() []byte {
	return encode("CERTIFICATE", a.certificate.Raw)
}

// Encode writes certificate and key for the control line. The key is a secret: whoever has it reads what programs inside
// send to any host.
func (a *Authority) Encode() (control.CA, error) {
	der, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return control.CA{}, errors.New("the key of the authority has no PKCS #8 form")
	}
	return control.CA{Certificate: a.CertificatePEM(), Key: encode("PRIVATE KEY", der)}, nil
}

// String keeps the keys out of whatever prints an Authority.
func (a *Authority) String() string { return a.certificate.Subject.CommonName }

// GoString is String, for %#v.
func (a *Authority) GoString() string { return a.String() }

// Leaf is the certificate for one host: exactly that name or address, valid as long as the authority. The caller must not
// change it.
func (a *Authority) Leaf(host hostmatch.Host) (*tls.Certificate, error) {
	if host.IsZero() {
		return nil, errors.New("a certificate for no host")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if leaf := a.leaves[host]; leaf != nil {
		return leaf, nil
	}
	leaf, err := a.sign(host)
	if err != nil {
		return nil, fmt.Errorf("certificate for %s: %w", host, err)
	}
	if len(a.leaves) >= maxLeaves {
		clear(a.leaves)
	}
	a.leaves[host] = leaf
	return leaf, nil
}

// sign follows RFC 5280 sections 4.1.2 and 4.2.1 and the stricter readers of it: OpenSSL with X509_V_FLAG_X509_STRICT,
// which Python sets since 3.13, wants both key identifiers and a critical basicConstraints.
func (a *Authority) sign(host hostmatch.Host) (*tls.Certificate, error) {
	serial, err := newSerial(a.random)
	if err != nil {
		return nil, err
	}
	id, err := keyID(a.leafKey)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, NotBefore: a.certificate.NotBefore, NotAfter: a.certificate.NotAfter,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, SubjectKeyId: id,
	}
	if addr, literal := host.Addr(); literal {
		template.IPAddresses = append(template.IPAddresses, addr.AsSlice())
	} else {
		template.DNSNames = []string{host.Name()}
	}
	if name := host.String(); len(name) <= maxCommonName {
		template.Subject.CommonName = name
	}
	der, err := x509.CreateCertificate(a.random, template, a.certificate, a.leafKey.Public(), a.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.leafKey, Leaf: leaf}, nil
}

// TLSConfig is the server's side of an opened connection to host. HTTP/1.1 is the only protocol, because that is what the
// proxy parses; a client that offers others only fails its handshake (RFC 7301 section 3.2). There are no session
// tickets: one that is valid for two hosts would skip the check of the name (RFC 8446 section 4.6.1).
func (a *Authority) TLSConfig(host hostmatch.Host) (*tls.Config, error) {
	leaf, err := a.Leaf(host)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{
		Certificates: []tls.Certificate{*leaf}, MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"}, SessionTicketsDisabled: true,
	}
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		return nil, agreeName(hello.ServerName, host)
	}
	return config, nil
}

// agreeName checks the name that the client believes to talk to. tlshello has done so before, on the same bytes; this is
// the second lock on the door that credentials pass.
func agreeName(name string, host hostmatch.Host) error {
	if _, literal := host.Addr(); literal && name == "" {
		return nil
	}
	if h, err := hostmatch.ParseName(name); err != nil || h != host {
		return fmt.Errorf("the client asks for a certificate of %s, the connection is for %s", hostmatch.Quote(name), host)
	}
	return nil
}

// newSerial draws 127 bits: RFC 5280 section 4.1.2.2 wants a positive number of at most 20 octets, and 64 unpredictable
// bits are what the CA/Browser Forum asks for (section 7.1 of its baseline requirements).
func newSerial(random io.Reader) (*big.Int, error) {
	var b [16]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return nil, fmt.Errorf("serial number: %w", err)
	}
	b[0] = b[0]&0x7f | 0x40 // positive, and never zero
	return new(big.Int).SetBytes(b[:]), nil
}

// keyID is method 1 of RFC 7093 section 2: the left 160 bits of SHA-256 of the key.
func keyID(key *ecdsa.PrivateKey) ([]byte, error) {
	point, err := key.PublicKey.Bytes()
	if err != nil {
		return nil, fmt.Errorf("identifier of a key: %w", err)
	}
	sum := sha256.Sum256(point)
	return sum[:20], nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func onlyBlock(text []byte, kind string) ([]byte, error) {
	block, rest := pem.Decode(text)
	switch {
	case block == nil || block.Type != kind:
		return nil, fmt.Errorf("no PEM block of the type %s", kind)
	case len(rest) > 0:
		return nil, fmt.Errorf("%d bytes after the PEM block", len(rest))
	}
	return block.Bytes, nil
}
