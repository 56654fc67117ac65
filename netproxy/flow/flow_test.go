package flow

import "testing"

func TestRemedy(t *testing.T) {
	for needed, want := range map[string]string{
		"example.com": "--allow example.com", "example.com:22+raw": "--allow example.com:22+raw", "git.corp=10.0.0.0/8": "--allow git.corp=10.0.0.0/8",
		"DELETE api.example.com:443/v1": `net.requests = ["DELETE api.example.com:443/v1"] in the settings`,
	} {
		if got := Remedy(needed); got != want {
			t.Errorf("Remedy(%q) = %q, want %q", needed, got, want)
		}
	}
}
