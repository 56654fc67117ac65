// Package walls is the escape battery: attempts to get out of a cell, made against the built binaries as root and as an
// unprivileged user, each with a control that shows that the attempt works where there is no wall.
//
// conformance.txt lists every attempt of the groups that this build must stand, with the case that makes it. A case is
// an attempt of the program in attacker/, a script, or a test. Only tests of the project read this package; nothing
// imports it. It must not import packages of the product: what it knows of coworker is the command line.
package walls
