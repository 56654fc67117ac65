//go:build walltest

package enforcetest

import (
	"os"

	"coworker/enforce"
)

// Built says whether this binary can leave out walls.
const Built = true

// Off reports whether the spec asks to leave out the wall. It is never inlined, so that its
// symbol gives a test build away.
//
//go:noinline
func Off(spec enforce.Spec, w enforce.Wall) bool {
	return spec.Fault != "" && spec.Fault == w
}

// Asked gives the wall that the environment asks to leave out, for tests of the whole program.
func Asked() enforce.Wall { return enforce.Wall(os.Getenv("COWORKER_TEST_FAULT")) }
