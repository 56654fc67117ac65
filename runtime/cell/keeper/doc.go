// Package keeper is the trusted process that builds a session's root, starts the cell and puts
// back pins that fell off. It lives in the session's namespaces but outside its pid namespace.
//
// It may be imported by cmd/coworker-cell only. It reads messages from the supervisor and from
// nobody else; nothing that comes from inside the cell may ever be parsed here.
package keeper
