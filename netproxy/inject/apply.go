package inject

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"coworker/netproxy/hostmatch"
	"coworker/netproxy/request"
)

// unfiltered are fields of a request that would have the answer come in a form that the filter does not read: compressed
// (also inside a web socket, RFC 7692), as a difference (RFC 3229), or in pieces small enough to hold no whole
// credential. A server may ignore each of them (RFC 9110 sections 12.5.3 and 14.2).
var unfiltered = []string{"accept-encoding", "range", "if-range", "a-im", "sec-websocket-extensions"}

// Apply gives the fields to send in place of those of the client. The result is a new slice and holds the credential: it
// goes to the server that was decided on and nowhere else. A decision that does not allow has no fields.
func (d Decision) Apply(fields []request.Field) []request.Field {
	if !d.Allow {
		return nil
	}
	out := make([]request.Field, 0, len(fields)+2)
	for _, f := range fields {
		if !d.drops(canonicalField(f.Name)) {
			out = append(out, f)
		}
	}
	if d.filters() {
		out = append(out, request.Field{Name: "Accept-Encoding", Value: "identity"})
	}
	if !d.Value.IsZero() {
		out = append(out, request.Field{Name: d.Header, Value: d.Value.reveal()})
	}
	return out
}

// drops judges a canonical name. Beside the field that is set, those in which the client could send a credential of its
// own go: of two, servers take either.
func (d Decision) drops(name string) bool {
	switch {
	case name == "proxy-authorization":
		return true
	case d.filters() && slices.Contains(unfiltered, name):
		return true
	case d.Value.IsZero():
		return false
	}
	return name == "authorization" || name == strings.ToLower(d.Header) || slices.Contains(d.host.fields, name)
}

func (d Decision) filters() bool { return d.host != nil && d.host.filter != nil }

// Answer gives the fields of the server's answer as they may go inside. It refuses an answer that the filter cannot
// read; its body must not be relayed then. It is for trailers too.
func (d Decision) Answer(fields []request.Field) ([]request.Field, error) {
	if !d.filters() {
		return fields, nil
	}
	out := make([]request.Field, 0, len(fields))
	for _, f := range fields {
		if err := readable(f); err != nil {
			return nil, err
		}
		out = append(out, request.Field{Name: d.Clean(f.Name), Value: d.Clean(f.Value)})
	}
	return out, nil
}

func readable(f request.Field) error {
	allowed := "identity"
	switch canonicalField(f.Name) {
	case "content-encoding":
	case "transfer-encoding":
		allowed = "chunked"
	default:
		return nil
	}
	for coding := range strings.SplitSeq(f.Value, ",") {
		if coding = strings.ToLower(strings.Trim(coding, " \t")); coding != "" && coding != allowed {
			return fmt.Errorf("the answer has the coding %s, in which a credential could not be found", hostmatch.Quote(coding))
		}
	}
	return nil
}

// Clean puts stars in the place of credentials in a text that is there as a whole: a reason phrase, a field.
func (d Decision) Clean(s string) string {
	if !d.filters() {
		return s
	}
	f := Filter{automaton: d.host.filter}
	return string(f.Flush(f.Append(nil, []byte(s))))
}

// Body reads an answer's body, or what comes out of a web socket, through the filter.
func (d Decision) Body(r io.Reader) io.Reader {
	if !d.filters() {
		return r
	}
	return &reader{from: r, filter: Filter{automaton: d.host.filter}}
}

// NewFilter is the filter of one answer for callers that push; nil if the host gets no credential.
func (d Decision) NewFilter() *Filter {
	if !d.filters() {
		return nil
	}
	return &Filter{automaton: d.host.filter}
}
