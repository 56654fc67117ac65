// Package wallspec turns what a person asked for (flags, settings, profile) and facts about the host into an
// enforce.Spec, with a summary in words of every decision that the person should see.
//
// It is almost pure: it reads through the functions in Files and everything else about the host is a value in
// Host, so that its tests are tables. It runs outside the wall; cmd and runtime/session import it. What must not
// be added: starting anything, writing anything, and knowledge of how a wall is built.
//
// Paths here are those of the machine that runs the session and are handled with package path: separators and
// case rules of the machine that compiles this play no part.
package wallspec
