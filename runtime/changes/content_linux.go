package changes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"

	"coworker/platform/fsuser"
	"coworker/platform/workfs"
)

// Side is one version of a path, for a person to look at.
type Side struct {
	Exists bool
	Data   []byte // at most the bytes asked for
	Whole  bool   // Data is all of it
	Digest string // SHA-256; empty for more than maxDigest bytes
	Target string // of a symlink
	Size   int64
}

// maxDigest bounds the bytes that are read to name a version.
const maxDigest = 64 << 20

// Sides reads what a change replaces and what it brings.
func (st *Stage) Sides(ctx context.Context, c Change, most int64) (before, after Side, err error) {
	if err := errors.Join(ctx.Err(), st.load()); err != nil {
		return before, after, err
	}
	if c.Tree < 0 || c.Tree >= len(st.trees) {
		return before, after, ErrNoStage
	}
	t := st.trees[c.Tree]
	err = fsuser.Run(st.meta.UID, st.meta.GID, func() error {
		var err error
		if before, err = side(t.host, c.Rel, most); err != nil {
			return err
		}
		if c.plan.data != nil {
			sum := sha256.Sum256(c.plan.data)
			after = Side{Exists: true, Data: c.plan.data, Whole: true, Digest: hex.EncodeToString(sum[:]), Size: int64(len(c.plan.data))}
			return nil
		}
		if c.Kind == Deleted || c.Kind == Removed {
			return nil
		}
		after, err = side(t.upper, c.Rel, most)
		return err
	})
	return before, after, err
}

func side(root *workfs.Root, rel string, most int64) (s Side, err error) {
	d, name, err := root.Parent(rel)
	if errors.Is(err, fs.ErrNotExist) || notFolder(err) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	defer d.Close()
	info, err := d.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil || info.Whiteout() {
		return s, err
	}
	s.Exists, s.Size = true, info.Size
	switch info.Kind {
	case workfs.Symlink:
		s.Target, err = d.Readlink(name)
		return s, err
	case workfs.Regular:
	default:
		return s, nil
	}
	f, _, err := d.Open(name)
	if errors.Is(err, fs.ErrPermission) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	defer f.Close()
	return s, s.read(f, most)
}

// read takes the start of a file, and its digest where it is not too long.
func (s *Side) read(f *os.File, most int64) error {
	if s.Size <= maxDigest {
		h := sha256.New()
		if _, err := io.Copy(h, io.LimitReader(f, maxDigest)); err != nil {
			return err
		}
		s.Digest = hex.EncodeToString(h.Sum(nil))
	}
	buf := make([]byte, min(s.Size, most))
	n, err := f.ReadAt(buf, 0)
	if err != nil && err != io.EOF {
		return err
	}
	s.Data, s.Whole = buf[:n], int64(n) == s.Size
	return nil
}
