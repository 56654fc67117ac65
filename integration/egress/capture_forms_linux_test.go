package egress

import (
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"unicode/utf16"

	"coworker/integration/egress/marker"
	"coworker/integration/netns"
)

// TestCaptureSees sends a word in each form over the cable and over the loopback, and wants every one found on the
// interface that it passed and nowhere else.
func TestCaptureSees(t *testing.T) {
	n := newNamespaces(t)
	run := marker.Run([]byte("capture"))
	forms := map[string]func(string) string{
		"raw":      func(s string) string { return s },
		"reversed": func(s string) string { b := []byte(s); slices.Reverse(b); return string(b) },
		"hex":      func(s string) string { return hex.EncodeToString([]byte(s)) },
		"base64":   func(s string) string { return base64.StdEncoding.EncodeToString([]byte("a" + s)) },
		"base32":   func(s string) string { return base32.StdEncoding.EncodeToString([]byte("bc" + s)) },
		"utf16": func(s string) string {
			out := ""
			for _, u := range utf16.Encode([]rune(s)) {
				out += string([]byte{byte(u), byte(u >> 8)})
			}
			return out
		},
	}
	names := []string{sentinel}
	for form := range forms {
		names = append(names, form+" to far", form+" to near")
	}
	finder := marker.NewFinder(run, names)
	var host, far *capture
	start := func(c **capture, what string) func() error {
		return func() (err error) { *c, err = newCapture(what, finder); return err }
	}
	if err := netns.In(n.host, start(&host, "the host")); err != nil {
		t.Fatal(err)
	}
	if err := netns.In(n.far, start(&far, "the network")); err != nil {
		t.Fatal(err)
	}
	send := func(to, text string) {
		err := netns.In(n.host, func() error {
			c, err := net.Dial("udp", to)
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = io.WriteString(c, text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for form, encode := range forms {
		send("203.0.113.9:9", encode(marker.Of(run, form+" to far")))
		send("127.0.0.1:9", encode(marker.Of(run, form+" to near")))
	}
	send("203.0.113.9:9", "words of nobody")
	send("203.0.113.9:9", marker.Of(run, sentinel))
	host.await(t, sentinel)
	far.await(t, sentinel)
	onHost, err := host.close()
	if err != nil {
		t.Error(err)
	}
	onFar, err := far.close()
	if err != nil {
		t.Error(err)
	}
	for form := range forms {
		if onHost[form+" to far"] == "" || onHost[form+" to near"] == "" || onFar[form+" to far"] == "" || onFar[form+" to near"] != "" {
			t.Errorf("%s: host %q and %q, network %q and %q", form, onHost[form+" to far"], onHost[form+" to near"], onFar[form+" to far"], onFar[form+" to near"])
		}
	}
	if want := 2*len(forms) + 1; len(onHost) != want {
		t.Errorf("the host saw %d words, want %d: %v", len(onHost), want, onHost)
	}
}

// TestJudgement shows that each way to fail is noticed.
func TestJudgement(t *testing.T) {
	refused, got := outcome{Name: "a"}, outcome{Name: "a", Worked: true}
	for _, tt := range []struct {
		name              string
		way               way
		allow             bool
		made              *outcome
		outside, loopback string
		complaints        int
	}{
		{"refused", way{name: "a", inside: "no"}, true, &refused, "", "", 0},
		{"not made", way{name: "a", inside: "no"}, true, nil, "", "", 1},
		{"worked", way{name: "a", inside: "no"}, true, &got, "", "", 1},
		{"worked and may", way{name: "a", inside: "any: why"}, true, &got, "", "", 0},
		{"left", way{name: "a", inside: "no"}, true, &refused, "a frame", "", 1},
		{"left although it may work", way{name: "a", inside: "any: why"}, true, &got, "a frame", "", 1},
		{"on the loopback", way{name: "a", inside: "no"}, true, &refused, "", "a frame", 1},
		{"on the loopback, listed", way{name: "a", inside: "no", loopback: true}, true, &refused, "", "a frame", 0},
		{"allowed", way{name: "a", inside: "allowed", loopback: true}, true, &got, "a frame", "a frame", 0},
		{"allowed, not seen", way{name: "a", inside: "allowed", loopback: true}, true, &got, "", "", 1},
		{"allowed, without rules", way{name: "a", inside: "allowed", loopback: true}, false, &got, "a frame", "", 2},
	} {
		b := &battery{outcomes: map[string]outcome{}}
		if tt.made != nil {
			b.outcomes["a"] = *tt.made
		}
		if got := b.complaints(tt.way, tt.allow, tt.outside, tt.loopback); len(got) != tt.complaints {
			t.Errorf("%s: %d complaints, want %d: %s", tt.name, len(got), tt.complaints, fmt.Sprint(got))
		}
	}
}
