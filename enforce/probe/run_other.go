//go:build !linux

package probe

import (
	"context"

	"coworker/enforce"
)

// Run reports every wall as inconclusive: this system has no battery, so nothing is proved.
func Run(context.Context, Setup) []enforce.Probe {
	var probes []enforce.Probe
	for _, w := range enforce.Walls() {
		probes = append(probes, enforce.Probe{
			Name: string(w) + "/battery", Wall: w, Want: enforce.Stopped, Where: where,
			Got: enforce.Inconclusive, Detail: "there is no battery for this system",
		})
	}
	return probes
}
