package tlshello

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"coworker/netproxy/hostmatch"
)

// capture gives the bytes that a crypto/tls client sends first.
func capture(t testing.TB, cfg *tls.Config) []byte {
	t.Helper()
	client, server := net.Pipe()
	done := make(chan error, 1)
	go func() { done <- tls.Client(client, cfg).Handshake() }()
	buf := make([]byte, MaxHello)
	n := 0
	for {
		k, err := server.Read(buf[n:])
		if err != nil {
			t.Fatal(err)
		}
		n += k
		if _, _, err := Parse(buf[:n]); err != ErrIncomplete {
			break
		}
	}
	server.Close()
	<-done
	client.Close()
	return buf[:n]
}

func host(t testing.TB, s string) hostmatch.Host {
	t.Helper()
	h, err := hostmatch.ParseHost(s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestGoClient(t *testing.T) {
	for _, cfg := range []*tls.Config{
		{ServerName: "github.com"}, {ServerName: "github.com", MaxVersion: tls.VersionTLS12}, {ServerName: "github.com", NextProtos: []string{"h2", "http/1.1"}},
	} {
		b := capture(t, cfg)
		h, n, err := Parse(b)
		if err != nil || n != len(b) || h.ECH || !slices.Equal(h.ALPN, cfg.NextProtos) {
			t.Fatalf("%+v, %d of %d, %v", h, n, len(b), err)
		}
		if err := h.Check(host(t, "github.com")); err != nil {
			t.Error(err)
		}
		for _, other := range []string{"evil.example", "api.github.com", "10.0.0.1"} {
			if h.Check(host(t, other)) == nil {
				t.Errorf("the name agrees with %s", other)
			}
		}
		for i := range n {
			if _, _, err := Parse(b[:i]); err != ErrIncomplete {
				t.Fatalf("%d octets: %v", i, err)
			}
		}
	}
}

// clients run real programs against a listener that only reads the hello.
func TestOtherClients(t *testing.T) {
	for _, argv := range [][]string{
		{"openssl", "s_client", "-connect", "ADDR", "-servername", "github.com", "-alpn", "h2"},
		{"openssl", "s_client", "-tls1_2", "-connect", "ADDR", "-servername", "github.com"},
		{"curl", "-sk", "--connect-to", "github.com:443:ADDR", "https://github.com/"},
	} {
		t.Run(strings.Join(argv[:2], " "), func(t *testing.T) {
			if _, err := exec.LookPath(argv[0]); err != nil {
				t.Fatalf("%s is needed: %v", argv[0], err)
			}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			args := slices.Clone(argv[1:])
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "ADDR", l.Addr().String())
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			cmd := exec.CommandContext(ctx, argv[0], args...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			conn, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			h, err := read(conn)
			conn.Close()
			_ = cmd.Wait() // it has no server to talk to, so it does not succeed
			if err != nil {
				t.Fatal(err)
			}
			if err := h.Check(host(t, "github.com")); err != nil {
				t.Error(err)
			}
		})
	}
}

func read(r io.Reader) (*Hello, error) {
	var b []byte
	for {
		one := make([]byte, 4096)
		n, err := r.Read(one)
		if err != nil {
			return nil, err
		}
		b = append(b, one[:n]...)
		if h, _, err := Parse(b); err != ErrIncomplete {
			return h, err
		}
	}
}

// vec puts a length of size octets before data.
func vec(size int, data ...[]byte) []byte {
	d := bytes.Join(data, nil)
	n := len(d)
	return append([]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}[4-size:], d...)
}

func ext(kind int, data []byte) []byte {
	return append([]byte{byte(kind >> 8), byte(kind)}, vec(2, data)...)
}

func sni(names ...string) []byte {
	var list []byte
	for _, n := range names {
		list = append(list, append([]byte{0}, vec(2, []byte(n))...)...)
	}
	return ext(0, vec(2, list))
}

func message(exts ...[]byte) []byte {
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, vec(1)...)
	body = append(body, vec(2, []byte{0x13, 1})...)
	body = append(body, vec(1, []byte{0})...)
	return append([]byte{1}, vec(3, append(body, vec(2, exts...)...))...)
}

func rec(b []byte) []byte { return append([]byte{22, 3, 1}, vec(2, b)...) }

