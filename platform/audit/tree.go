package audit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/bits"

	"golang.org/x/mod/sumdb/tlog"
)

// edge is the right edge of the tree: the roots of the complete subtrees that
// make it up, largest first. It is all that appending and the root hash need.
type edge struct {
	size  int64
	roots []tlog.Hash
}

func (e edge) clone() edge {
	return edge{e.size, append([]tlog.Hash(nil), e.roots...)}
}

// add puts a leaf on the tree and returns the nodes it completes, leaf first,
// appended to nodes.
func (e *edge) add(leaf tlog.Hash, nodes []byte) []byte {
	h := leaf
	nodes = append(nodes, h[:]...)
	// As many subtrees close as the old size has trailing one bits.
	for range bits.TrailingZeros64(^uint64(e.size)) {
		last := len(e.roots) - 1
		h = tlog.NodeHash(e.roots[last], h)
		e.roots = e.roots[:last]
		nodes = append(nodes, h[:]...)
	}
	e.roots = append(e.roots, h)
	e.size++
	return nodes
}

// root is the RFC 6962 tree hash.
func (e edge) root() tlog.Hash {
	if e.size == 0 {
		h, _ := tlog.TreeHash(0, nil) // the constant hash of nothing; reads no node
		return h
	}
	last := len(e.roots) - 1
	h := e.roots[last]
	for i := last - 1; i >= 0; i-- {
		h = tlog.NodeHash(e.roots[i], h)
	}
	return h
}

// nodes reads stored tree nodes within a transaction.
type nodes struct {
	ctx context.Context // of the one call that made it; tlog's interface has none
	tx  *sql.Tx
}

// ReadHashes implements tlog.HashReader.
func (r nodes) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		level, n := tlog.SplitStoredHashIndex(index)
		h, err := r.read(level, n)
		if err != nil {
			return nil, err
		}
		out[i] = h
	}
	return out, nil
}

// read returns node n of a level, which row (n+1)<<level completed.
func (r nodes) read(level int, n int64) (tlog.Hash, error) {
	seq := (n + 1) << level
	var b []byte
	err := r.tx.QueryRowContext(r.ctx, "SELECT substr(hashes, ?, 32) FROM audit_row WHERE seq = ?", level*tlog.HashSize+1, seq).Scan(&b)
	if errors.Is(err, sql.ErrNoRows) {
		return tlog.Hash{}, &TamperError{Row: seq, Reason: "the row is missing"}
	}
	if err != nil {
		return tlog.Hash{}, err
	}
	if len(b) != tlog.HashSize {
		return tlog.Hash{}, &TamperError{Row: seq, Reason: fmt.Sprintf("its tree node of level %d is missing", level)}
	}
	return tlog.Hash(b), nil
}

// readEdge reads the right edge of the first size rows.
func readEdge(r nodes, size int64) (edge, error) {
	e := edge{size: size}
	var done int64
	for level := 62; level >= 0; level-- {
		if size>>level&1 == 0 {
			continue
		}
		h, err := r.read(level, done>>level)
		if err != nil {
			return edge{}, err
		}
		e.roots = append(e.roots, h)
		done += 1 << level
	}
	return e, nil
}
