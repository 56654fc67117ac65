package dns

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/miekg/dns"

	"coworker/netproxy/flow"
	"coworker/netproxy/hostmatch"
)

const (
	headerLen = 12   // RFC 1035 section 4.1.1
	maxQuery  = 4096 // a question of 255 octets and options; longer messages are none
	// maxUDP is what goes over UDP at most; 1232 is the size that needs no fragments anywhere (DNS flag day 2020).
	maxUDP = 1232

	ttl         = 60 // seconds; a name keeps its address, so this only bounds how long a cache outlives a rule
	negativeTTL = 5  // seconds; short, because a person may allow the name a moment later

	// maxText bounds the text of an Extended DNS Error, which is for people.
	maxText = 200
)

// query is a question that can be read. Exactly one is in a message.
type query struct {
	*dns.Msg
	q    dns.Question
	opt  *dns.OPT // nil if the client speaks no EDNS
	size int      // of the answer, at most
}

// answer makes the reply to one message; nil means that none is due. size is the most that the transport carries: zero
// for UDP, where the client says it.
func (r *Resolver) answer(message []byte, size int) []byte {
	if len(message) < headerLen || len(message) > maxQuery {
		r.malformed(fmt.Sprintf("a DNS message of %d bytes", len(message)))
		return nil
	}
	flags := binary.BigEndian.Uint16(message[2:])
	if flags&0x8000 != 0 {
		r.malformed("an answer where a question is expected")
		return nil // two that answer answers never stop
	}
	if opcode := int(flags >> 11 & 0xf); opcode != dns.OpcodeQuery {
		r.malformed(fmt.Sprintf("DNS opcode %d", opcode))
		return headerOnly(message, dns.RcodeNotImplemented)
	}
	q, reason := parse(message, size)
	if reason != "" {
		r.malformed(reason)
		return headerOnly(message, dns.RcodeFormatError)
	}
	return q.pack(r.reply(q))
}

// headerOnly answers what cannot be read; nothing of it is repeated.
func headerOnly(message []byte, rcode int) []byte {
	out := make([]byte, headerLen)
	copy(out, message[:2])
	out[2] = 0x80 | message[2]&0x79 // answer; opcode and "recursion desired" as they came
	out[3] = byte(rcode)
	return out
}

// parse reads a message with one question and nothing else but an OPT record (RFC 6891 section 6.1.1).
func parse(message []byte, size int) (*query, string) {
	for i, name := range []string{"questions", "answers", "authorities"} {
		want := uint16(0)
		if i == 0 {
			want = 1
		}
		if n := binary.BigEndian.Uint16(message[4+2*i:]); n != want {
			return nil, fmt.Sprintf("a DNS message with %d %s", n, name)
		}
	}
	if n := binary.BigEndian.Uint16(message[10:]); n > 1 {
		return nil, fmt.Sprintf("a DNS message with %d additional records", n)
	}
	m := &dns.Msg{}
	if err := m.Unpack(message); err != nil {
		return nil, "a DNS message that cannot be read: " + hostmatch.Quote(err.Error())
	}
	if len(m.Question) != 1 {
		return nil, "a DNS message that ends before its question"
	}
	q := &query{Msg: m, q: m.Question[0], opt: m.IsEdns0(), size: size}
	if len(m.Extra) > 0 && q.opt == nil {
		return nil, "a DNS message with a record that is no option"
	}
	if q.opt != nil && q.opt.Hdr.Name != "." {
		return nil, "an OPT record with a name" // RFC 6891 section 6.1.2
	}
	if size == 0 {
		q.size = dns.MinMsgSize
		if q.opt != nil {
			q.size = min(max(int(q.opt.UDPSize()), dns.MinMsgSize), maxUDP)
		}
	}
	return q, ""
}

// outcome is what is said to the client and to the record.
type outcome struct {
	rcode    int
	answer   []dns.RR
	reason   string // in an Extended DNS Error; empty if the answer is complete
	code     uint16 // of that error
	negative bool   // an SOA bounds how long "no" is remembered (RFC 2308)
}

func (r *Resolver) reply(q *query) outcome {
	if q.opt != nil && q.opt.Version() != 0 {
		r.report(q, "", Decision{Reason: fmt.Sprintf("EDNS version %d", q.opt.Version())})
		return outcome{rcode: dns.RcodeBadVers}
	}
	if reason := refusedKind(q.q); reason != "" {
		d := Decision{Reason: reason}
		if h, err := hostmatch.ParseName(strings.TrimSuffix(q.q.Name, ".")); err == nil {
			r.report(q, h.String(), d)
		} else {
			r.report(q, "", d)
		}
		return outcome{rcode: dns.RcodeRefused, reason: reason, code: dns.ExtendedErrorCodeNotSupported}
	}
	name := strings.ToLower(strings.TrimSuffix(q.q.Name, "."))
	if q.q.Qtype == dns.TypePTR {
		if a, ok := reverse(name); ok {
			return r.pointer(q, a)
		}
	}
	h, err := hostmatch.ParseName(name)
	if err != nil {
		return r.refuse(q, "", Decision{Reason: err.Error()}, dns.ExtendedErrorCodeFiltered)
	}
	if n := h.Name(); n == "localhost" || strings.HasSuffix(n, ".localhost") {
		return r.addresses(q, netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()) // RFC 6761 section 6.3
	}
	return r.named(q, h)
}

