package cell

import "testing"

func TestReleaseBefore(t *testing.T) {
	for release, want := range map[string]bool{
		"5.10.0-32-cloud-amd64": true, "5.13.9": true, "4.19.0": true, "5.14.0": false, "5.14": false,
		"6.1.0-50-cloud-amd64": false, "6.12.117+deb13-amd64": false, "": true, "six": true,
	} {
		if got := releaseBefore(release, 5, 14); got != want {
			t.Errorf("%q: %t, want %t", release, got, want)
		}
	}
}
