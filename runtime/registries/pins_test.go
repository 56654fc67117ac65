package registries

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"coworker/netproxy/hostmatch"
)

func TestPins(t *testing.T) {
	zone := map[string][]string{
		"public.example": {"1.1.1.1", "2606:4700::1111"}, "mirror.corp": {"10.1.2.3"}, "two.corp": {"10.1.2.3", "fd00::9"}, "mixed.corp": {"1.1.1.1", "192.168.0.9"},
		"here.corp": {"127.0.0.1"}, "meta.corp": {"169.254.169.254"}, "cloud.corp": {"100.100.100.200"}, "mapped.corp": {"::ffff:10.1.2.3"}, "link.corp": {"fe80::1"},
	}
	resolve := func(_ context.Context, host string) ([]netip.Addr, error) {
		var out []netip.Addr
		for _, text := range zone[host] {
			out = append(out, netip.MustParseAddr(text))
		}
		if out == nil {
			return nil, errors.New("no such host")
		}
		return out, nil
	}
	rules := []string{"public.example", "mirror.corp:8081", "two.corp", "mixed.corp", "here.corp", "meta.corp", "cloud.corp", "mapped.corp", "link.corp", "unknown.corp", "203.0.113.7:80", "*.wild.corp"}
	got := Pins(t.Context(), rules, resolve)
	want := []string{
		"mapped.corp:443=10.1.2.3/32", "mirror.corp:8081=10.1.2.3/32", "mixed.corp:443=192.168.0.9/32", "two.corp:443=10.1.2.3/32", "two.corp:443=fd00::9/128",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for _, r := range got {
		if _, err := hostmatch.ParseAllow(r); err != nil {
			t.Error(err)
		}
	}
}
