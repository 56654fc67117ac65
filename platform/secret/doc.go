// Package secret is the vocabulary of credentials: a value that does not print, the entry that says where the value may
// be used, and the plaintext form in which entries are kept.
//
// It is pure: package store below it has the file and the key. Everything outside the walls but the agent (rule D3) and
// the cell (rule D4) may import it. It must not learn to read files, and no type of it may show a value by fmt, log or
// encoding/json; Value.Reveal is the one way to the bytes, so that a search for it finds every use.
package secret
