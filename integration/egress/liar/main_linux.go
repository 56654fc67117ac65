// Liar takes the place of coworker-proxy in a build of the tests of integration/egress, which alone may build it. It speaks
// the protocol of a proxy just well enough to be admitted, or tells one lie, which a session's probes must notice: the
// first rule of the session names the lie, as in `--allow open.lie.test`. What makes a real proxy does not belong here.
package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/miekg/dns"

	"coworker/netproxy/control"
	"coworker/netproxy/transparent"
)

// The addresses that it gives to the name of the probe.
const (
	own4 = "198.18.0.9"
	own6 = "fdc0:c0c0:c0c0::9"
)

// liar is the proxy of one session.
type liar struct {
	lie   string // none, open, token, public, resolve, text, silent, redirect
	probe control.Probe
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "liar:", err)
		os.Exit(1)
	}
}

func run() error {
	c, err := net.FileConn(os.NewFile(control.FDControl, "control"))
	if err != nil {
		return err
	}
	conn := control.NewConn(c, control.MaxConfig)
	m, err := conn.Receive()
	if err != nil {
		return err
	}
	if m.Config == nil || len(m.Config.Allow) == 0 {
		return fmt.Errorf("no rule names the lie")
	}
	l := &liar{probe: m.Config.Probe}
	l.lie, _, _ = strings.Cut(m.Config.Allow[0], ".")
	if l.lie == "exit" {
		return fmt.Errorf("this proxy ends before it is ready")
	}
	last := control.FDNameTCP4
	if m.Config.IPv6 {
		last = control.FDNameTCP6
	}
	for fd := control.FDProxy4; fd <= last; fd++ {
		if err := l.serve(fd); err != nil {
			return fmt.Errorf("descriptor %d: %w", fd, err)
		}
	}
	if err := conn.Send(control.Message{Ready: &struct{}{}}); err != nil {
		return err
	}
	for err == nil {
		_, err = conn.Receive()
	}
	return nil
}

// serve starts what belongs to a descriptor. It ends with the process.
func (l *liar) serve(fd int) error {
	f := os.NewFile(uintptr(fd), "socket")
	if fd == control.FDNameUDP4 || fd == control.FDNameUDP6 {
		p, err := net.FilePacketConn(f)
		if err != nil {
			return err
		}
		go (&dns.Server{PacketConn: p, Handler: dns.HandlerFunc(l.name)}).ActivateAndServe()
		return nil
	}
	listener, err := net.FileListener(f)
	if err != nil {
		return err
	}
	switch fd {
	case control.FDNameTCP4, control.FDNameTCP6:
		go (&dns.Server{Listener: listener, Handler: dns.HandlerFunc(l.name)}).ActivateAndServe()
	case control.FDTransparent4, control.FDTransparent6:
		go accept(listener, l.redirected)
	default:
		go accept(listener, l.asked)
	}
	return nil
}

func accept(l net.Listener, serve func(*net.TCPConn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			serve(c.(*net.TCPConn))
		}()
	}
}

// redirected answers on the address of the probe's name only, unless that is the lie.
func (l *liar) redirected(c *net.TCPConn) {
	to, err := transparent.OriginalDestination(c)
	if l.silent(c) {
		return
	}
	if l.lie == "redirect" || err == nil && to.Port() == 443 && (to.Addr() == netip.MustParseAddr(own4) || to.Addr() == netip.MustParseAddr(own6)) {
		io.WriteString(c, l.token())
	}
}

func (l *liar) token() string {
	if l.lie == "token" {
		return "0" + l.probe.Token
	}
	return l.probe.Token
}

// silent holds a connection without a word, if that is the lie.
func (l *liar) silent(c net.Conn) bool {
	if l.lie == "silent" {
		io.Copy(io.Discard, c)
	}
	return l.lie == "silent"
}

// asked serves one request by CONNECT or SOCKS5.
func (l *liar) asked(c *net.TCPConn) {
	if l.silent(c) {
		return
	}
	in := bufio.NewReader(c)
	first, err := in.Peek(1)
	if err != nil {
		return
	}
	if first[0] == 5 {
		l.socks(in, c)
		return
	}
	head := ""
	for !strings.HasSuffix(head, "\r\n\r\n") {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		head += line
	}
	if l.lie != "open" && !strings.HasPrefix(head, "CONNECT "+l.probe.Name+":443 ") {
		io.WriteString(c, "HTTP/1.1 403 no\r\n\r\n")
		return
	}
	io.WriteString(c, "HTTP/1.1 200 yes\r\n\r\n"+l.token())
}

func (l *liar) socks(in io.Reader, c net.Conn) {
	head := make([]byte, 8) // greeting with one method, and the request up to the length of the name
	if _, err := io.ReadFull(in, head); err != nil {
		return
	}
	name := make([]byte, int(head[7])+2)
	if _, err := io.ReadFull(in, name); err != nil {
		return
	}
	reply, token := byte(2), ""
	if l.lie == "open" || string(name[:len(name)-2]) == l.probe.Name {
		reply, token = 0, l.token()
	}
	c.Write(append([]byte{5, 0, 5, reply, 0, 1, 0, 0, 0, 0, 0, 0}, token...))
}

// name is the resolver.
func (l *liar) name(w dns.ResponseWriter, q *dns.Msg) {
	if l.lie == "silent" {
		return
	}
	m := new(dns.Msg)
	m.SetReply(q)
	one := q.Question[0]
	h := dns.RR_Header{Name: one.Name, Rrtype: one.Qtype, Class: dns.ClassINET}
	switch {
	case strings.TrimSuffix(one.Name, ".") != l.probe.Name && l.lie != "resolve":
		m.Rcode = dns.RcodeNameError
	case one.Qtype == dns.TypeA && l.lie == "public":
		m.Answer = []dns.RR{&dns.A{Hdr: h, A: net.IPv4(198, 51, 100, 9)}}
	case one.Qtype == dns.TypeA:
		m.Answer = []dns.RR{&dns.A{Hdr: h, A: net.ParseIP(own4)}}
	case one.Qtype == dns.TypeAAAA:
		m.Answer = []dns.RR{&dns.AAAA{Hdr: h, AAAA: net.ParseIP(own6)}}
	case one.Qtype == dns.TypeTXT && l.lie == "text":
		m.Answer = []dns.RR{&dns.TXT{Hdr: h, Txt: []string{"text"}}}
	}
	w.WriteMsg(m)
}
