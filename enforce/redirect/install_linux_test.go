package redirect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

func asMissing(err error, target **MissingError) bool { return errors.As(err, target) }

// service answers outside: each transparent connection with its original destination, everything else with its name.
type service struct {
	wg    sync.WaitGroup
	close []func() error
}

func receive(t *testing.T, fd int) *service {
	t.Helper()
	data, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(8*4))
	n, oob, _, _, err := unix.Recvmsg(fd, data, rights, unix.MSG_CMSG_CLOEXEC)
	if err != nil || n != 1 {
		t.Fatalf("no sockets from inside: %d %v", n, err)
	}
	messages, err := unix.ParseSocketControlMessage(rights[:oob])
	if err != nil || len(messages) != 1 {
		t.Fatalf("%d control messages: %v", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != int(data[0]) {
		t.Fatalf("%d sockets, want %d: %v", len(fds), data[0], err)
	}
	s := &service{}
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		s.serve(t, i, f)
		f.Close()
	}
	return s
}

func (s *service) serve(t *testing.T, i int, f *os.File) {
	t.Helper()
	if i == SocketNameUDP4 || i == SocketNameUDP6 {
		p, err := net.FilePacketConn(f)
		if err != nil {
			t.Fatalf("socket %d: %v", i, err)
		}
		s.close = append(s.close, p.Close)
		s.wg.Go(func() {
			buf := make([]byte, 64)
			for {
				n, from, err := p.ReadFrom(buf)
				if err != nil {
					return
				}
				_, _ = p.WriteTo(append([]byte("udp "), buf[:n]...), from)
			}
		})
		return
	}
	l, err := net.FileListener(f)
	if err != nil {
		t.Fatalf("socket %d: %v", i, err)
	}
	s.close = append(s.close, l.Close)
	s.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			answer := fmt.Sprintf("socket %d", i)
			if i == SocketTransparent4 || i == SocketTransparent6 {
				answer = original(c.(*net.TCPConn))
			}
			_, _ = c.Write([]byte(answer))
			c.Close()
		}
	})
}

func (s *service) end() {
	for _, c := range s.close {
		_ = c()
	}
	s.wg.Wait()
}

// original asks as netproxy/transparent does, which may not be imported from here.
func original(c *net.TCPConn) (answer string) {
	raw, err := c.SyscallConn()
	if err != nil {
		return err.Error()
	}
	_ = raw.Control(func(fd uintptr) {
		if c.LocalAddr().(*net.TCPAddr).IP.To4() != nil {
			v, err := unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, 80)
			if err != nil {
				answer = err.Error()
				return
			}
			answer = netip.AddrPortFrom(netip.AddrFrom4([4]byte(v.Multiaddr[4:8])), uint16(v.Multiaddr[2])<<8|uint16(v.Multiaddr[3])).String()
			return
		}
		v, err := unix.GetsockoptIPv6MTUInfo(int(fd), unix.SOL_IPV6, 80)
		if err != nil {
			answer = err.Error()
			return
		}
		answer = netip.AddrPortFrom(netip.AddrFrom16(v.Addr.Addr), v.Addr.Port<<8|v.Addr.Port>>8).String()
	})
	return answer
}

// attempts are made inside. The answer is what came back, or the error.
func attempts() map[string]string {
	out := map[string]string{}
	for name, to := range map[string]string{
		"synthetic4": "198.18.0.5:80", "last synthetic4": "198.19.255.254:65535", "synthetic6": "[fdc0:c0c0:c0c0::5]:443",
		"literal4": "203.0.113.7:22", "literal6": "[2001:db8::7]:22", "transparent port of a synthetic": "198.18.0.5:3129",
		"proxy4": "127.0.0.1:3128", "proxy6": "[::1]:3128", "names4": "127.0.0.53:53", "names6": "[::1]:53",
		"port 3129 itself": "127.0.0.1:3129",
		"other4":           "203.0.113.8:443", "other6": "[2001:db8::8]:443", "private": "10.0.0.1:80", "metadata": "169.254.169.254:80",
		"beside synthetic4": "198.20.0.0:80", "beside synthetic6": "[fdc0:c0c0:c0c0:1::]:80", "before synthetic4": "198.17.255.255:80",
		"closed port on loopback": "127.0.0.1:9",
	} {
		out[name] = ask("tcp", to)
	}
	out["udp names4"], out["udp names6"] = ask("udp", "127.0.0.53:53"), ask("udp", "[::1]:53")
	out["udp synthetic4"], out["udp synthetic6"] = ask("udp", "198.18.0.5:53"), ask("udp", "[fdc0:c0c0:c0c0::5]:53")
	out["udp other4"] = ask("udp", "203.0.113.8:53")
	out["own server4"], out["own server6"], out["own server on 127.5.5.5"] = own("127.0.0.1:0"), own("[::1]:0"), own("127.5.5.5:3129")
	out["own server on lo's address4"], out["own server on lo's address6"] = own("198.18.0.1:0"), own("[fdc0:c0c0:c0c0::1]:0")
	for name, port := range map[string]int{"steal transparent": TransparentPort, "steal proxy": ProxyPort, "steal names": NamePort} {
		out[name] = steal(port)
	}
	return out
}

