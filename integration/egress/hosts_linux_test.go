package egress

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"coworker/integration/house/testuser"
	"coworker/integration/netns"
)

// hosts are the servers of a world, on the host and behind it.
type hosts struct {
	n       *namespaces
	targets targets
	near    map[string]*atomic.Int64 // what reached servers of the host itself, by name
	asked   sync.Map                 // names in questions to the world's name servers; true: for an address
}

// targets is what the smuggler is told; see its type target.
type targets struct {
	Run     string            `json:"run"`
	Net     map[string]string `json:"net"`
	Sockets map[string]string `json:"sockets"`
	Proxy   string            `json:"proxy"`
	Names   string            `json:"names"`
	Dir     string            `json:"dir"`
	Pid     int               `json:"pid"`
}

func newHosts(t testing.TB, n *namespaces, run string) *hosts {
	t.Helper()
	h := &hosts{n: n, near: map[string]*atomic.Int64{}, targets: targets{
		Run: run, Sockets: map[string]string{}, Proxy: "127.0.0.1:3128", Names: "127.0.0.53:53", Pid: victim(t, n),
		Net: map[string]string{"quic": "203.0.113.9:443", "metadata": "169.254.169.254:80", "dns8": "8.8.8.8:53", "dns-host": resolver + ":53",
			"dns6": "[2001:4860:4860::8888]:53", "denied4": "198.51.100.9:443", "dot": "8.8.8.8:853", "far4": "203.0.113.9:7001", "far6": "[2001:db8::9]:7001",
			"udp-far4": "203.0.113.9:7002", "udp-far6": "[2001:db8::9]:7002", "mapped": "[::ffff:203.0.113.9]:7001", "udp-mapped": "[::ffff:203.0.113.9]:7002"},
	}}
	for _, address := range []string{"203.0.113.9:7001", "[2001:db8::9]:7001", "198.51.100.9:443", "198.51.100.9:80", "169.254.169.254:80", "8.8.8.8:853", "8.8.8.8:443",
		"203.0.113.10:443", "203.0.113.10:22", "203.0.113.10:80", "203.0.113.10:25", "203.0.113.11:8080", "203.0.113.12:7000", "203.0.113.14:443",
		"203.0.113.15:7000", "203.0.113.16:7000", "203.0.113.16:22", "203.0.113.17:7000", "10.0.0.9:7000", "169.254.169.254:7000", "198.51.100.9:7000"} {
		h.serve(t, n.far, address, func(net.Conn) {})
	}
	h.serveHost(t)
	h.servePages(t)
	h.serveNames(t)
	return h
}

// victim is a process of the host. It ends with the test.
func victim(t testing.TB, n *namespaces) int {
	t.Helper()
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.onHost(cmd.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	return cmd.Process.Pid
}

// serve takes connections, reads a little and answers one byte, so that an attempt can tell that it got through.
func (h *hosts) serve(t testing.TB, ns *os.File, address string, first func(net.Conn)) string {
	t.Helper()
	var l net.Listener
	if err := netns.In(ns, func() (err error) { l, err = net.Listen("tcp", address); return err }); err != nil {
		t.Fatal(err)
	}
	h.accept(t, l, func(c net.Conn) {
		first(c)
		if n, _ := c.Read(make([]byte, 1<<16)); n > 0 {
			io.WriteString(c, "!")
		}
		io.Copy(io.Discard, c)
	})
	return l.Addr().String()
}

// accept serves until the test ends, and then closes what is still open.
func (h *hosts) accept(t testing.TB, l net.Listener, serve func(net.Conn)) {
	var running sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[c] = true
			mu.Unlock()
			running.Go(func() {
				serve(c)
				c.Close()
				mu.Lock()
				delete(open, c)
				mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		running.Wait()
	})
}

// serveHost starts the servers of the host itself. Nothing of a session may reach them.
func (h *hosts) serveHost(t testing.TB) {
	t.Helper()
	for name, address := range map[string]string{"loopback4": "127.0.0.1:0", "loopback6": "[::1]:0", "loopback-second": "127.0.0.2:0", "host4": "203.0.113.1:0", "host6": "[2001:db8::1]:0"} {
		hits := h.counter(name)
		h.targets.Net[name] = h.serve(t, h.n.host, address, func(net.Conn) { hits.Add(1) })
	}
	port := func(name string) string {
		_, p, _ := net.SplitHostPort(h.targets.Net[name])
		return p
	}
	h.targets.Net["any4"], h.targets.Net["any6"] = "0.0.0.0:"+port("loopback4"), "[::]:"+port("loopback6")
	h.targets.Net["mapped-loopback"] = "[::ffff:127.0.0.1]:" + port("loopback4")
	for name, address := range map[string]string{"udp-loopback4": "127.0.0.1:0", "udp-loopback6": "[::1]:0", "udp-host4": "203.0.113.1:0"} {
		h.receive(t, name, address)
	}
}

func (h *hosts) counter(name string) *atomic.Int64 {
	if h.near[name] == nil {
		h.near[name] = &atomic.Int64{}
	}
	return h.near[name]
}

func (h *hosts) receive(t testing.TB, name, address string) {
	t.Helper()
	var c net.PacketConn
	if err := netns.In(h.n.host, func() (err error) { c, err = net.ListenPacket("udp", address); return err }); err != nil {
		t.Fatal(err)
	}
	hits := h.counter(name)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			if _, _, err := c.ReadFrom(make([]byte, 2048)); err != nil {
				return
			}
			hits.Add(1)
		}
	})
	t.Cleanup(func() { c.Close(); running.Wait() })
	h.targets.Net[name] = c.LocalAddr().String()
}

