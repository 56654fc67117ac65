package keeper

import (
	"errors"
	"net/netip"
	"os"

	"coworker/enforce"
	"coworker/enforce/native"
	"coworker/enforce/redirect"
	"coworker/runtime/wire"
)

// egress makes what the session's proxy needs in this network namespace: routes and rules that lead the connections of
// programs that know of no proxy to it, and its sockets. The caller owns the files.
func egress(s enforce.Spec, prepared *wire.KeeperPrepared) ([]*os.File, error) {
	if !s.Net.Egress() {
		return nil, nil
	}
	literals := make([]netip.Addr, len(s.Literals))
	for i, text := range s.Literals {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return nil, &native.StepError{Step: "read the address of a rule", Value: text, Err: err}
		}
		literals[i] = a
	}
	notes, err := redirect.Install(literals)
	if missing := (*redirect.MissingError)(nil); errors.As(err, &missing) {
		prepared.Notes = append(prepared.Notes, "programs that ignore the proxy variables reach nothing: "+missing.Error())
	} else if err != nil {
		return nil, err
	}
	if err := redirect.Verify(notes); err != nil {
		return nil, err
	}
	files, err := redirect.Listen(notes.IPv6)
	if err != nil {
		return nil, err
	}
	prepared.Egress = &wire.KeeperEgress{IPv6: notes.IPv6, Transparent: notes.Mode == redirect.ModeNAT}
	return files, nil
}
