// Package gitobject answers one question about a repository that may be hostile: does its object store hold exactly
// these bytes as a blob? A file that looks like a secret may stay visible inside a cell if the history shows it anyway.
//
// It runs no git, follows no symlink (platform/workfs) and bounds everything it reads. Whoever decides what a cell may
// see imports it; packages behind the wall must not. What must not be added: writing, refs, trees and commits, object
// kinds other than blobs, and alternates, which lead out of the tree that was asked about.
//
// # What an answer is worth
//
// A yes is given only for an object that was inflated, with its whole delta chain, and compared byte for byte. A name
// that is merely listed counts for nothing: names can be planted, and an index of a million guesses costs its author
// nothing but their hashes. Somebody who can write the store but cannot read the file can still store every guess at a
// short secret as a real object, and learns from the file becoming visible that one was right. No check of content can
// tell that from history; it confirms guesses that were made in full, and gives away nothing else.
//
// The bytes are those of the file as it lies in the folder. Line endings or filters that git would apply on the way in
// are not applied, so such a file is "not held", which hides it.
//
// # What is not looked at
//
// Objects that only an alternate, a promisor remote or a multi-pack-index without pack indexes has are "not held". Git
// keeps a pack index beside each pack also where a multi-pack-index exists (git-multi-pack-index(1)). Version 1 pack
// indexes, which git has not written since 1.6 (2008), are refused.
package gitobject

import (
	"context"
	"crypto/sha1" // the name of an object, not a proof of anything: the bytes are compared
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"strconv"

	"coworker/platform/gitconfig"
	"coworker/platform/workfs"
)

// MaxContent is the longest content that can be asked about.
const MaxContent = 1 << 20

const (
	maxConfig = 1 << 20   // .git/config
	maxNames  = 16 << 10  // names in objects/pack
	maxWork   = 128 << 20 // bytes read from the store and inflated for one answer
)

var (
	// ErrFormat is returned for a store that breaks git's formats, or has a version that is not read.
	ErrFormat = errors.New("not a git object store that can be read")
	// ErrWork is returned when an answer would take more reading or inflating than one question may cost.
	ErrWork = errors.New("too much work")
)

// Holds reports whether the store below gitDir, the folder that holds "objects" and "config" (for a linked worktree the
// common one), has a blob with exactly this content. An error means that it could not be decided: no sound object was
// found, and some part of the store could not be read.
func Holds(ctx context.Context, root *workfs.Root, gitDir string, content []byte) (bool, error) {
	if len(content) > MaxContent {
		return false, fmt.Errorf("look for %d bytes in %s: %w", len(content), gitDir, workfs.ErrTooBig)
	}
	format, err := formatOf(root, gitDir)
	if err != nil {
		return false, err
	}
	s := newSearch(format, content)
	held, looseErr := s.loose(root, workfs.Join(gitDir, "objects"))
	if held {
		return true, nil
	}
	held, packedErr := s.packed(ctx, root, workfs.Join(gitDir, "objects/pack"))
	if held {
		return true, nil
	}
	return false, errors.Join(looseErr, packedErr)
}

// format is how a repository names its objects.
type format struct {
	size int // bytes of a name
	hash func() hash.Hash
}

var (
	formatSHA1   = format{sha1.Size, sha1.New}
	formatSHA256 = format{sha256.Size, sha256.New}
)

// formatOf reads extensions.objectFormat (git-config(1)), which git takes from this file alone: includes are not
// followed for it.
func formatOf(root *workfs.Root, gitDir string) (format, error) {
	name := workfs.Join(gitDir, "config")
	data, _, err := root.ReadFile(name, maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return formatSHA1, nil
	}
	if err != nil {
		return format{}, err
	}
	entries, err := gitconfig.Parse(data)
	if err != nil {
		return format{}, fmt.Errorf("read the object format from %s: %w", name, err)
	}
	found := "sha1" // git's default, also where the key is missing
	for _, e := range entries {
		if e.Name == "extensions.objectformat" {
			found = e.Value
		}
	}
	switch found {
	case "sha1":
		return formatSHA1, nil
	case "sha256":
		return formatSHA256, nil
	}
	return format{}, fmt.Errorf("object format %q in %s: %w", found, name, ErrFormat)
}

// search is one question on its way through a store.
type search struct {
	format  format
	content []byte
	header  []byte // what git puts in front of the content, with the NUL
	id      []byte
	left    int64 // of maxWork
}

func newSearch(f format, content []byte) *search {
	s := &search{format: f, content: content, left: maxWork}
	s.header = append(strconv.AppendInt([]byte("blob "), int64(len(content)), 10), 0)
	h := f.hash()
	h.Write(s.header)
	h.Write(content)
	s.id = h.Sum(nil)
	return s
}

// charge takes n bytes of work off the allowance.
func (s *search) charge(n int64) error {
	if n > s.left {
		s.left = 0
		return fmt.Errorf("more than %d bytes to read: %w", int64(maxWork), ErrWork)
	}
	s.left -= n
	return nil
}
