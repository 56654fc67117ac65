// Package flow holds what is told about one attempt to reach something through the proxy: what was asked for, what was
// decided and why, where it went, how much passed.
//
// The netproxy packages, runtime and the commands may import it: the proxy makes records, and those turn them into rows,
// reports and lines for people.
// It is values only. Nothing secret stands in a record: no query, no header, no body.
package flow

import (
	"strings"
	"time"
)

// Source says which part of the proxy saw the attempt.
type Source string

// The sources.
const (
	Proxy       Source = "proxy"       // CONNECT, absolute form or SOCKS5 on the proxy port
	DNS         Source = "dns"         // a question to the resolver inside
	Transparent Source = "transparent" // a connection to a synthetic address
)

// Verdict is what was decided.
type Verdict string

// The verdicts.
const (
	Allow Verdict = "allow"
	Deny  Verdict = "deny"
)

// Record is one attempt, told once, when it has ended.
type Record struct {
	Source Source `json:"source"`
	Host   string `json:"host"` // canonical name or address; empty if the request could not be read
	Port   uint16 `json:"port"` // 0 for DNS
	Addr   string `json:"addr"` // address that was dialled; empty if none was
	// Protocol is how it was asked for: connect, http, socks5, tcp, dns-a, dns-aaaa, dns-other; https inside opened TLS.
	Protocol string  `json:"protocol"`
	Verdict  Verdict `json:"verdict"`
	Rule     string  `json:"rule"`   // the rule that decided, as it was written
	Reason   string  `json:"reason"` // for a person; hostile text in it is escaped and bounded
	Needed   string  `json:"needed"` // the smallest rule that would allow it; empty if none can
	// Inspected: the proxy looked into the bytes (request, ClientHello); false for raw rules.
	Inspected  bool   `json:"inspected"`
	ResolvedBy string `json:"resolved_by,omitempty"` // "upstream" if a proxy further out resolved the name
	Method     string `json:"method,omitempty"`      // of the request, where it could be read
	Path       string `json:"path,omitempty"`        // without query; only inside opened TLS and in clear text
	Status     int    `json:"status,omitempty"`      // of the answer, where it could be read
	Credential string `json:"credential,omitempty"`  // name of the secret that was added outside

	BytesIn  int64 `json:"bytes_in"`  // from outside to the cell
	BytesOut int64 `json:"bytes_out"` // from the cell to outside

	Begun    time.Time     `json:"begun"`
	Duration time.Duration `json:"duration_ns"`
	// Count is how many equal attempts this record stands for: refusals after the first, and flows beyond 64 within a second
	// that differ in nothing but time and bytes. Bytes are then sums, and Duration is from the first one's begin to the
	// last one's end.
	Count int `json:"count"`
	// Battery: it began before the walls were proved, so it is a probe's.
	Battery bool `json:"battery,omitempty"`
	// Broken says why an allowed flow ended early: a reset, a time limit, a second ClientHello with another name.
	Broken string `json:"broken,omitempty"`
}

// Remedy says to a person what would allow an attempt: a flag, or a setting where what is missing is a method or path.
// needed is Record.Needed.
func Remedy(needed string) string {
	if strings.Contains(needed, " ") { // "METHOD HOST[:PORT]/PATH"; no rule about hosts has a space
		return `net.requests = ["` + needed + `"] in the settings`
	}
	return "--allow " + needed
}
