// Package learn turns what one session did and was refused into a proposal for a profile: a file to read, to keep or to throw
// away.
//
// It proposes less rather than more. What stands in the file as a rule was let through in that session, or named by the person
// who started it; what was refused stands there as a comment. A host is proposed with its exact name and port, never as a
// wildcard; a path is proposed as it was asked for, never as the folder above it. Files that hold secrets by their name, and
// whatever the redactor would change, are left out and counted. Everything observed was chosen by programs that may be
// hostile: no text of theirs can end a string or a comment.
//
// It is pure: observations in, text out, the same for the same. It may be imported by cmd. What must not be added: files, a
// way to put a profile into force, or guesses about what a program might need besides.
package learn
