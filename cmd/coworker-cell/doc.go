// Command coworker-cell is the part of coworker that runs inside a session's walls: the keeper,
// which builds the root, and the cell, which starts commands. The supervisor starts it from a
// verified copy; it does nothing when started by hand.
package main