// refusedKind is what no name is asked with here. Types from 128 to 255 and OPT are questions about a server or whole
// zones (RFC 6895 section 3.1): ANY, AXFR, IXFR, TSIG and the like.
func refusedKind(q dns.Question) string {
	switch {
	case q.Qclass != dns.ClassINET:
		return fmt.Sprintf("DNS class %d", q.Qclass)
	case q.Qtype == 0 || q.Qtype == dns.TypeOPT || q.Qtype >= 128 && q.Qtype <= 255:
		return fmt.Sprintf("DNS questions of type %d", q.Qtype)
	case q.Name == ".":
		return "a question about the root zone"
	}
	return ""
}

func (r *Resolver) named(q *query, h hostmatch.Host) outcome {
	d := r.Decide(h)
	if !d.Allow {
		return r.refuse(q, h.String(), d, dns.ExtendedErrorCodeFiltered)
	}
	if q.q.Qtype != dns.TypeA && q.q.Qtype != dns.TypeAAAA {
		r.report(q, h.String(), d)
		return r.addresses(q, netip.Addr{}, netip.Addr{})
	}
	v4, v6, ok := r.Names.For(h)
	if !ok {
		d = Decision{Rule: d.Rule, Reason: fmt.Sprintf("this session has no address left for %s (it resolved %d names)", h, r.Names.max)}
		r.report(q, h.String(), d)
		return outcome{rcode: dns.RcodeRefused, reason: d.Reason, code: dns.ExtendedErrorCodeOther}
	}
	r.report(q, h.String(), d)
	return r.addresses(q, v4, v6)
}

func (r *Resolver) refuse(q *query, host string, d Decision, code uint16) outcome {
	r.report(q, host, d)
	text := d.Reason
	if d.Needed != "" {
		text += "; needed: " + d.Needed
	}
	return outcome{rcode: dns.RcodeNameError, reason: text, code: code, negative: true}
}

// addresses answers the types A and AAAA and says of every other type that the name has none of it. That covers HTTPS and
// SVCB (RFC 9460): no key for an encrypted ClientHello reaches a client, so the proxy can read the name in it.
func (r *Resolver) addresses(q *query, v4, v6 netip.Addr) outcome {
	head := dns.RR_Header{Name: q.q.Name, Rrtype: q.q.Qtype, Class: dns.ClassINET, Ttl: ttl}
	switch {
	case q.q.Qtype == dns.TypeA && v4.IsValid():
		return outcome{answer: []dns.RR{&dns.A{Hdr: head, A: v4.AsSlice()}}}
	case q.q.Qtype == dns.TypeAAAA && v6.IsValid() && r.IPv6:
		return outcome{answer: []dns.RR{&dns.AAAA{Hdr: head, AAAA: v6.AsSlice()}}}
	}
	return outcome{negative: true}
}

// pointer answers who an address was given to. The name was allowed when it got it.
func (r *Resolver) pointer(q *query, a netip.Addr) outcome {
	target := ""
	if h, ok := r.Names.Host(a); ok {
		target = h.Name()
	} else if a.IsLoopback() {
		target = "localhost"
	}
	if target == "" {
		return r.refuse(q, a.String(), Decision{Reason: fmt.Sprintf("%s stands for no name here", a)}, dns.ExtendedErrorCodeFiltered)
	}
	head := dns.RR_Header{Name: q.q.Name, Rrtype: dns.TypePTR, Class: dns.ClassINET, Ttl: ttl}
	return outcome{answer: []dns.RR{&dns.PTR{Hdr: head, Ptr: dns.Fqdn(target)}}}
}

// pack builds the reply. The question is repeated octet by octet in the client's own case, which is how some clients
// recognise answers (draft-vixie-dnsext-dns0x20).
func (q *query) pack(o outcome) []byte {
	m := (&dns.Msg{}).SetRcode(q.Msg, o.rcode)
	m.RecursionAvailable = true
	m.Compress = true
	m.Answer = o.answer
	if o.negative {
		m.Ns = []dns.RR{&dns.SOA{
			Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: negativeTTL},
			Ns:  "localhost.", Mbox: "nobody.invalid.", Serial: 1, Refresh: 3600, Retry: 600, Expire: 86400, Minttl: negativeTTL,
		}}
	}
	if q.opt != nil {
		opt := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
		opt.SetUDPSize(maxUDP)
		opt.SetDo(q.opt.Do()) // RFC 3225 section 3: as it came
		m.Extra = []dns.RR{opt}
		if o.reason != "" {
			room := q.size - m.Len() - 6 // code and length of the option, code of the error (RFC 8914 section 2)
			opt.Option = []dns.EDNS0{&dns.EDNS0_EDE{InfoCode: o.code, ExtraText: cut(o.reason, min(room, maxText))}}
		}
	}
	m.Truncate(q.size)
	m.Compress = true
	out, err := m.Pack()
	if err != nil || len(out) > q.size {
		return nil
	}
	return out
}

// cut shortens a text; it is ASCII, because hosts are and what else is hostile was quoted.
func cut(s string, most int) string { return s[:max(min(len(s), most), 0)] }

func (r *Resolver) malformed(reason string) {
	r.Report(flow.Record{Source: flow.DNS, Protocol: "dns-other", Verdict: flow.Deny, Reason: reason, Begun: r.now(), Count: 1})
}

func (r *Resolver) report(q *query, host string, d Decision) {
	rec := flow.Record{
		Source: flow.DNS, Host: host, Protocol: "dns-other", Verdict: flow.Deny,
		Rule: d.Rule, Reason: d.Reason, Needed: d.Needed, Begun: r.now(), Count: 1,
	}
	switch q.q.Qtype {
	case dns.TypeA:
		rec.Protocol = "dns-a"
	case dns.TypeAAAA:
		rec.Protocol = "dns-aaaa"
	}
	if d.Allow {
		rec.Verdict = flow.Allow
	}
	r.Report(rec)
}
