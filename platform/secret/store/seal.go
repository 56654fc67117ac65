package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"filippo.io/age"

	"coworker/platform/secret"
)

// maxSealed is a plaintext at its limit, with the 16 bytes that age adds to each 64 KiB and its header
// (C2SP age.md, payload).
const maxSealed = secret.MaxPlaintext + secret.MaxPlaintext/(64<<10)*16 + 4<<10

// identity is the key of a store.
type identity struct{ x *age.X25519Identity }

func newIdentity() (*identity, error) {
	x, err := age.GenerateX25519Identity()
	if err != nil {
		return nil, err
	}
	return &identity{x}, nil
}

// parseIdentity reads the text form. Its errors do not repeat the text.
func parseIdentity(text string) (*identity, error) {
	x, err := age.ParseX25519Identity(strings.TrimSuffix(text, "\n"))
	if err != nil {
		return nil, errors.New("it does not hold a key")
	}
	return &identity{x}, nil
}

// text is the secret form, which parseIdentity reads.
func (id *identity) text() string { return id.x.String() }

// fingerprint tells one key from another. The public key itself is not written anywhere: with it, somebody who can write
// the folder but not read the key could make a store of their own that opens.
func (id *identity) fingerprint() string {
	sum := sha256.Sum256([]byte("coworker secrets key\n" + id.x.Recipient().String()))
	return hex.EncodeToString(sum[:])
}

func (id *identity) seal(plain []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := age.Encrypt(&out, id.x.Recipient())
	if err != nil {
		return nil, fmt.Errorf("encrypt the secrets: %w", err)
	}
	if _, err := w.Write(plain); err != nil {
		return nil, fmt.Errorf("encrypt the secrets: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("encrypt the secrets: %w", err)
	}
	return out.Bytes(), nil
}

// open yields nothing until the last byte has been authenticated: age hands out verified chunks before the end, and a
// store that is cut off after one is not a store.
func (id *identity) open(data []byte) ([]byte, error) {
	r, err := age.Decrypt(bytes.NewReader(data), id.x)
	var foreign *age.NoIdentityMatchError
	if errors.As(err, &foreign) {
		return nil, errors.New("it is encrypted with another key")
	}
	if err != nil {
		return nil, errors.New("it was changed or cut off, or is no age file")
	}
	plain, err := io.ReadAll(io.LimitReader(r, secret.MaxPlaintext+1))
	if err != nil {
		return nil, errors.New("it was changed or cut off")
	}
	if len(plain) > secret.MaxPlaintext {
		return nil, fmt.Errorf("the content is larger than %d MiB", secret.MaxPlaintext>>20)
	}
	return plain, nil
}
