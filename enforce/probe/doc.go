// Package probe is the battery of attempts that a cell makes against its own walls before any
// untrusted code runs, one attempt for each hole that is known.
//
// It may be imported by runtime/cell, runtime/wire, runtime/session and integration. It imports
// enforce, x/sys and the standard library; it must not decide anything: it reports what
// happened, and enforce.Assess draws the conclusion.
package probe
