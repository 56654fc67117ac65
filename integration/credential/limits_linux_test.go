package credential

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// rawClient sends octets over TLS to a host, as argv says: HOST, SNI ("-": none), ALPN ("-": none), then the octets with
// escapes. It prints what came back.
const rawClient = `import socket, ssl, sys
host, sni, alpn, text = sys.argv[1:5]
c = ssl.create_default_context()
c.check_hostname = False
if alpn != '-': c.set_alpn_protocols([alpn])
try:
    s = c.wrap_socket(socket.create_connection((host, 443), timeout=10), server_hostname=None if sni == '-' else sni)
    s.sendall(text.encode().decode('unicode_escape').encode('latin-1'))
    while True:
        b = s.recv(65536)
        if not b: break
        sys.stdout.write(b.decode('latin-1'))
except Exception as e:
    print('failed:', e)
`

// attempt is one command line inside, in a session with others.
type attempt struct {
	name  string
	shell string
	says  string // "" wants no particular words
	// arrives is the Authorization that the server gets: "ours", "none", or "" if nothing may arrive at all.
	arrives string
	host    string // that it arrives at; "": ok.test:443
}

// try runs attempts, each in a session, and returns everything that was shown.
func (p *person) try(t *testing.T, s secret, flags []string, list []attempt) {
	p.write(t, filepath.Join(p.work, "raw.py"), rawClient)
	for _, a := range list {
		t.Run(a.name, func(t *testing.T) {
			p.take()
			e := p.exec(t, flags, "sh", "-c", a.shell)
			if !strings.Contains(e.out+e.err, a.says) {
				t.Errorf("does not say %q: %s", a.says, e)
			}
			p.wantNone(t, s, "what was shown", []byte(e.out+e.err+e.rawText))
			p.judge(t, a, p.take())
		})
	}
}

func (p *person) judge(t *testing.T, a attempt, got []seen) {
	t.Helper()
	host := a.host
	if host == "" {
		host = "ok.test:443"
	}
	p.mu.Lock()
	ours := p.wanted["ok.test"]
	p.mu.Unlock()
	here := to(host, got)
	switch {
	case a.arrives == "" && len(here) > 0:
		t.Errorf("%d requests arrived: %+v", len(here), here)
	case a.arrives != "" && len(here) == 0:
		t.Error("nothing arrived")
	}
	for _, r := range got {
		values := r.header.Values("Authorization")
		switch {
		case r.host == host && a.arrives == "ours" && (len(values) != 1 || values[0] != ours):
			t.Errorf("%s %s%s got %q, want the credential once", r.method, r.host, r.uri, values)
		case (r.host != "ok.test:443" || a.arrives == "none" && r.host == host) && slices.Contains(values, ours):
			t.Errorf("%s %s%s got the credential", r.method, r.host, r.uri)
		}
	}
}

func raw(host, sni, alpn, text string) string {
	return fmt.Sprintf("/usr/bin/python3 raw.py %s %s %s '%s'", host, sni, alpn, text)
}

const curl = "curl -sS -i --max-time 20 "

const webSocketFields = "-H 'Connection: Upgrade' -H 'Upgrade: websocket' -H 'Sec-WebSocket-Version: 13' -H 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==' "

// TestCredentialStays: it goes to its host over TLS and nowhere else, whatever the client asks for.
func TestCredentialStays(t *testing.T) {
	eachUser(t, func(t *testing.T, p *person) {
		l := p.lend(t)
		get := `GET /x HTTP/1.1\r\nHost: ok.test\r\nConnection: close\r\n`
		big := sha256.Sum256(make([]byte, 50<<20))
		p.try(t, l.all(), allow("ok.test", "ok.test:80", "other.test", "other.test:80"), []attempt{
			{"its host", curl + "https://ok.test/x", "welcome", "ours", ""},
			{"another host", curl + "https://other.test/x", "welcome", "none", "other.test:443"},
			{"clear text", curl + "http://ok.test/x", "welcome", "none", "ok.test:80"},
			{"clear text to the port of TLS", curl + "http://ok.test:443/x", "", "", ""},
			{"redirect to another host", curl + "-L 'https://ok.test/redirect?to=https://other.test/landing'", "welcome GET /landing", "none", "other.test:443"},
			{"redirect to clear text", curl + "-L 'https://ok.test/redirect?to=http://ok.test/landing'", "welcome GET /landing", "none", "ok.test:80"},
			{"another Host", curl + "-H 'Host: other.test' https://ok.test/x", "HTTP/1.1 421", "", ""},
			{"another server name", raw("ok.test", "other.test", "-", get+`\r\n`), "failed:", "", ""},
			{"no server name", raw("ok.test", "-", "-", get+`\r\n`), "failed:", "", ""},
			{"the name at another host", raw("other.test", "ok.test", "-", get+`\r\n`), "failed:", "", ""},
			{"absolute form of another host", raw("ok.test", "ok.test", "-", `GET https://other.test/x HTTP/1.1\r\nHost: other.test\r\n\r\n`), "HTTP/1.1 40", "", ""},
			{"CONNECT inside", raw("ok.test", "ok.test", "-", `CONNECT other.test:443 HTTP/1.1\r\nHost: other.test:443\r\n\r\n`), "HTTP/1.1 40", "", ""},
			{"its own Authorization", curl + "-H 'Authorization: Bearer mine' https://ok.test/x", "welcome", "ours", ""},
			{"in other letters", curl + "-H 'aUTHORIZATION: Bearer mine' -H 'authorization: Basic bWluZQ==' https://ok.test/x", "welcome", "ours", ""},
			{"as user and password", curl + "https://me:mine@ok.test/x", "welcome", "ours", ""},
			{"with a space before the colon", raw("ok.test", "ok.test", "-", get+`Authorization : Bearer mine\r\n\r\n`), "HTTP/1.1 400", "", ""},
			{"on a folded line", raw("ok.test", "ok.test", "-", get+`X: y\r\n Authorization: Bearer mine\r\n\r\n`), "HTTP/1.1 400", "", ""},
			{"an upload of 50 MiB in chunks", "head -c 52428800 /dev/zero | " + curl + "-T - -H 'Transfer-Encoding: chunked' https://ok.test/upload", "52428800 " + hex.EncodeToString(big[:]), "ours", ""},
			{"100-continue", "head -c 100000 /dev/zero | " + curl + "-H 'Expect: 100-continue' --data-binary @- https://ok.test/upload", "100000 ", "ours", ""},
			{"an upload that is refused early", "head -c 20000000 /dev/zero | " + curl + "-T - https://ok.test/toobig", "HTTP/1.1 413", "ours", ""},
			{"many at once", "for i in $(seq 20); do " + curl + "https://ok.test/$i & done; wait", "welcome GET /20", "ours", ""},
			{"an answer octet by octet", curl + "https://ok.test/dribble", "you sent Bearer ****", "ours", ""},
			{"an answer that does not end", "/usr/bin/python3 -c \"import urllib.request; print(urllib.request.urlopen('https://ok.test/stream', timeout=20).readline())\"", "data: first", "ours", ""},
			{"a compressed answer nobody asked for", curl + "--compressed https://ok.test/gzip", "coworker: the answer has the coding \"gzip\", in which a credential could not be found", "ours", ""},
			{"web socket", "curl -sS -i -N --http1.1 --max-time 2 " + webSocketFields + "https://ok.test/socket --output -", "you sent Bearer ***", "ours", ""},
			{"HTTP/2 only", raw("ok.test", "ok.test", "h2", `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n`), `the client speaks only "h2"; where a credential is added`, "", ""},
			{"HTTP/2 without asking", raw("ok.test", "ok.test", "-", `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n`), "HTTP/1.1 ", "", ""},
			{"HTTP/2 prior knowledge", curl + "--http2-prior-knowledge https://ok.test/x", "welcome", "ours", ""},
		})
	})
}