func ask(network, to string) string {
	c, err := net.DialTimeout(network, to, 5*time.Second)
	if err != nil {
		return errnoOf(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if network == "udp" {
		if _, err := c.Write([]byte("?")); err != nil {
			return errnoOf(err)
		}
	}
	buf := make([]byte, 128)
	n, err := c.Read(buf)
	if err != nil {
		return errnoOf(err)
	}
	return string(buf[:n])
}

func errnoOf(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

func own(address string) string {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err.Error()
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer l.Close()
	wg.Go(func() {
		if c, err := l.Accept(); err == nil {
			_, _ = c.Write([]byte("own"))
			c.Close()
		}
	})
	return ask("tcp", l.Addr().String())
}

// steal tries to take over the port of a socket of ours, with every option that shares ports.
func steal(port int) string {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err.Error()
	}
	defer unix.Close(fd)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: port}); err != nil {
		return errnoOf(err)
	}
	return errnoOf(unix.Listen(fd, 1))
}

var literals = []string{"203.0.113.7", "2001:db8::7", "::ffff:203.0.113.7"}

func served(t *testing.T, uid int, j job) report {
	t.Helper()
	j.Serve = true
	var s *service
	r := spawn(t, uid, j, keeperCaps, func(fd int) {
		s = receive(t, fd)
		if _, err := unix.Write(fd, []byte{1}); err != nil {
			t.Fatal(err)
		}
	})
	s.end()
	return r
}

func TestInstall(t *testing.T) {
	each(t, func(t *testing.T, uid int) {
		r := served(t, uid, job{Literals: literals})
		if r.Install+r.Listen+r.Verify != "" || r.Notes.Mode != ModeNAT || !r.Notes.IPv6 || len(r.Notes.Routes) != 4 {
			t.Fatalf("install %q, listen %q, verify %q, notes %+v", r.Install, r.Listen, r.Verify, r.Notes)
		}
		t.Logf("install and listen: %d µs", r.Micros)
		check(t, r.Attempts, map[string]string{
			"synthetic4": "198.18.0.5:80", "last synthetic4": "198.19.255.254:65535", "synthetic6": "[fdc0:c0c0:c0c0::5]:443",
			"literal4": "203.0.113.7:22", "literal6": "[2001:db8::7]:22", "transparent port of a synthetic": "198.18.0.5:3129",
			"proxy4": "socket 0", "proxy6": "socket 4", "names4": "socket 3", "names6": "socket 7", "port 3129 itself": "127.0.0.1:3129",
			"other4": "ENETUNREACH", "other6": "ENETUNREACH", "private": "ENETUNREACH", "metadata": "ENETUNREACH",
			"beside synthetic4": "ENETUNREACH", "beside synthetic6": "ENETUNREACH", "before synthetic4": "ENETUNREACH", "closed port on loopback": "ECONNREFUSED",
			"udp names4": "udp ?", "udp names6": "udp ?", "udp synthetic4": "ECONNREFUSED", "udp synthetic6": "ECONNREFUSED", "udp other4": "ENETUNREACH",
			"own server4": "own", "own server6": "own", "own server on 127.5.5.5": "own", "own server on lo's address4": "own", "own server on lo's address6": "own",
			"steal transparent": "EADDRINUSE", "steal proxy": "EADDRINUSE", "steal names": "EADDRINUSE",
		})
	})
}

// Connections on loopback are not tracked, unless the kernel cannot leave them out; then all else is the same.
func TestUntracked(t *testing.T) {
	each(t, func(t *testing.T, uid int) {
		for _, tracked := range []bool{false, true} {
			r := served(t, uid, job{Literals: literals, Tracked: tracked})
			if r.Install+r.Listen+r.Verify != "" || r.Notes.Untracked == tracked || (r.Tracked > 0) != tracked {
				t.Errorf("tracked %v: install %q, listen %q, verify %q, notes %+v, %d connections more", tracked, r.Install, r.Listen, r.Verify, r.Notes, r.Tracked)
			}
			for name, want := range map[string]string{"synthetic4": "198.18.0.5:80", "literal6": "[2001:db8::7]:22", "own server4": "own", "port 3129 itself": "127.0.0.1:3129"} {
				if r.Attempts[name] != want {
					t.Errorf("tracked %v, %s: %q, want %q", tracked, name, r.Attempts[name], want)
				}
			}
		}
	})
}