// split puts every size octets of a message into a record of its own.
func split(msg []byte, size int) []byte {
	var out []byte
	for part := range slices.Chunk(msg, size) {
		out = append(out, rec(part)...)
	}
	return out
}

func TestRefuses(t *testing.T) {
	good := message(sni("github.com"))
	long := message(sni("github.com"), ext(21, make([]byte, 40000)))
	for name, c := range map[string]struct {
		in     []byte
		reason string // "" means that the hello is fine for github.com
	}{
		"plain": {rec(good), ""}, "upper case": {rec(message(sni("GitHub.COM"))), ""}, "fragments": {split(good, 7), ""}, "long": {split(long, recordMax), ""},
		"bytes after the record": {append(rec(good), 20, 3, 3, 0, 1, 1), ""}, "grease": {rec(message(ext(0x0a0a, nil), sni("github.com"), ext(16, vec(2, vec(1, []byte{0xca, 0xca}), vec(1, []byte("h2")))))), ""},
		"other name": {rec(message(sni("evil.example"))), "evil.example"}, "name in second record": {append(rec(good[:50]), rec(message(sni("evilab.com"))[50:])...), "evilab.com"},
		"no name": {rec(message(ext(43, []byte{2, 3, 4}))), "no server name"}, "no extensions": {rec(append([]byte{1}, vec(3, good[4:4+2+32+1+4+2])...)), "no server name"},
		"two names": {rec(message(sni("github.com", "evil.example"))), "more than one"}, "two extensions": {rec(message(sni("github.com"), sni("evil.example"))), "twice"}, "empty list": {rec(message(sni())), "malformed"},
		"empty name": {rec(message(sni(""))), "empty host"}, "dot": {rec(message(sni("github.com."))), "dot"}, "nul": {rec(message(sni("github.com\x00.evil"))), "0x00"}, "address": {rec(message(sni("10.0.0.1"))), "address"},
		"brackets": {rec(message(sni("[::1]"))), "address"}, "u-label": {rec(message(sni("bücher.example"))), "ASCII"}, "port": {rec(message(sni("github.com:443"))), "colon"}, "other type": {rec(message(ext(0, vec(2, append([]byte{1}, vec(2, []byte("github.com"))...))))), "type 1"},
		"rest in extension": {rec(message(ext(0, append(vec(2, append([]byte{0}, vec(2, []byte("github.com"))...)), 0)))), "malformed"},
		"ech":               {rec(message(sni("github.com"), ext(0xfe0d, []byte{0}))), "encrypted"}, "esni": {rec(message(sni("github.com"), ext(0xffce, nil))), "encrypted"},
		"alpn empty": {rec(message(sni("github.com"), ext(16, vec(2)))), "ALPN"}, "alpn bad": {rec(message(sni("github.com"), ext(16, vec(2, vec(1))))), "ALPN"},
		"ssh": {[]byte("SSH-2.0-x"), "0x53"}, "http": {[]byte("GET / HTTP/1.1\r\n"), "0x47"}, "sslv2": {[]byte{0x80, 0x2e, 1, 3, 1}, "0x80"}, "version": {[]byte{22, 2, 0}, "version"}, "version low": {[]byte{22, 3, 0, 0, 5}, "version"},
		"server hello": {rec([]byte{2, 0, 0, 1, 0}), "message 2"}, "empty record": {rec(nil), "empty"}, "empty record between": {slices.Concat(rec(good[:9]), rec(nil), rec(good[9:])), "empty"},
		"alert between": {slices.Concat(rec(good[:9]), []byte{21, 3, 1, 0, 2, 1, 0}, rec(good[9:])), "0x15"}, "huge record": {[]byte{22, 3, 1, 0x40, 1}, "16385"}, "huge hello": {rec([]byte{1, 1, 0, 0}), "65540"},
		"two messages": {rec(slices.Concat(good, good)), "follow"}, "one octet each": {split(good, 1), "more than 64"}, "short": {rec([]byte{1, 0, 0, 2, 3, 3}), "ends early"}, "old hello": {rec(slices.Concat(good[:4], []byte{2, 0}, good[6:])), "0x0200"},
		"trailing": {rec(append([]byte{1}, vec(3, append(slices.Clone(good[4:]), 0))...)), "fill"},
	} {
		h, _, err := Parse(c.in)
		if err == nil {
			err = h.Check(host(t, "github.com"))
		}
		var refusal *Refusal
		if c.reason == "" && err != nil || c.reason != "" && (!errors.As(err, &refusal) || !strings.Contains(err.Error(), c.reason)) {
			t.Errorf("%s: %v, want a reason with %q", name, err, c.reason)
		}
	}
	if _, _, err := Parse(split(long, recordMax)[:30000]); err != ErrIncomplete {
		t.Errorf("half of a long hello: %v", err)
	}
}