// TestSmuggling sends requests in opened TLS that two parsers would part in two ways. None reaches the server.
func TestSmuggling(t *testing.T) {
	eachUser(t, func(t *testing.T, p *person) {
		l := p.lend(t)
		head := `POST /x HTTP/1.1\r\nHost: ok.test\r\n`
		second := `GET /smuggled HTTP/1.1\r\nHost: other.test\r\n\r\n`
		var list []attempt
		for name, text := range map[string]string{
			"length and chunks":     head + `Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n` + second,
			"two lengths":           head + `Content-Length: 0\r\nContent-Length: 44\r\n\r\n` + second,
			"a list of lengths":     head + `Content-Length: 0, 44\r\n\r\n` + second,
			"a signed length":       head + `Content-Length: +0\r\n\r\n` + second,
			"another coding":        head + `Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n` + second,
			"chunked twice":         head + `Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n` + second,
			"a coding in disguise":  head + `Transfer-Encoding: xchunked\r\n\r\n` + second,
			"a vertical tab":        head + `Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n` + second,
			"bare line feeds":       `GET /x HTTP/1.1\nHost: ok.test\n\n` + second,
			"a bare return":         `GET /x HTTP/1.1\r\nHost: ok.test\r\nX: a\rTransfer-Encoding: chunked\r\n\r\n` + second,
			"NUL in a field":        head + `X: a\x00b\r\n\r\n` + second,
			"two hosts":             `GET /x HTTP/1.1\r\nHost: ok.test\r\nHost: other.test\r\n\r\n`,
			"no host":               `GET /x HTTP/1.1\r\n\r\n` + second,
			"version 1.2":           `GET /x HTTP/1.2\r\nHost: ok.test\r\n\r\n`,
			"version 0.9":           `GET /x\r\n` + second,
			"space before the path": `GET  /x HTTP/1.1\r\nHost: ok.test\r\n\r\n`,
		} {
			list = append(list, attempt{name, raw("ok.test", "ok.test", "-", text), "HTTP/1.1 ", "", ""})
		}
		// These have a first request that is good: it arrives, and what follows does not.
		for name, text := range map[string]string{
			"pipelined to another host": `GET /x HTTP/1.1\r\nHost: ok.test\r\n\r\n` + second,
			"behind a body":             head + `Content-Length: 2\r\n\r\nab` + second,
			"behind chunks":             head + `Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n` + second,
		} {
			list = append(list, attempt{name, raw("ok.test", "ok.test", "-", text), "HTTP/1.1 421", "ours", ""})
		}
		p.try(t, l.all(), allow("ok.test", "other.test"), list)
	})
}

// TestOriginsThatAreNotGood: a credential waits for a certificate that is good for its host, and a person is told why it
// does not leave.
func TestOriginsThatAreNotGood(t *testing.T) {
	eachUser(t, func(t *testing.T, p *person) {
		l := newLent()
		p.must(t, l.api.value, "secrets", "set", "wrong", "--host", "wrong.test")
		p.must(t, l.api.value, "secrets", "set", "cert", "--host", "cert.test")
		p.want("ok.test", "Bearer "+l.api.value)
		p.try(t, l.all(), allow("wrong.test", "cert.test"), []attempt{
			{"a certificate for another name", curl + "https://wrong.test/x", "certificate is valid for ok.test, not wrong.test", "", "wrong.test:443"},
			{"a certificate of the client is wanted", curl + "https://cert.test/x", "certificate required", "", "cert.test:443"},
		})
	})
}