func check(t *testing.T, got, want map[string]string) {
	t.Helper()
	for name, w := range want {
		if got[name] != w {
			t.Errorf("%s: %q, want %q", name, got[name], w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d attempts, %d expected", len(got), len(want))
	}
}

func TestWithoutIPv6(t *testing.T) {
	each(t, func(t *testing.T, uid int) {
		r := served(t, uid, job{Literals: literals, NoIPv6: true})
		if r.Install+r.Listen+r.Verify != "" || r.Notes.IPv6 || len(r.Notes.Routes) != 2 {
			t.Fatalf("install %q, listen %q, verify %q, notes %+v", r.Install, r.Listen, r.Verify, r.Notes)
		}
		for name, want := range map[string]string{"synthetic4": "198.18.0.5:80", "literal4": "203.0.113.7:22", "own server4": "own"} {
			if r.Attempts[name] != want {
				t.Errorf("%s: %q, want %q", name, r.Attempts[name], want)
			}
		}
		for _, name := range []string{"synthetic6", "literal6", "other6", "proxy6"} {
			if got := r.Attempts[name]; got != "ENETUNREACH" && got != "EADDRNOTAVAIL" {
				t.Errorf("%s: %q, want no way", name, got)
			}
		}
	})
}

// Without Install nothing leads anywhere: what the other tests see comes from it.
func TestWithoutInstall(t *testing.T) {
	each(t, func(t *testing.T, uid int) {
		r := served(t, uid, job{NoInstall: true})
		for _, name := range []string{"synthetic4", "synthetic6", "literal4", "literal6", "udp synthetic4"} {
			if r.Attempts[name] != "ENETUNREACH" {
				t.Errorf("%s: %q, want ENETUNREACH", name, r.Attempts[name])
			}
		}
	})
}

// A kernel that lacks NAT is told from one that refuses, and leaves no routes behind.
func TestMissing(t *testing.T) {
	each(t, func(t *testing.T, uid int) {
		for _, errno := range []int{int(unix.EPROTONOSUPPORT), int(unix.EPERM)} {
			r := spawn(t, uid, job{Literals: literals, Deny: errno}, keeperCaps, nil)
			name := unix.ErrnoName(syscall.Errno(errno))
			if r.Install == "" || r.Missing != (errno == int(unix.EPROTONOSUPPORT)) || r.Notes.Mode != ModeNone {
				t.Errorf("%s: install %q, missing %v, notes %+v", name, r.Install, r.Missing, r.Notes)
			}
			if r.Verify+r.Empty+r.Listen != "" {
				t.Errorf("%s: verify %q %q, listen %q, want a namespace as it was, with sockets", name, r.Verify, r.Empty, r.Listen)
			}
		}
		if r := spawn(t, uid, job{Drop: true}, keeperCaps, nil); !strings.Contains(r.Install, "not permitted") || r.Missing {
			t.Errorf("without CAP_NET_ADMIN: install %q, missing %v", r.Install, r.Missing)
		}
	})
}

func TestJudge(t *testing.T) {
	for errno, missing := range map[error]bool{
		unix.ENOENT: true, unix.EOPNOTSUPP: true, unix.EPROTONOSUPPORT: true, unix.EAFNOSUPPORT: true, unix.ENOSYS: true,
		unix.EPERM: false, unix.EACCES: false, unix.EEXIST: false, unix.ENOMEM: false, unix.EINVAL: false, os.ErrDeadlineExceeded: false, errors.New("other"): false,
		errors.Join(unix.ENOENT, unix.ENOENT): true, errors.Join(unix.ENOENT, unix.EPERM): false, errors.Join(unix.EEXIST, unix.ENOENT): false,
	} {
		var m *MissingError
		err := judge("step", fmt.Errorf("conn.Receive: %w", errno))
		if errors.As(err, &m) != missing || !errors.Is(err, errno) {
			t.Errorf("%v: %v, want missing %v", errno, err, missing)
		}
	}
}

// tamper changes what Install made.
func tamper(what string) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	switch what {
	case "no table":
		c.DelTable(table())
	case "no rules":
		c.FlushChain(chain())
	case "one rule more":
		c.AddRule(&nftables.Rule{Table: table(), Chain: chain(), Exprs: rules(false)[0]})
	case "another rule":
		c.FlushChain(chain())
		for _, r := range rules(true) {
			c.AddRule(&nftables.Rule{Table: table(), Chain: chain(), Exprs: r[:len(r)-1]})
		}
	case "one chain more":
		other := c.AddTable(&nftables.Table{Name: "other", Family: nftables.TableFamilyINet})
		c.AddChain(&nftables.Chain{Table: other, Name: "output", Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityRef(-150)})
	case "another untracked chain":
		other := untrackedChain()
		c.FlushChain(other)
		c.DelChain(other)
		other.Hooknum = nftables.ChainHookInput
		c.AddChain(other)
	case "untracked more":
		c.AddRule(&nftables.Rule{Table: table(), Chain: untrackedChain(), Exprs: rules(false)[0][:4]})
	case "other untracked rules":
		c.FlushChain(untrackedChain())
		for _, r := range untrackedRules(true) { // without the ports
			c.AddRule(&nftables.Rule{Table: table(), Chain: untrackedChain(), Exprs: append(r[:len(r)-5:len(r)-5], r[len(r)-1])})
		}
	case "one route more":
		return changeRoute(unix.RTM_NEWROUTE, netip.MustParsePrefix("192.0.2.0/24"))
	case "a route less":
		return changeRoute(unix.RTM_DELROUTE, Synthetic4)
	case "own address less":
		return changeAddress(unix.RTM_DELADDR, Own6)
	case "one address more":
		return changeAddress(unix.RTM_NEWADDR, netip.MustParseAddr("192.0.2.1"))
	case "a default route":
		return changeRoute(unix.RTM_NEWROUTE, netip.MustParsePrefix("0.0.0.0/0"))
	case "an IPv6 default route":
		return changeRoute(unix.RTM_NEWROUTE, netip.MustParsePrefix("::/0"))
	}
	return c.Flush()
}

func changeRoute(kind netlink.HeaderType, p netip.Prefix) error {
	m, err := routeMessage(p)
	if err != nil {
		return err
	}
	return tell(kind, m)
}

func changeAddress(kind netlink.HeaderType, a netip.Addr) error {
	m, err := addressMessage(netip.PrefixFrom(a, a.BitLen()))
	if err != nil {
		return err
	}
	return tell(kind, m)
}

func tell(kind netlink.HeaderType, m netlink.Message) error {
	c, err := dialRoutes()
	if err != nil {
		return err
	}
	defer c.Close()
	m.Header.Type = kind
	if kind == unix.RTM_DELROUTE || kind == unix.RTM_DELADDR {
		m.Header.Flags = netlink.Request | netlink.Acknowledge
	}
	_, err = c.Execute(m)
	return err
}

func TestVerifySeesChanges(t *testing.T) {
	each(t, func(t *testing.T, uid int) {
		for what, reason := range map[string]string{
			"": "", "no table": "0 chains", "no rules": "0 rules", "one rule more": "3 rules", "another rule": "rule 1", "one chain more": "3 chains",
			"another untracked chain": "lacks the chain untracked", "untracked more": "chain untracked of nf_tables has 3 rules", "other untracked rules": "rule 1 of the chain untracked",
			"one route more": "192.0.2.0/24", "a route less": "no local route to 198.18.0.0/15", "own address less": "lo does not have the address fdc0:c0c0:c0c0::1", "one address more": "192.0.2.1", "a default route": "0.0.0.0/0", "an IPv6 default route": "::/0",
		} {
			r := spawn(t, uid, job{Literals: literals, Tamper: what}, keeperCaps, nil)
			if !strings.Contains(r.Verify, reason) || (r.Verify == "") != (reason == "") {
				t.Errorf("%q: verify %q, want a reason with %q", what, r.Verify, reason)
			}
			if what == "" && r.Empty == "" {
				t.Error("the namespace passes for one without routes")
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, p := range []netip.Prefix{Synthetic4, Synthetic6, netip.MustParsePrefix("0.0.0.0/0")} {
		m, err := routeMessage(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(m.Data)
		if r, err := parseRoute(m.Data); err != nil || r != (route{p, unix.RT_TABLE_LOCAL, unix.RTN_LOCAL, loopback}) {
			f.Errorf("%s: %+v %v", p, r, err)
		}
	}
	m, err := addressMessage(netip.PrefixFrom(Own6, 128))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(m.Data)
	if a, err := parseAddress(m.Data); err != nil || a != Own6 {
		f.Errorf("%s %v", a, err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		_, _ = parseRoute(data)
		_, _ = parseAddress(data)
		if !bytes.Equal(before, data) {
			t.Error("the message was changed")
		}
	})
}

func TestNotesJSON(t *testing.T) {
	n := Notes{Mode: ModeNAT, IPv6: true, Routes: []netip.Prefix{Synthetic4, Synthetic6}}
	data, err := json.Marshal(n)
	var back Notes
	if err != nil || json.Unmarshal(data, &back) != nil || len(back.Routes) != 2 || back.Routes[1] != Synthetic6 {
		t.Errorf("%s %v: %+v", data, err, back)
	}
}
