package trust

import (
	"fmt"
	"io"

	"software.sslmate.com/src/go-pkcs12"
)

// javaPassword is the one that every Java installation has for its own trust store. It protects nothing: what it opens is
// public; without a password many versions of Java read no certificate from a store.
const javaPassword = "changeit"

// JavaTrustStore gives the certificates of a bundle as a PKCS #12 store (RFC 7292) for javax.net.ssl.trustStore, and its
// password. The algorithms are those that Java itself writes since 16 (JDK-8153005) and reads since 12, and in the updates
// 8u301 and 11.0.12; older ones do not read the store. random salts it.
func JavaTrustStore(bundle []byte, random io.Reader) (store []byte, password string, err error) {
	list, _ := certificates(bundle)
	switch {
	case len(list) == 0:
		return nil, "", errEmpty
	case len(list) > MaxCertificates:
		return nil, "", fmt.Errorf("a bundle of %d certificates, more than %d", len(list), MaxCertificates)
	}
	entries := make([]pkcs12.TrustStoreEntry, len(list))
	for i, c := range list {
		// Java keeps one entry for each name, so names must differ where subjects may be the same.
		entries[i] = pkcs12.TrustStoreEntry{Cert: c, FriendlyName: fmt.Sprintf("coworker-%04d", i)}
	}
	store, err = pkcs12.Modern2023.WithRand(random).EncodeTrustStoreEntries(entries, javaPassword)
	if err != nil {
		return nil, "", fmt.Errorf("trust store for Java: %w", err)
	}
	return store, javaPassword, nil
}
