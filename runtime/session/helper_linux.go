package session

import (
	"errors"
	"os"
	"slices"

	"coworker/enforce"
	"coworker/runtime/wallsd"
	"coworker/runtime/ward"
)

// openWard takes what holds a session from outside: as root in this process; otherwise from the helper of this machine, and
// where there is none, or it refuses, in this process with what it may do. That is less, and says so: the walls that are not
// there count as missing, and the text says what would add them.
func openWard(r ward.Request) (ward.Ward, error) {
	if os.Geteuid() == 0 {
		return ward.Open(r)
	}
	remote, err := wallsd.Open(wallsd.Socket, r)
	if err == nil {
		return remote, nil
	}
	local, localErr := ward.Open(r)
	if localErr != nil {
		return nil, errors.Join(localErr, err)
	}
	return unaided{Local: local, why: whyUnaided(err)}, nil
}

func whyUnaided(err error) string {
	if errors.Is(err, wallsd.ErrAbsent) {
		return "as root: coworker sandbox setup installs the helper that can"
	}
	return err.Error()
}

// unaided is a ward of a process without privileges, which knows why nobody helps.
type unaided struct {
	*ward.Local
	why string
}

var _ ward.Ward = unaided{}

// Limits implements ward.Ward.
func (u unaided) Limits() []enforce.Limit {
	out := slices.Clone(u.Local.Limits())
	for i := range out {
		if !out[i].Active {
			out[i].Detail += "; " + u.why
		}
	}
	return out
}

// State implements ward.Ward.
func (u unaided) State() ward.State {
	s := u.Local.State()
	for _, p := range []*ward.Programs{&s.Egress, &s.Guard} {
		switch {
		case p.On():
		case p.Why == "":
			p.Why = u.why
		default:
			p.Why += "; " + u.why
		}
	}
	return s
}
