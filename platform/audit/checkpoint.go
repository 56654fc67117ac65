package audit

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

// Checkpoint is a signed statement: the first Size rows of the log have this
// root. Kept where the account cannot reach it, it holds the log to its past.
//
// Its text is
//
//	coworker audit log v1
//	origin 6f0c…                 which log: hash of its public key
//	size 1042
//	root <base64>                RFC 6962 tree hash
//	time 2026-01-02T03:04:05.000000000Z
//
//	signature <base64>           ed25519 over the lines above, empty one included
//
// The first line keeps a signature from ever meaning something else.
type Checkpoint struct {
	Origin    string
	Size      int64
	Root      tlog.Hash
	Time      time.Time
	Signature []byte
}

const (
	checkpointTitle = "coworker audit log v1"
	maxCheckpoint   = 1024
)

// ErrCheckpoint marks a text that is no checkpoint of this log.
var ErrCheckpoint = errors.New("not a checkpoint of this log")

// origin names the log of a key.
func origin(pub ed25519.PublicKey) string {
	sum := sha256.Sum256(append([]byte("coworker audit origin v1\n"), pub...))
	return hex.EncodeToString(sum[:16])
}

func (c Checkpoint) signed() string {
	return checkpointTitle + "\norigin " + c.Origin + "\nsize " + strconv.FormatInt(c.Size, 10) +
		"\nroot " + base64.StdEncoding.EncodeToString(c.Root[:]) + "\ntime " + c.Time.UTC().Format(timeLayout) + "\n\n"
}

// String returns the text form.
func (c Checkpoint) String() string {
	return c.signed() + "signature " + base64.StdEncoding.EncodeToString(c.Signature) + "\n"
}

func sign(key ed25519.PrivateKey, size int64, root tlog.Hash, now time.Time) Checkpoint {
	c := Checkpoint{Origin: origin(key.Public().(ed25519.PublicKey)), Size: size, Root: root, Time: now.UTC()}
	c.Signature = ed25519.Sign(key, []byte(c.signed()))
	return c
}

// Verify checks that the owner of pub signed the checkpoint.
func (c Checkpoint) Verify(pub ed25519.PublicKey) error {
	if len(pub) != ed25519.PublicKeySize {
		return fmt.Errorf("%w: the public key has %d bytes", ErrCheckpoint, len(pub))
	}
	if o := origin(pub); c.Origin != o {
		return fmt.Errorf("%w: its origin is %s, the key's is %s", ErrCheckpoint, c.Origin, o)
	}
	if !ed25519.Verify(pub, []byte(c.signed()), c.Signature) {
		return fmt.Errorf("%w: the signature does not match", ErrCheckpoint)
	}
	return nil
}

// ParseCheckpoint reads the text form, exactly as String writes it. It does
// not verify the signature.
func ParseCheckpoint(text string) (Checkpoint, error) {
	bad := func(what string) (Checkpoint, error) {
		return Checkpoint{}, fmt.Errorf("%w: %s", ErrCheckpoint, what)
	}
	if len(text) > maxCheckpoint {
		return bad("the text is too long")
	}
	lines := strings.Split(text, "\n")
	if len(lines) != 8 || lines[0] != checkpointTitle {
		return bad("the first line is not " + strconv.Quote(checkpointTitle) + " or lines are missing")
	}
	var c Checkpoint
	var err error
	c.Origin = strings.TrimPrefix(lines[1], "origin ")
	if c.Size, err = strconv.ParseInt(strings.TrimPrefix(lines[2], "size "), 10, 64); err != nil || c.Size < 0 {
		return bad("the size is not a number")
	}
	root, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(lines[3], "root "))
	if err != nil || len(root) != tlog.HashSize {
		return bad("the root is not a hash")
	}
	c.Root = tlog.Hash(root)
	if c.Time, err = time.Parse(timeLayout, strings.TrimPrefix(lines[4], "time ")); err != nil {
		return bad("the time is not one")
	}
	if c.Signature, err = base64.StdEncoding.DecodeString(strings.TrimPrefix(lines[6], "signature ")); err != nil {
		return bad("the signature is not base64")
	}
	// Covers every looseness above: prefixes, leading zeros, spare bits.
	if c.String() != text {
		return bad("the text is not in its only valid form")
	}
	return c, nil
}

const publicPrefix = "coworker-audit-key-1:"

// FormatPublicKey returns the text form of a public key, for people who verify.
func FormatPublicKey(pub ed25519.PublicKey) string {
	return publicPrefix + base64.StdEncoding.EncodeToString(pub)
}

// ParsePublicKey reads what FormatPublicKey wrote.
func ParsePublicKey(text string) (ed25519.PublicKey, error) {
	raw, ok := strings.CutPrefix(strings.TrimSpace(text), publicPrefix)
	b, err := base64.StdEncoding.DecodeString(raw)
	if !ok || err != nil || len(b) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("audit public key %q: want %s and the base64 of 32 bytes", cut(text, 80), publicPrefix)
	}
	return bytes.Clone(b), nil
}
