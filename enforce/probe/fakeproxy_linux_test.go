package probe

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"coworker/enforce"
)

// fakeProxy answers like the proxy of a session, but for its faults. It speaks as little of each protocol as the battery
// does.
type fakeProxy struct {
	Egress
	denies   bool // what is not allowed is refused
	silent   bool // takes connections and says nothing
	garbage  bool
	says     string // instead of the token
	refusal  string // a field of a refusal
	address4 []byte
	address6 []byte
	resolve  bool // the denied name too
	text     bool // answers other types
	echoID   bool
}

func newFakeProxy() *fakeProxy {
	e := Egress{AllowedName: "a1b2c3.probe.internal", DeniedName: "denied-d4e5f6.probe.internal", Token: "token-0718293a",
		ProxyPort: 3128, TransparentPort: 3129, IPv6: true, Transparent: true}
	return &fakeProxy{Egress: e, denies: true, says: e.Token, echoID: true,
		address4: []byte{198, 18, 0, 7}, address6: net.ParseIP("fdc0:1::7")}
}

// start listens in the network namespace of the calling thread.
func (f *fakeProxy) start(t *testing.T) {
	t.Helper()
	for _, args := range []string{"route add local 198.18.0.0/15 dev lo", "-6 addr add fdc0:1::7/128 dev lo nodad", "-6 route add local fdc0:1::/64 dev lo"} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v %s", args, err, out)
		}
	}
	var open sync.WaitGroup
	t.Cleanup(open.Wait) // after the listeners are closed: cleanups run last in, first out
	for address, answer := range map[string]func(net.Conn){
		"127.0.0.1:3128": f.proxy, "[::1]:3128": f.proxy, "127.0.0.53:53": f.dnsStream,
		"127.0.0.1:3129": f.nothing, "198.18.0.7:443": f.token, "[fdc0:1::7]:443": f.token,
	} {
		l := listen(t, "tcp", address)
		open.Go(func() { f.serve(&open, l, answer) })
	}
	for _, address := range []string{"127.0.0.53:53", "[::1]:53"} {
		p, err := net.ListenPacket("udp", address)
		must(t, err)
		t.Cleanup(func() { p.Close() })
		open.Go(func() { f.dnsPackets(p) })
	}
}

func (f *fakeProxy) serve(open *sync.WaitGroup, l net.Listener, answer func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		open.Go(func() {
			defer c.Close()
			switch {
			case f.silent:
				io.Copy(io.Discard, c)
			case f.garbage:
				c.Write([]byte(strings.Repeat("\xff\x05\x00HTTP/9 \n", 10)))
			default:
				answer(c)
			}
		})
	}
}

func (f *fakeProxy) nothing(net.Conn) {}

func (f *fakeProxy) token(c net.Conn) { io.WriteString(c, f.says) }

func (f *fakeProxy) proxy(c net.Conn) {
	in := bufio.NewReader(c)
	first, err := in.ReadByte()
	if err != nil {
		return
	}
	if first == 5 {
		f.socks(in, c)
		return
	}
	request := ""
	for !strings.HasSuffix(request, "\r\n\r\n") {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		request += line
	}
	if f.denies && !strings.HasPrefix(request, "ONNECT "+f.AllowedName+":443 ") {
		io.WriteString(c, "HTTP/1.1 403 Forbidden\r\nX: "+f.refusal+"\r\n\r\n")
		return
	}
	io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
	f.token(c)
}

func (f *fakeProxy) socks(in io.Reader, c net.Conn) {
	head := make([]byte, 2)
	io.ReadFull(in, head)
	c.Write([]byte{5, 0})
	request := make([]byte, 5)
	io.ReadFull(in, request)
	name := make([]byte, int(request[4])+2)
	io.ReadFull(in, name)
	if f.denies && string(name[:len(name)-2]) != f.AllowedName {
		c.Write([]byte{5, 2, 0, 1, 0, 0, 0, 0, 0, 0})
		return
	}
	c.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
	f.token(c)
}

func (f *fakeProxy) dnsPackets(p net.PacketConn) {
	buf := make([]byte, 2000)
	for {
		n, from, err := p.ReadFrom(buf)
		if err != nil {
			return
		}
		switch {
		case f.silent:
		case f.garbage:
			p.WriteTo([]byte(strings.Repeat("\x80garbage", 8)), from)
		default:
			p.WriteTo(f.answer(buf[:n]), from)
		}
	}
}

func (f *fakeProxy) dnsStream(c net.Conn) {
	size := make([]byte, 2)
	io.ReadFull(c, size)
	q := make([]byte, binary.BigEndian.Uint16(size))
	io.ReadFull(c, q)
	a := f.answer(q)
	c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(a))), a...))
}

func (f *fakeProxy) answer(q []byte) []byte {
	a := append([]byte{}, q...)
	a[2] |= 0x80
	if !f.echoID {
		a[0]++
	}
	name := strings.NewReplacer("\x06", ".", "\x05", ".", "\x08", ".", "\x0d", ".").Replace(string(q[13 : len(q)-5]))
	if name != f.AllowedName && !f.resolve {
		a[3] = nxDomain
		return a
	}
	kind := binary.BigEndian.Uint16(q[len(q)-4:])
	value := map[uint16][]byte{typeA: f.address4, typeAAAA: f.address6}[kind]
	if kind == typeTXT && f.text {
		value = []byte("\x04text")
	}
	if value == nil {
		return a
	}
	a[7] = 1
	a = binary.BigEndian.AppendUint16(append(a, 0xc0, headerSize), kind)
	a = append(a, 0, classInternet, 0, 0, 0, 1, 0, byte(len(value)))
	return append(a, value...)
}

// wants lists what each conversation must show against a proxy without faults.
func wants(f *fakeProxy) map[string]enforce.Outcome {
	all := map[string]enforce.Outcome{}
	for _, c := range conversations(f.Egress, 1, found{}) {
		all[c.name] = c.want
	}
	return all
}
