package cell

import (
	"errors"

	"coworker/enforce"
	"coworker/enforce/enforcetest"
	"coworker/enforce/landlock"
	"coworker/enforce/native"
	"coworker/runtime/wire"
)

// tcpABI is the Landlock ABI that handles TCP connect and bind (Linux 6.7).
const tcpABI = 4

// faultLandlock is the name by which a build for tests leaves out this one mechanism, see enforcetest.
const faultLandlock = enforce.Wall(enforce.Landlock)

// restrict puts the Landlock layer over the mounts. A kernel without Landlock is reported, and
// required only where nothing else keeps the files apart: in the backend bare.
func restrict(b wire.Begin, p *wire.Proved) error {
	// This layer is the second mechanism of both file walls; leaving out one wall leaves it out.
	if enforcetest.Off(b.Spec, enforce.FSRead) || enforcetest.Off(b.Spec, enforce.FSWrite) || enforcetest.Off(b.Spec, faultLandlock) {
		return nil
	}
	abi, err := landlock.ABI()
	if errors.Is(err, landlock.ErrNotBuilt) || errors.Is(err, landlock.ErrDisabled) {
		if b.Backend == enforce.Bare {
			return err
		}
		return nil
	}
	if err != nil {
		return err
	}
	if abi < 2 && b.Backend.Namespaces() {
		// ABI 1 refuses every rename between folders (landlock(7)), which breaks git and builds,
		// and the mounts keep both walls already.
		return nil
	}
	rules := landlock.Rules{RestrictTCP: b.Backend == enforce.Bare && abi >= tcpABI, LogDenials: b.LogDenials}
	visible := native.Visible(b.Spec)
	if b.Backend == enforce.Bare {
		visible = native.VisibleBare(b.Spec)
	}
	rules.ReadOnly = optional(visible.ReadOnly)
	rules.ReadWrite = optional(visible.ReadWrite)
	rules.Devices = optional(visible.Devices)
	if b.Backend.Namespaces() {
		rules.List = landlock.Paths("/") // `ls /` and find work; what there is to list, the mounts decide
	}
	applied, err := landlock.Restrict(rules)
	if err != nil {
		return err
	}
	p.LandlockABI = applied.Used
	p.Rights = append(append(p.Rights, applied.HandledFS...), append(applied.Network, applied.Scopes...)...)
	return nil
}

// optional makes rules of paths. Which of them exist differs from host to host; one that is
// missing when the rules are made is not reachable either, because the root is read-only by then.
func optional(names []string) []landlock.Path {
	paths := landlock.Paths(names...)
	for i := range paths {
		paths[i].Optional = true
	}
	return paths
}
