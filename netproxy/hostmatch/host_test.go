package hostmatch

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func TestParseHost(t *testing.T) {
	long := strings.Repeat("a", 63)
	for in, want := range map[string]string{
		"github.com": "github.com", "GitHub.COM": "github.com", "github.com.": "github.com", "a_b.example": "a_b.example", "r3---sn-x.example": "r3---sn-x.example",
		"localhost": "localhost", "1a.example": "1a.example", "123.example": "123.example", "0xyz": "0xyz", "deadbeef": "deadbeef",
		"10.0.0.1": "10.0.0.1", "[::1]": "::1", "[2606:4700:4700:0:0:0:0:1111]": "2606:4700:4700::1111", "[::ffff:1.2.3.4]": "1.2.3.4", "[FE80::1]": "fe80::1",
		"xn--bcher-kva.example": "xn--bcher-kva.example", "XN--BCHER-KVA.example": "xn--bcher-kva.example", "xn--wgv71a119e.example": "xn--wgv71a119e.example",
		strings.Join([]string{long, long, long, long[:61]}, "."): strings.Join([]string{long, long, long, long[:61]}, "."),
	} {
		h, err := ParseHost(in)
		if err != nil || h.String() != want {
			t.Errorf("%q: %q %v, want %q", in, h, err, want)
		}
	}
}

func TestParseHostRefuses(t *testing.T) {
	long := strings.Repeat("a", 63)
	for in, reason := range map[string]string{
		"": "empty host", ".": "empty host", "..": "empty label", "a..b": "empty label", ".a": "empty label", "a..": "empty label",
		"a b": "0x20", "a\x00b": "0x00", "a\r\nb": "0x0d", "a\x7f": "0x7f", "a\tb": "0x09", " a": "0x20", "a ": "0x20",
		"a%2eb": "percent", "u@h": "user information", "a,b": "','", "a;b": "';'", "a/b": "slash", `a\b`: "slash", "*.a": "star", "a:1": "colon", "::1": "colon",
		"bücher.example": "ASCII", "a。b": "ASCII", "-a.example": "hyphen", "a-.example": "hyphen", "a.-": "hyphen",
		long + "a.example": "63", strings.Join([]string{long, long, long, long}, "."): "253",
		"[::1": "bracket", "[]": "brackets", "[1.2.3.4]": "brackets", "[github.com]": "brackets", "[fe80::1%eth0]": "zone", "[fe80::1%25eth0]": "zone", "[v1.a]": "brackets", "[::1]]": "brackets",
		"127.1": "127.0.0.1", "2130706433": "127.0.0.1", "0x7f000001": "127.0.0.1", "0X7F000001": "127.0.0.1", "0177.0.0.1": "127.0.0.1", "017700000001": "127.0.0.1",
		"127.0.1": "127.0.0.1", "0x7f.1": "127.0.0.1", "127.0x1": "127.0.0.1", "0": "0.0.0.0", "0x": "0.0.0.0", "169.254.43518": "169.254.169.254", "010.0.0.1": "8.0.0.1", "1.2.3.4.": "1.2.3.4",
		"256.1.1.1": "no IPv4", "1.2.3.4.5": "no IPv4", "4294967296": "no IPv4", "08.0.0.1": "no IPv4", "foo.1": "no IPv4", "foo.0x7f": "no IPv4", "1.2.3.256": "no IPv4",
		"xn--": "hyphen", "xn--github-.com": "hyphen", "xn--a": "U+0080", "xn--example-7a2k.com": "U+0084", "xn--99999999999": "punycode",
		"xn--exmple-cua\x00.com": "0x00", "xn--bcher-kva0.example": "punycode", "xn--a-3n0i.example": "U+FF0F", "xn--ab-0t3n": "U+FF03", "xn--examplecom-7f99c": "U+FF0E", "xn--n3h.example": "U+2603", "xn--bcher-2pa.example": "U+00DC",
	} {
		h, err := ParseHost(in)
		var syntax *SyntaxError
		if err == nil || !errors.As(err, &syntax) || !strings.Contains(err.Error(), reason) || !h.IsZero() {
			t.Errorf("%q: %q %v, want a reason with %q", in, h, err, reason)
		}
	}
}