// servePages is the site plain.test; one of its pages sends its readers to another site.
func (h *hosts) servePages(t testing.TB) {
	t.Helper()
	var l net.Listener
	if err := netns.In(h.n.far, func() (err error) { l, err = net.Listen("tcp", "203.0.113.11:80"); return err }); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://denied.test/", http.StatusFound)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "a page\n") })
	server := &http.Server{Handler: mux}
	var running sync.WaitGroup
	running.Go(func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("plain.test: %v", err)
		}
	})
	t.Cleanup(func() { server.Close(); running.Wait() })
}

// addresses are the names of the world. Everything else ends at a host that no rule allows, so that a question that leaks
// has an answer.
var addresses = map[string]string{
	"ok.test.": "203.0.113.10", "plain.test.": "203.0.113.11", "raw.test.": "203.0.113.12", "other.test.": "203.0.113.14", "dns.test.": "8.8.8.8",
}

// rebound are the answers from the second question on to names that rules allow.
var rebound = map[string]string{
	"rebind-loopback.test.": "127.0.0.1", "rebind-metadata.test.": "169.254.169.254", "rebind-private.test.": "10.0.0.9", "rebind-host.test.": "198.51.100.9",
}

// addressOf is the world's answer for a name; before says that it was asked for already.
func addressOf(name string, before bool) string {
	later, changes := rebound[name]
	switch known := addresses[name]; {
	case changes && before:
		return later
	case changes:
		return "203.0.113.15"
	case strings.HasSuffix(name, ".wild.test."):
		return addresses["raw.test."]
	case known != "":
		return known
	}
	return "198.51.100.9"
}

// serveNames is the name server of the world.
func (h *hosts) serveNames(t testing.TB) {
	t.Helper()
	answer := func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(q)
		for _, one := range q.Question {
			name := strings.ToLower(one.Name)
			if one.Qtype != dns.TypeA {
				h.asked.LoadOrStore(name, false)
				continue
			}
			before, _ := h.asked.Swap(name, true)
			m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: one.Name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: net.ParseIP(addressOf(name, before == true))})
		}
		if err := w.WriteMsg(m); err != nil && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
			t.Logf("name server: %v", err)
		}
	}
	for _, address := range []string{resolver + ":53", "8.8.8.8:53", "[2001:4860:4860::8888]:53"} {
		h.nameServer(t, address, answer)
	}
}

func (h *hosts) nameServer(t testing.TB, address string, answer dns.HandlerFunc) {
	t.Helper()
	servers := []*dns.Server{{Handler: answer}, {Handler: answer}}
	err := netns.In(h.n.far, func() (err error) {
		if servers[0].PacketConn, err = net.ListenPacket("udp", address); err != nil {
			return err
		}
		servers[1].Listener, err = net.Listen("tcp", address)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	for _, s := range servers {
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		running.Go(func() {
			if err := s.ActivateAndServe(); err != nil {
				t.Errorf("name server %s: %v", address, err)
			}
		})
		<-started
	}
	t.Cleanup(func() {
		for _, s := range servers {
			if err := s.Shutdown(); err != nil {
				t.Errorf("name server %s: %v", address, err)
			}
		}
		running.Wait()
	})
}

// addSockets makes the Unix sockets of the host: in the workspace, beside it, and without a file. Some give away a socket
// of the host's network to whoever connects.
func (h *hosts) addSockets(t testing.TB, u testuser.User, work, outside string) {
	t.Helper()
	abstract := "@coworker-egress-" + filepath.Base(filepath.Dir(outside))
	for name, where := range map[string]string{"work": work + "/d.sock", "outside": outside + "/d.sock", "abstract": abstract,
		"passer": work + "/p.sock", "passer-abstract": abstract + "-passer"} {
		var l *net.UnixListener
		var give *net.UDPConn
		err := netns.In(h.n.host, func() (err error) {
			if l, err = net.ListenUnix("unix", &net.UnixAddr{Name: where}); err != nil {
				return err
			}
			give, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(h.targets.Net["udp-far4"])))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(where, "@") {
			if err := os.Chown(where, u.UID, u.GID); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() { give.Close() })
		h.targets.Sockets[name] = where
		hits := h.counter(name)
		h.accept(t, l, func(c net.Conn) {
			hits.Add(1)
			if err := handOut(c.(*net.UnixConn), give); err != nil && !errors.Is(err, unix.EPIPE) {
				t.Logf("%s: %v", name, err)
			}
			data, _ := io.ReadAll(c)
			give.Write(data) // as a daemon would that passes messages on
		})
	}
}

// handOut sends a descriptor to whoever is at the other end.
func handOut(c *net.UnixConn, give *net.UDPConn) error {
	raw, err := give.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Control(func(fd uintptr) { _, _, sent = c.WriteMsgUnix([]byte("x"), unix.UnixRights(int(fd)), nil) })
	return errors.Join(err, sent)
}

// reached lists the servers of the host that something came to.
func (h *hosts) reached() []string {
	var all []string
	for name, hits := range h.near {
		if n := hits.Load(); n > 0 {
			all = append(all, fmt.Sprintf("%s (%s times)", name, strconv.FormatInt(n, 10)))
		}
	}
	return all
}
