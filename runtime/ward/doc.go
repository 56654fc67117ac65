// Package ward holds a session from outside of it: its control group, and the kernel programs attached to that group
// (enforce/egress) or to the kernel's security hooks for it (enforce/guard).
//
// These need privileges that a person's coworker may not have. So there are two of it behind one interface: Local, in this
// process, and the one of the helper coworker-wallsd. It may be imported by runtime/session, runtime/wallsd, cmd and
// integration. It imports enforce and the packages below it. What must not be added: what is decided about a session, and
// anything that runs inside one.
package ward
