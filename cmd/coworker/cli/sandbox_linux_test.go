package cli

import (
	"testing"

	"coworker/enforce"
)

// TestOffersClaimNoMore: what is missing has no mechanism, and what is not missing has one.
func TestOffersClaimNoMore(t *testing.T) {
	tests := []struct {
		backend enforce.BackendName
		abi     int
		missing map[enforce.Wall]bool
	}{
		{enforce.Native, 0, nil},
		{enforce.Native, 6, nil},
		{enforce.Bare, 3, map[enforce.Wall]bool{enforce.FSProtect: true, enforce.FSHide: true, enforce.Life: true, enforce.NetEgress: true}},
		{enforce.Bare, 6, map[enforce.Wall]bool{enforce.FSProtect: true, enforce.FSHide: true, enforce.Life: true}},
	}
	for _, tt := range tests {
		for _, o := range offers(tt.backend, tt.abi, true) {
			if got := o.Missing != ""; got != tt.missing[o.Wall] {
				t.Errorf("%s, ABI %d: %s missing %q", tt.backend, tt.abi, o.Wall, o.Missing)
			}
			if (len(o.Mechanisms) > 0) == tt.missing[o.Wall] {
				t.Errorf("%s, ABI %d: %s kept by %v", tt.backend, tt.abi, o.Wall, o.Mechanisms)
			}
		}
	}
}