func TestParseAuthority(t *testing.T) {
	for in, want := range map[string]string{
		"github.com:443": "github.com:443", "github.com": "github.com:80", "[::1]:8080": "[::1]:8080", "[::1]": "[::1]:80", "10.0.0.1:65535": "10.0.0.1:65535",
	} {
		h, port, err := ParseAuthority(in, 80)
		if err != nil || h.Authority(port) != want {
			t.Errorf("%q: %s %v, want %s", in, h.Authority(port), err, want)
		}
	}
	for in, reason := range map[string]string{
		"": "empty", "github.com": "no port", "github.com:": "empty port", "github.com:0": "zero", "github.com:0443": "zero", "github.com:+443": "decimal", "github.com:-1": "decimal",
		"github.com:65536": "65535", "github.com:65979": "65535", "github.com:443443443443": "65535", "github.com:443:443": "second colon", "github.com:４４３": "decimal",
		"u@github.com:443": "user information", "github.com:443@evil:443": "user information", "github.com:443 ": "0x20", "::1:443": "second colon", "[::1]443": "bracket",
		"[::1]:": "empty port", "[::1]:443:1": "second colon", "github.com:443/": "decimal", "http://github.com": "second", ":443": "empty host",
	} {
		if reason == "second" { // a scheme's colon is taken for a port
			reason = "decimal"
		}
		if h, port, err := ParseAuthority(in, 0); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%q: %s %v, want a reason with %q", in, h.Authority(port), err, reason)
		}
	}
}

func TestFromAddr(t *testing.T) {
	if h, err := FromAddr(netip.MustParseAddr("::ffff:1.2.3.4")); err != nil || h.String() != "1.2.3.4" {
		t.Errorf("mapped: %s %v", h, err)
	}
	for _, a := range []netip.Addr{{}, netip.MustParseAddr("fe80::1%eth0")} {
		if _, err := FromAddr(a); err == nil {
			t.Errorf("%s is accepted", a)
		}
	}
	if _, err := ParseName("1.2.3.4"); err == nil {
		t.Error("an address passes for a name")
	}
}

// Vectors of RFC 3492 section 7.1, in lower case as labels are.
func TestPunycode(t *testing.T) {
	for enc, dec := range map[string]string{
		"egbpdaj6bu4bxfgehfvwxn": "ليهمابتكلموشعربي؟", "ihqwcrb4cv8a8dqg056pqjye": "他们为什么不说中文", "ihqwctvzc91f659drss3x8bo0yb": "他們爲什麽不說中文",
		"proprostnemluvesky-uyb24dma41a": "pročprostěnemluvíčesky", "4dbcagdahymbxekheh6e0a7fei0b": "למההםפשוטלאמדבריםעברית",
		"n8jok5ay5dzabd5bym9f0cm5685rrjetr6pdxa": "なぜみんな日本語を話してくれないのか", "b1abfaaepdrnnbgefbadotcwatmq2g4l": "почемужеонинеговорятпорусски",
		"3b-ww4c5e180e575a65lsy2b": "3年b組金八先生", "-with-super-monkeys-pc58ag80a8qai00g7n9n": "安室奈美恵-with-super-monkeys", "bcher-kva": "bücher", "fiqs8s": "中国",
	} {
		got, err := encodePunycode([]rune(dec))
		if err != nil || got != enc {
			t.Errorf("encode %q: %q %v, want %q", dec, got, err, enc)
		}
		if strings.HasPrefix(enc, "-") {
			continue // no label begins so; the encoder is right all the same
		}
		back, err := decodePunycode(enc)
		if err != nil || string(back) != dec {
			t.Errorf("decode %q: %q %v, want %q", enc, string(back), err, dec)
		}
	}
}

// What is accepted is canonical: it parses to itself, and holds nothing that any reader could take for an end.
func FuzzParseHost(f *testing.F) {
	for _, s := range []string{"github.com", "GitHub.com.", "[::1]", "[::ffff:1.2.3.4]", "127.1", "0x7f.1", "xn--bcher-kva.example", "a\x00b", "1.2.3.4", "[fe80::1%25e]", "xn--a-ecp.ru"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, err := ParseHost(s)
		if err != nil {
			if !h.IsZero() {
				t.Fatalf("%q: refused, but gave %q", s, h)
			}
			return
		}
		back, err := ParseHost(h.Bracketed())
		if err != nil || back != h {
			t.Fatalf("%q gives %q, which gives %q %v", s, h, back, err)
		}
		if a, ok := h.Addr(); ok {
			if a.Is4In6() || a.Zone() != "" {
				t.Fatalf("%q gives the address %s", s, a)
			}
			return
		}
		if n := h.Name(); len(n) > 253 || strings.ToLower(n) != n || strings.Trim(n, "abcdefghijklmnopqrstuvwxyz0123456789-._") != "" {
			t.Fatalf("%q gives the name %q", s, n)
		}
		if _, ok := inetAton(h.Name()); ok {
			t.Fatalf("%q is an address for libc", s)
		}
	})
}
