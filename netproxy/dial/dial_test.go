package dial

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"coworker/netproxy/addrclass"
	"coworker/netproxy/hostmatch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake dials a listener for the addresses in up, and notes what was asked for.
type fake struct {
	answers []string
	own     []netip.Addr
	up      map[string]string
	dialled []string
	looked  int
}

func (f *fake) dialer() *Dialer {
	return &Dialer{
		Resolve: func(context.Context, string) ([]netip.Addr, error) {
			answer := f.answers[min(f.looked, len(f.answers)-1)]
			f.looked++
			var out []netip.Addr
			for part := range strings.SplitSeq(answer, ",") {
				a, err := netip.ParseAddr(part)
				if err != nil {
					return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
				}
				out = append(out, a)
			}
			return out, nil
		},
		Own: func() ([]netip.Addr, error) { return f.own, nil },
		Connect: func(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
			f.dialled = append(f.dialled, to.String())
			at, ok := f.up[to.Addr().String()]
			if !ok {
				return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
			}
			var d net.Dialer
			return d.DialTCP(ctx, "tcp", netip.AddrPort{}, netip.MustParseAddrPort(at))
		},
	}
}

func listener(t *testing.T) *net.TCPListener {
	t.Helper()
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func host(t *testing.T, s string) hostmatch.Host {
	t.Helper()
	h, err := hostmatch.ParseHost(s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestDial(t *testing.T) {
	at := listener(t).Addr().String()
	public := addrclass.Grant{Public: true}
	for _, tc := range []struct {
		name, host, answers string
		grant               addrclass.Grant
		dialled             string
		refused             string
	}{
		{"public", "a.example", "1.1.1.1", public, "1.1.1.1:443", ""},
		{"second works", "a.example", "1.1.1.2,1.1.1.1", public, "1.1.1.2:443 1.1.1.1:443", ""},
		{"mapped", "a.example", "::ffff:1.1.1.1", public, "1.1.1.1:443", ""},
		{"private", "a.example", "10.0.0.1", public, "", "private"},
		{"mixed", "a.example", "1.1.1.1,10.0.0.1", public, "", "private"},
		{"own", "a.example", "9.9.9.9", public, "", "address of this machine"},
		{"pinned", "a.example", "10.0.0.1", addrclass.Grant{Ranges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, "10.0.0.1:443", ""},
		{"outside the pin", "a.example", "1.1.1.1", addrclass.Grant{Ranges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, "", "outside"},
		{"literal", "1.1.1.1", "", addrclass.Grant{Literal: netip.MustParseAddr("1.1.1.1")}, "1.1.1.1:443", ""},
		{"literal of another rule", "1.1.1.1", "", addrclass.Grant{Literal: netip.MustParseAddr("1.1.1.2")}, "", "outside"},
		{"host service", "host.coworker.internal", "", addrclass.Grant{HostService: true}, "127.0.0.1:443 [::1]:443", ""},
		{"no grant", "a.example", "1.1.1.1", addrclass.Grant{}, "", "no rule"},
	} {
		f := &fake{answers: []string{tc.answers}, own: []netip.Addr{netip.MustParseAddr("9.9.9.9")}, up: map[string]string{"1.1.1.1": at, "10.0.0.1": at, "::1": at}}
		res, err := f.dialer().Dial(t.Context(), Target{Host: host(t, tc.host), Port: 443, Grant: tc.grant})
		var no *Refusal
		switch {
		case tc.refused == "" && err != nil, tc.refused != "" && (!errors.As(err, &no) || !strings.Contains(no.Reason, tc.refused)):
			t.Errorf("%s: %v", tc.name, err)
		case strings.Join(f.dialled, " ") != tc.dialled:
			t.Errorf("%s: dialled %v", tc.name, f.dialled)
		case err == nil && !strings.HasSuffix(tc.dialled, res.Addr.String()):
			t.Errorf("%s: says %s", tc.name, res.Addr)
		}
		if res.Conn != nil {
			res.Conn.Close()
		}
	}
}

func TestPin(t *testing.T) {
	for answer, want := range map[string]string{"10.0.0.1": "10.0.0.1/32", "1.1.1.1,10.0.0.1": "10.0.0.1/32", "fd00::1": "fd00::1/128", "10.0.0.1,10.0.0.2": "invalid Prefix", "127.0.0.1": "invalid Prefix", "169.254.169.254": "invalid Prefix"} {
		f := &fake{answers: []string{answer}}
		_, err := f.dialer().Dial(t.Context(), Target{Host: host(t, "a.example"), Port: 443, Grant: addrclass.Grant{Public: true}})
		var no *Refusal
		if !errors.As(err, &no) || no.Pin.String() != want {
			t.Errorf("%s: %+v, want %s", answer, err, want)
		}
	}
}

// A name that changes its address between two lookups cannot: there is one lookup.
func TestOneLookup(t *testing.T) {
	f := &fake{answers: []string{"1.1.1.1", "127.0.0.1"}, up: map[string]string{"1.1.1.1": listener(t).Addr().String()}}
	res, err := f.dialer().Dial(t.Context(), Target{Host: host(t, "a.example"), Port: 443, Grant: addrclass.Grant{Public: true}})
	if err != nil || f.looked != 1 || !slices.Equal(f.dialled, []string{"1.1.1.1:443"}) {
		t.Fatal(err, f.looked, f.dialled)
	}
	res.Conn.Close()
}

func TestFailures(t *testing.T) {
	f := &fake{answers: []string{"none"}}
	d := f.dialer()
	public := Target{Host: host(t, "a.example"), Port: 443, Grant: addrclass.Grant{Public: true}}
	var failure *Failure
	if _, err := d.Dial(t.Context(), public); !errors.As(err, &failure) || failure.Timeout {
		t.Error(err)
	}
	f.answers = []string{"1.1.1.1"}
	if _, err := d.Dial(t.Context(), public); !errors.As(err, &failure) || !strings.Contains(err.Error(), "refused") {
		t.Error(err)
	}
	d.Connect = func(context.Context, netip.AddrPort) (*net.TCPConn, error) { return nil, context.DeadlineExceeded }
	if _, err := d.Dial(t.Context(), public); !errors.As(err, &failure) || !failure.Timeout {
		t.Error(err)
	}
	d.Own = func() ([]netip.Addr, error) { return nil, errors.New("no netlink") }
	var no *Refusal
	if _, err := d.Dial(t.Context(), public); !errors.As(err, &no) {
		t.Error(err)
	}
}

func TestUpstreamConfig(t *testing.T) {
	for _, bad := range [][]string{{"https://a:1", ""}, {"http://u:p@a:1", ""}, {"http://a:1/path", ""}, {"http://a b", ""}, {"http://a:99999", ""}, {"http://a:1", "x:y"}} {
		if _, err := NewUpstream(bad[0], bad[1], "p", nil); err == nil {
			t.Errorf("%v is accepted", bad)
		}
	}
	u, err := NewUpstream("http://proxy.corp:3128", "", "", []string{".corp", "*.lan", "one.example", "10.0.0.0/8"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"a.corp": true, "corp": false, "a.lan": true, "one.example": true, "two.one.example": false, "10.1.2.3": true, "11.1.2.3": false} {
		if u.direct(host(t, name)) != want {
			t.Errorf("%s direct: %v", name, !want)
		}
	}
}

// What the upstream proxy says is bounded, and what follows its answer stays in the tunnel.
func TestUpstreamAnswers(t *testing.T) {
	for answer, want := range map[string]string{
		"HTTP/1.1 200 ok\r\nA: b\r\n\r\nrest": "", "HTTP/1.0 200\r\n\r\nrest": "", "HTTP/1.1 403 no\r\n\r\n": "answers 403", "HTTP/1.1 407 x\r\n\r\n": "407",
		"SSH-2.0\r\n\r\n": "no HTTP", "HTTP/1.1 2x0 a\r\n\r\n": "no HTTP", "HTTP/1.1 200 ok\r\n": "ends early", "": "ends early",
		"HTTP/1.1 200 " + strings.Repeat("a", maxAnswer) + "\r\n\r\n": "more than",
	} {
		l := listener(t)
		done := make(chan struct{})
		go func() {
			defer close(done)
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			buf := make([]byte, 1<<10)
			c.Read(buf)
			io.WriteString(c, answer)
			c.(*net.TCPConn).CloseWrite()
			c.SetReadDeadline(time.Now().Add(20 * time.Second))
			io.Copy(io.Discard, c)
		}()
		f := &fake{answers: []string{"10.0.0.1"}, up: map[string]string{"10.0.0.1": l.Addr().String()}}
		d := f.dialer()
		d.Upstream, _ = NewUpstream("http://proxy.corp:3128", "", "", nil)
		res, err := d.Dial(t.Context(), Target{Host: host(t, "a.example"), Port: 443, Grant: addrclass.Grant{Public: true}})
		switch {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%.40q: %v", answer, err)
		case err == nil:
			if b, _ := io.ReadAll(res.Conn); string(b) != "rest" || !res.ByUpstream {
				t.Errorf("%.40q: %q follows", answer, b)
			}
			res.Conn.Close()
		}
		<-done
	}
}

func TestFresh(t *testing.T) {
	now := time.Unix(1000, 0)
	calls := 0
	var failure error
	own := fresh(func() ([]netip.Addr, error) {
		calls++
		return []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(calls)})}, failure
	}, time.Second, func() time.Time { return now })
	for _, step := range []struct {
		pass  time.Duration
		fails bool
		calls int
	}{{0, false, 1}, {time.Second - 1, false, 1}, {1, false, 2}, {time.Second, true, 3}, {0, true, 4}, {0, false, 5}, {0, false, 5}, {-time.Hour, false, 6}} {
		now = now.Add(step.pass)
		if failure = nil; step.fails {
			failure = errors.New("no list")
		}
		got, err := own()
		if calls != step.calls || (err != nil) != step.fails || err == nil && got[0].As4()[3] != byte(calls) {
			t.Errorf("after %v: call %d, %v, %v; want call %d", step.pass, calls, got, err, step.calls)
		}
	}
}
