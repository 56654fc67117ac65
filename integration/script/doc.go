// Package script holds scenarios of the command line as text (testdata/*.txtar), run against the built binaries as
// root and as an unprivileged user. Nothing imports it. What belongs here is what a person types and sees; attacks
// on walls are in integration/walls.
package script
