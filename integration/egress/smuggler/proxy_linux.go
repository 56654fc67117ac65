package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// answer is what a proxy said: its status and the connection behind it.
type answer struct {
	conn   net.Conn
	in     *bufio.Reader
	status int
}

// dialProxy connects to the session's proxy.
func dialProxy(t *target) (net.Conn, error) {
	c, err := net.DialTimeout("tcp", t.Proxy, patience)
	if err != nil {
		return nil, err
	}
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// request writes bytes to the proxy and reads the head of one answer. The caller closes the connection.
func request(t *target, text string) (*answer, error) {
	c, err := dialProxy(t)
	if err != nil {
		return nil, err
	}
	// A refusal may come while a long request is still being written.
	go io.WriteString(c, text)
	a := &answer{conn: c, in: bufio.NewReader(c)}
	if err := a.head(); err != nil {
		c.Close()
		return nil, err
	}
	return a, nil
}

// head reads a status line and fields.
func (a *answer) head() error {
	line, err := a.in.ReadString('\n')
	if err != nil {
		return err
	}
	fields := strings.Fields(line)
	if len(fields) < 2 || !strings.HasPrefix(fields[0], "HTTP/") {
		return fmt.Errorf("the proxy said %q", line)
	}
	if a.status, err = strconv.Atoi(fields[1]); err != nil {
		return err
	}
	for line != "\r\n" && line != "\n" {
		if line, err = a.in.ReadString('\n'); err != nil {
			return err
		}
	}
	return nil
}

// wanted says whether an answer is more than a refusal.
func (a *answer) wanted() error {
	if a.status >= 400 {
		return fmt.Errorf("the proxy refused with %d", a.status)
	}
	return nil
}

// tunnel asks for a tunnel to an authority and says the marker in it.
func tunnel(t *target, authority, mark string) error {
	a, err := request(t, "CONNECT "+authority+" HTTP/1.1\r\nHost: "+authority+"\r\nX-Word: "+mark+"\r\n\r\n")
	if err != nil {
		return err
	}
	defer a.conn.Close()
	if err := a.wanted(); err != nil {
		return err
	}
	_, err = io.WriteString(a.conn, mark)
	return err
}

// connects ask for tunnels to what no rule allows.
func connects() []attempt {
	to := func(name, authority string) attempt {
		return attempt{"connect-" + name, func(t *target, mark string) error {
			host, port, _ := strings.Cut(authority, "#") // HOST#LISTENER takes the port of a listener
			if port != "" {
				_, number, err := net.SplitHostPort(t.Net[port])
				if err != nil {
					return err
				}
				host += ":" + number
			}
			return tunnel(t, strings.ReplaceAll(host, "WORD", mark), mark)
		}}
	}
	return []attempt{
		to("denied", "WORD.denied.test:443"), to("literal-of-allowed", "203.0.113.10:443"), to("literal", "198.51.100.9:443"),
		to("metadata", "169.254.169.254:80"), to("metadata-name", "metadata.google.internal:80"), to("metadata6", "[fd00:ec2::254]:80"),
		to("loopback4", "127.0.0.1#loopback4"), to("loopback6", "[::1]#loopback6"), to("loopback-second", "127.0.0.2#loopback-second"),
		to("localhost", "localhost#loopback4"), to("localhost-under", "WORD.localhost#loopback4"), to("host", "203.0.113.1#host4"),
		to("host-name", "host.coworker.internal#loopback4"), to("any4", "0.0.0.0#loopback4"), to("any6", "[::]#loopback6"), to("private", "10.0.0.9:443"),
		to("itself", "127.0.0.1:3128"), to("redirect-port", "127.0.0.1:3129"), to("resolver", "127.0.0.53:53"),
		to("other-port", "ok.test:22"), to("port-zero", "ok.test:0"), to("port-overflow", "ok.test:65979"), to("port-signed", "ok.test:+443"),
		to("port-missing", "ok.test"), to("other-session", "other.test:443"), to("probe-name", "WORD.probe.internal:443"),
		to("doh", "dns.test:443"), to("doh-literal", "8.8.8.8:443"), to("mail", "ok.test:25"), to("link-local", "[fe80::1%25eth0]:443"),
	}
}

// oddTargets spell a place so that a check and a dialler might read it differently.
func oddTargets() []attempt {
	var all []attempt
	for _, o := range [][2]string{
		{"decimal", "2130706433:443"}, {"hexadecimal", "0x7f000001:443"}, {"octal", "0177.0.0.1:443"}, {"short", "127.1:443"},
		{"mapped", "[::ffff:127.0.0.1]:443"}, {"mapped-hex", "[::ffff:7f00:1]:443"}, {"nat64", "[64:ff9b::7f00:1]:443"}, {"6to4", "[2002:7f00:1::]:443"},
		{"compatible", "[::127.0.0.1]:443"}, {"user", "ok.test@WORD.denied.test:443"}, {"user-and-port", "ok.test:443@denied.test:443"},
		{"nul", "ok.test\x00.denied.test:443"}, {"percent", "ok%2etest:443"}, {"percent-nul", "denied.test%00.ok.test:443"}, {"beside", "notok.test:443"},
		{"before", "ok.test.denied.test:443"}, {"under", "WORD.ok.test:443"}, {"wildcard", "*.test:443"}, {"star", "*:443"},
		{"full-width", "denied．test:443"}, {"ideographic", "denied。test:443"}, {"backslash", "denied.test\\.ok.test:443"}, {"slash", "denied.test/ok.test:443"},
		{"hash", "denied.test#ok.test:443"}, {"two-dots", "ok.test..:443"}, {"leading-dot", ".ok.test:443"}, {"space", "ok.test .denied.test:443"},
		{"line", "ok.test:443\r\nX: denied.test"}, {"long", strings.Repeat("a.", 200) + "test:443"}, {"label", strings.Repeat("a", 64) + ".test:443"},
		{"empty", ":443"}, {"brackets", "[ok.test]:443"}, {"two-ports", "ok.test:443:22"},
	} {
		all = append(all, attempt{"odd-" + o[0], func(t *target, mark string) error { return tunnel(t, strings.ReplaceAll(o[1], "WORD", mark), mark) }})
	}
	return all
}

// plainRequests ask for pages in clear text.
func plainRequests() []attempt {
	get := func(name, text string) attempt {
		return attempt{"http-" + name, func(t *target, mark string) error {
			a, err := request(t, strings.ReplaceAll(text, "WORD", mark))
			if err != nil {
				return err
			}
			defer a.conn.Close()
			return a.wanted()
		}}
	}
	page := func(url, host string) string {
		return "GET " + url + " HTTP/1.1\r\nHost: " + host + "\r\nX-Word: WORD\r\n\r\n"
	}
	return []attempt{
		get("denied", page("http://WORD.denied.test/WORD", "WORD.denied.test")), get("literal", page("http://198.51.100.9/", "198.51.100.9")),
		get("loopback", page("http://127.0.0.1/", "127.0.0.1")), get("metadata", page("http://169.254.169.254/latest/meta-data/", "169.254.169.254")),
		get("other-port", page("http://plain.test:8080/", "plain.test:8080")), get("https", page("https://plain.test/", "plain.test")),
		get("ftp", page("ftp://plain.test/", "plain.test")), get("file", page("file:///etc/passwd", "plain.test")),
		get("host-differs", page("http://plain.test/", "WORD.denied.test")), get("host-differs-port", page("http://plain.test/", "plain.test:8080")),
		get("two-hosts", "GET http://plain.test/ HTTP/1.1\r\nHost: plain.test\r\nHost: WORD.denied.test\r\n\r\n"),
		get("no-host", "GET http://plain.test/WORD HTTP/1.1\r\n\r\n"), get("origin-form", page("/WORD", "denied.test")),
		get("asterisk", "OPTIONS * HTTP/1.1\r\nHost: denied.test\r\nX: WORD\r\n\r\n"), get("user", page("http://plain.test@denied.test/WORD", "denied.test")),
		get("backslash", page("http://denied.test\\@plain.test/WORD", "plain.test")), get("old", "GET http://denied.test/WORD HTTP/1.0\r\n\r\n"),
		get("h2c", "GET http://plain.test/WORD HTTP/1.1\r\nHost: plain.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"),
		get("preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nWORD"),
		get("long-header", "GET http://denied.test/ HTTP/1.1\r\nHost: denied.test\r\nX: WORD"+strings.Repeat("a", 10<<20)+"\r\n\r\n"),
		get("long-line", "GET http://denied.test/WORD"+strings.Repeat("a", 1<<20)+" HTTP/1.1\r\nHost: denied.test\r\n\r\n"),
		{"http-redirect", followRedirect},
	}
}

// followRedirect goes from an allowed page to where it sends its readers, as clients do.
func followRedirect(t *target, mark string) error {
	first, err := request(t, "GET http://plain.test/redirect HTTP/1.1\r\nHost: plain.test\r\n\r\n")
	if err != nil {
		return err
	}
	defer first.conn.Close()
	if first.status != 302 {
		return fmt.Errorf("the allowed page answered with %d", first.status)
	}
	second, err := request(t, "GET http://denied.test/"+mark+" HTTP/1.1\r\nHost: denied.test\r\n\r\n")
	if err != nil {
		return err
	}
	defer second.conn.Close()
	return second.wanted()
}

// smuggled hide a second request in the first, which goes to an allowed page and carries no marker of its own.
func smuggled() []attempt {
	hidden := "GET http://denied.test/WORD HTTP/1.1\r\nHost: WORD.denied.test\r\n\r\n"
	post := func(name, fields, body string) attempt {
		return attempt{"smuggle-" + name, func(t *target, mark string) error {
			text := "POST http://plain.test/ HTTP/1.1\r\nHost: plain.test\r\n" + fields + "\r\n" + body
			a, err := request(t, strings.ReplaceAll(text, "WORD", mark))
			if err != nil {
				return err
			}
			defer a.conn.Close()
			return a.wanted()
		}}
	}
	chunked := "Transfer-Encoding: chunked\r\n"
	return []attempt{
		post("length-and-chunks", "Content-Length: 5\r\n"+chunked, "0\r\n\r\n"+hidden), post("chunks-and-length", chunked+"Content-Length: 5\r\n", "0\r\n\r\n"+hidden),
		post("two-lengths", "Content-Length: 0\r\nContent-Length: 90\r\n", hidden), post("length-list", "Content-Length: 0, 90\r\n", hidden),
		post("length-signed", "Content-Length: +0\r\n", hidden), post("length-hex", "Content-Length: 0x0\r\n", hidden),
		post("coding-unknown", "Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"+hidden), post("coding-list", "Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n"+hidden),
		post("coding-space", "Transfer-Encoding : chunked\r\n", "0\r\n\r\n"+hidden), post("folded", "X: a\r\n Transfer-Encoding: chunked\r\n", "0\r\n\r\n"+hidden),
		post("bare-line-feed", "X: a\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"+hidden), post("nul", "X: a\x00b\r\nContent-Length: 0\r\n", hidden),
		post("chunk-size", chunked, "0x5\r\nhello\r\n0\r\n\r\n"+hidden), post("chunk-size-overflow", chunked, "10000000000000000\r\n"+hidden),
		{"smuggle-second-request", secondRequest}, {"smuggle-after-refusal", afterRefusal}, {"smuggle-tunnel-in-tunnel", tunnelInTunnel},
	}
}

// secondRequest asks for a denied page on the connection on which an allowed one was asked for.
func secondRequest(t *target, mark string) error {
	a, err := request(t, "GET http://plain.test/ HTTP/1.1\r\nHost: plain.test\r\n\r\nGET http://denied.test/"+mark+" HTTP/1.1\r\nHost: denied.test\r\n\r\n")
	if err != nil {
		return err
	}
	defer a.conn.Close()
	for range 4096 {
		line, err := a.in.ReadString('\n')
		if err != nil {
			return err
		}
		if i := strings.Index(line, "HTTP/1.1 "); i >= 0 {
			if line[i+9] == '4' {
				return fmt.Errorf("the second request: %q", line[i:])
			}
			return nil
		}
	}
	return errors.New("no second answer")
}

// afterRefusal sends on after a refusal, as if the tunnel were there.
func afterRefusal(t *target, mark string) error {
	a, err := request(t, "CONNECT denied.test:443 HTTP/1.1\r\nHost: denied.test:443\r\n\r\n"+mark)
	if err != nil {
		return err
	}
	defer a.conn.Close()
	if _, err := io.WriteString(a.conn, mark); err != nil {
		return err
	}
	return a.wanted()
}

func tunnelInTunnel(t *target, mark string) error {
	a, err := request(t, "CONNECT ok.test:443 HTTP/1.1\r\nHost: ok.test:443\r\n\r\n")
	if err != nil {
		return err
	}
	defer a.conn.Close()
	if err := a.wanted(); err != nil {
		return err
	}
	if _, err := io.WriteString(a.conn, "CONNECT denied.test:443 HTTP/1.1\r\nHost: denied.test:443\r\nX: "+mark+"\r\n\r\n"); err != nil {
		return err
	}
	return (&answer{conn: a.conn, in: a.in}).head()
}

// allowed are the ways that rules open. They show that the capture sees what leaves.
func allowed() []attempt {
	return []attempt{
		{"allowed-tunnel", func(t *target, mark string) error { return tunnel(t, "raw.test:7000", mark) }},
		{"allowed-page", func(t *target, mark string) error {
			a, err := request(t, "GET http://plain.test/"+mark+" HTTP/1.1\r\nHost: plain.test\r\n\r\n")
			if err != nil {
				return err
			}
			defer a.conn.Close()
			return a.wanted()
		}},
		// A rule with a star lets the words below it go to the name servers of that domain, as soon as one is connected to.
		{"allowed-name-under-star", func(t *target, mark string) error { return tunnel(t, mark+".wild.test:7000", "") }},
		{"allowed-literal", func(_ *target, mark string) error { return answered("203.0.113.16:7000", mark) }},
		{"allowed-redirected", func(t *target, mark string) error { return sayTo(t, "raw.test", "7000", mark) }},
	}
}