func TestLiteralTunnel(t *testing.T) {
	h, _, err := Parse(rec(message(ext(43, []byte{2, 3, 4}))))
	if err != nil || h.Check(host(t, "[2606:4700::1]")) != nil {
		t.Errorf("no name to an address: %v", err)
	}
	h, _, err = Parse(rec(message(sni("github.com"))))
	if err != nil || h.Check(host(t, "10.0.0.5")) == nil {
		t.Errorf("a name to an address passes: %v", err)
	}
}

func TestWatch(t *testing.T) {
	good, evil := message(sni("github.com")), message(sni("evil.example"))
	record := func(kind byte, n int) []byte {
		return append([]byte{kind, 3, 3}, vec(2, bytes.Repeat([]byte{0xa5}, n))...)
	}
	ccs := []byte{20, 3, 3, 0, 1, 1}
	for name, c := range map[string]struct {
		in    []byte
		early bool
		bad   bool
		done  bool
	}{
		"data": {record(23, 100), false, false, true}, "same name": {slices.Concat(rec(good), ccs, record(23, 50)), false, false, true}, "other name": {rec(evil), false, true, false},
		"after ccs": {slices.Concat(ccs, rec(evil)), false, true, false}, "in fragments": {slices.Concat(ccs, split(evil, 20)), false, true, false}, "good in fragments": {slices.Concat(split(good, 20), record(23, 5)), false, false, true},
		"tls 1.2": {slices.Concat(rec(append([]byte{16}, vec(3, make([]byte, 70))...)), ccs, record(22, 40), record(23, 9)), false, false, true}, "after early data": {slices.Concat(record(23, 9), rec(evil)), true, true, false},
		"early data": {slices.Concat(record(23, 9), record(23, 9)), true, false, false}, "tiny handshake": {rec([]byte{1, 0, 0}), false, true, false}, "no record": {[]byte("GET / HTTP/1.1"), false, true, false}, "heartbeat": {record(24, 3), false, true, false},
		"alert": {record(21, 2), false, false, false}, "ech": {rec(message(sni("github.com"), ext(0xfe0d, nil))), false, true, false},
	} {
		for _, step := range []int{1, 3, 1 << 20} {
			w := NewWatch(&Hello{EarlyData: c.early}, host(t, "github.com"))
			var err error
			for part := range slices.Chunk(c.in, step) {
				if err = w.Feed(part); err != nil {
					break
				}
			}
			if (err != nil) != c.bad || w.Done() != c.done {
				t.Errorf("%s by %d: %v, done %v", name, step, err, w.Done())
			}
		}
	}
}

// However the bytes are cut, the answer is the same, and a hello that agrees holds the name in clear.
func FuzzParse(f *testing.F) {
	f.Add(rec(message(sni("github.com"))))
	f.Add(split(message(sni("github.com"), ext(16, vec(2, vec(1, []byte("h2"))))), 20))
	f.Add(capture(f, &tls.Config{ServerName: "github.com"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, n, err := Parse(b)
		if err != nil {
			if h != nil || n != 0 {
				t.Fatal("refused, but gave a hello")
			}
			return
		}
		if _, _, err := Parse(b[:n-1]); err != ErrIncomplete {
			t.Fatalf("without its last octet: %v", err)
		}
		if h.Check(host(t, "github.com")) == nil && (h.ECH || h.Name.String() != "github.com") {
			t.Fatalf("%+v agrees", h)
		}
		w := NewWatch(h, host(t, "github.com"))
		if w.Feed(b[:n]) == nil && h.Check(host(t, "github.com")) != nil && !w.Done() {
			t.Fatalf("%+v passes as a second hello", h)
		}
	})
}
