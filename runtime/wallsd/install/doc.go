// Package install puts the helper coworker-wallsd onto a machine and takes it off again, without a trace.
//
// It may be imported by cmd/coworker and integration. It imports the standard library. Everything that it will do is known,
// as a list for a person to read, before it does anything; a file that it did not write is not replaced. What must not be
// added: settings of a person, and anything that needs the helper itself.
package install
