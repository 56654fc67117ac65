package redirect

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

func table() *nftables.Table {
	return &nftables.Table{Name: "coworker", Family: nftables.TableFamilyINet}
}

// chain hooks locally made connections. Any priority before destination NAT does; it is one earlier, so that a chain with
// the usual priority could not come first.
func chain() *nftables.Chain {
	return &nftables.Chain{
		Table: table(), Name: "output", Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityRef(*nftables.ChainPriorityNATDest - 1),
	}
}

// hook is a chain with its rules.
type hook struct {
	chain *nftables.Chain
	rules [][]expr.Any
}

// hooks are everything that Install makes in nf_tables.
func hooks(ipv6, untracked bool) []hook {
	out := []hook{{chain(), rules(ipv6)}}
	if untracked {
		out = append(out, hook{untrackedChain(), untrackedRules(ipv6)})
	}
	return out
}

// untrackedChain comes before connections are tracked (NF_IP_PRI_RAW).
func untrackedChain() *nftables.Chain {
	return &nftables.Chain{
		Table: table(), Name: "untracked", Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityRaw,
	}
}

// untrackedRules leave TCP from loopback to loopback out of connection tracking, which nothing but the redirect needs: it
// adds a sixth to the cost of an exchange there and more to that of a connection (measured on Linux 6.18). Such packets
// never match the redirect, and the answers of the transparent port, which have to be turned back, stay tracked.
func untrackedRules(ipv6 bool) [][]expr.Any {
	out := [][]expr.Any{untrack(unix.NFPROTO_IPV4, 12, netip.MustParsePrefix("127.0.0.0/8"))}
	if ipv6 {
		out = append(out, untrack(unix.NFPROTO_IPV6, 8, netip.MustParsePrefix("::1/128")))
	}
	return out
}

// untrack is: meta nfproto FAMILY, meta l4proto tcp, saddr LOOP, daddr LOOP, sport != 3129, dport != 3129, notrack. offset is
// where the source stands in the header; the destination follows.
func untrack(family byte, offset uint32, loop netip.Prefix) []expr.Any {
	const register = 1
	size := uint32(loop.Addr().BitLen() / 8)
	port := binary.BigEndian.AppendUint16(nil, TransparentPort)
	out := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: register},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{family}},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{unix.IPPROTO_TCP}},
	}
	for _, at := range []uint32{offset, offset + size} {
		out = append(out,
			&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: at, Len: size},
			&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: size, Mask: maskOf(loop), Xor: make([]byte, size)},
			&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: loop.Masked().Addr().AsSlice()})
	}
	for _, at := range []uint32{0, 2} { // RFC 9293 section 3.1
		out = append(out,
			&expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: at, Len: 2},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: register, Data: port})
	}
	return append(out, &expr.Notrack{})
}

// rules redirect all TCP that does not go to loopback or to lo's own address, so that a route can never lead past the
// proxy, however many addresses have one.
func rules(ipv6 bool) [][]expr.Any {
	out := [][]expr.Any{redirectAllBut(unix.NFPROTO_IPV4, 16, netip.MustParsePrefix("127.0.0.0/8"), Own4)}
	if ipv6 {
		out = append(out, redirectAllBut(unix.NFPROTO_IPV6, 24, netip.MustParsePrefix("::1/128"), Own6))
	}
	return out
}

// redirectAllBut is: meta nfproto FAMILY, meta l4proto tcp, (ip|ip6) daddr != LOOP, daddr != OWN, redirect to :3129.
// offset is where the destination stands in the header (RFC 791 section 3.1, RFC 8200 section 3).
func redirectAllBut(family byte, offset uint32, loop netip.Prefix, own netip.Addr) []expr.Any {
	const register = 1
	size := uint32(own.BitLen() / 8)
	destination := &expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: register},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{family}},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{unix.IPPROTO_TCP}},
		destination,
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: size, Mask: maskOf(loop), Xor: make([]byte, size)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: register, Data: loop.Masked().Addr().AsSlice()},
		destination,
		&expr.Cmp{Op: expr.CmpOpNeq, Register: register, Data: own.AsSlice()},
		&expr.Immediate{Register: register, Data: binary.BigEndian.AppendUint16(nil, TransparentPort)},
		&expr.Redir{RegisterProtoMin: register, RegisterProtoMax: register, Flags: unix.NF_NAT_RANGE_PROTO_SPECIFIED},
	}
}

func maskOf(p netip.Prefix) []byte {
	mask := make([]byte, p.Addr().BitLen()/8)
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return mask
}
