// Package inject is what opening the TLS of one host takes: the certificate authority of a session, the rules about what
// may be asked there, the credential that is added outside, and the filter that keeps it from coming back.
//
// # Rules
//
// Rules are about one host and port. A host without rules is not opened. Of the rules of a host, those with the longest
// path that covers the request decide, and no others: a rule for /repos/acme/issues is not helped by one for /repos. A
// path covers itself and what lies below it (/repos/acme covers /repos/acme and /repos/acme/x, not /repos/acmeevil); the
// query is no part of it. Rules with the same path must have different methods.
//
//   - A rule covers the path and lists the method, or lists none: allowed, with the rule's credential if it has one.
//   - A rule covers the path and none lists the method: refused.
//   - No rule covers the path: refused, unless every rule of the host is a credential without a list of methods. Such
//     rules say where a credential goes and not what may be asked, so the request passes as the client sent it.
//
// Where a rule has a path, a request path that two servers could read as two paths is refused (see judgePath), and so is
// one that differs from a rule's path in case only. Where a rule has a path or methods, so are fields that name another
// method or path than the request line, and a web socket: what passes through it is not requests.
//
// # Credentials
//
// The value of a credential is in Value, which prints as a placeholder. Whatever comes back from a host that gets a
// credential has to pass the filter of that host, also the answers to requests without the credential: a server may keep
// what it was sent. So that the filter sees text, every request to such a host asks for no compression and for no range.
// The filter knows usual encodings of the value; a server that helps the cell (encrypts it, spells it backwards) is not
// stopped by any filter, which is why credentials go to hosts that a person named.
//
// The proxy's engine and runtime/session import it. It opens no sockets and no files, and has no clock; trust stores for
// programs inside are made in inject/trust, which the proxy does not link.
package inject
