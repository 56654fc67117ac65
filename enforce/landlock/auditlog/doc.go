// Package auditlog tells exactly what Landlock refused to the programs of one session: it reads the kernel's audit records
// (types 1423 and 1424, Linux 6.15, Landlock ABI 7) from the netlink group that anybody with CAP_AUDIT_READ may join.
//
// It changes nothing about auditing. Where auditing is off, a right is missing, or the kernel is older, Open says which, and
// a session goes without this source. Records are text that holds names which programs chose; they are read strictly and
// bounded, and what cannot be read is counted, never guessed at.
//
// A record names a Landlock domain, and the first one of each domain comes with a second record that names the process
// which made it. So a session is known by the process of its cell: every thread of it makes a domain.
//
// It may be imported by runtime/session, runtime/ward, cmd and integration. What must not be added: a way to switch auditing
// on, to load audit rules, or to decide anything by what a record says.
package auditlog
