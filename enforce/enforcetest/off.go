//go:build !walltest

package enforcetest

import "coworker/enforce"

// Built says whether this binary can leave out walls.
const Built = false

// Off reports whether the spec asks to leave out the wall: never in this build.
func Off(enforce.Spec, enforce.Wall) bool { return false }

// Asked gives the wall that the environment asks to leave out: never one in this build.
func Asked() enforce.Wall { return "" }
