package walls

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"coworker/integration/netns"
)

// network is a network namespace of the test with addresses that look like the outside: documentation ranges and the
// cloud metadata address, on one end of a veth pair. nil is the namespace of the machine.
type network struct{ ns *os.File }

// newNetwork makes one. Without root there is none, and the far addresses are other ones of the loopback.
func newNetwork(t testing.TB) *network {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	n := &network{}
	var err error
	if n.ns, err = netns.New(); err == nil {
		err = n.do(func() error {
			return netns.IP("link set lo up", "link add near type veth peer name far", "link set near up", "link set far up",
				"address add 203.0.113.1/24 dev near", "address add 169.254.169.254/32 dev near", "address add 2001:db8::1/64 dev near nodad", "route add default dev near")
		})
	}
	if err != nil {
		t.Fatalf("network namespace: %v", err)
	}
	t.Cleanup(func() { n.ns.Close() })
	return n
}

// do runs f inside the namespace: sockets and processes that it makes belong there.
func (n *network) do(f func() error) error {
	if n == nil {
		return f()
	}
	return netns.In(n.ns, f)
}

// hosts are the listeners and processes outside that attempts may reach, with a count of what reached them.
type hosts struct {
	net     *network
	targets targets
	hits    map[string]*atomic.Int64
	victim  *exec.Cmd
}

// targets is what the attacker is told; see its type target.
type targets struct {
	Work    string            `json:"work"`
	Outside string            `json:"outside"`
	Home    string            `json:"home"`
	Net     map[string]string `json:"net"`
	Sockets map[string]string `json:"sockets"`
	Pid     int               `json:"pid"`
	Shm     int               `json:"shm"`
	Queue   string            `json:"queue"`
	Scratch string            `json:"scratch"`
}

// newHosts starts them. Path sockets lie in w and belong to its user.
func newHosts(t testing.TB, w *world) *hosts {
	t.Helper()
	h := &hosts{net: newNetwork(t), hits: map[string]*atomic.Int64{}, targets: targets{Net: map[string]string{}, Sockets: map[string]string{}}}
	far4, far6, metadata := "203.0.113.1", "[2001:db8::1]", "169.254.169.254"
	if h.net == nil {
		far4, far6, metadata = "127.0.0.2", "[::1]", "127.0.0.3"
	}
	for name, address := range map[string]string{"loopback4": "127.0.0.1:0", "loopback6": "[::1]:0", "far4": far4 + ":0", "far6": far6 + ":0", "metadata": metadata + ":0"} {
		h.listen(t, name, "tcp", address)
	}
	_, port, _ := net.SplitHostPort(h.targets.Net["far4"])
	h.targets.Net["mapped"] = "[::ffff:" + far4 + "]:" + port
	for name, address := range map[string]string{"udp-loopback4": "127.0.0.1:0", "udp-loopback6": "[::1]:0", "udp-far4": far4 + ":0", "udp-far6": far6 + ":0"} {
		h.receive(t, name, "udp", address)
	}
	dns, quic := far4+":53", far4+":443"
	if h.net == nil {
		dns, quic = far4+":0", far4+":0"
	}
	h.receive(t, "dns", "udp", dns)
	h.receive(t, "quic", "udp", quic)
	abstract := "@coworker-walls-" + filepath.Base(w.base)
	h.listen(t, "abstract", "unix", abstract)
	h.receive(t, "datagram-abstract", "unixgram", abstract+"-datagram")
	h.addFiles(t, w)
	h.startVictim(t, w)
	h.addIPC(t, w)
	return h
}

// addFiles makes the sockets that lie in files of a world.
func (h *hosts) addFiles(t testing.TB, w *world) {
	t.Helper()
	for name, path := range map[string]string{"docker": "docker.sock", "bus": "bus", "agent": "agent.sock", "tmux": "default"} {
		h.listen(t, name, "unix", filepath.Join(w.outside, "run", path))
	}
	h.listen(t, "work", "unix", filepath.Join(w.work, "daemon.sock"))
	h.receive(t, "datagram", "unixgram", filepath.Join(w.outside, "run", "log"))
	if err := w.user.Own(w.base); err != nil {
		t.Fatal(err)
	}
}

func (h *hosts) counter(name string) *atomic.Int64 {
	if h.hits[name] == nil {
		h.hits[name] = &atomic.Int64{}
	}
	return h.hits[name]
}

func (h *hosts) place(name, network, address string) {
	if network == "unix" || network == "unixgram" {
		h.targets.Sockets[name] = address
	} else {
		h.targets.Net[name] = address
	}
}

// listen accepts connections until the test ends.
func (h *hosts) listen(t testing.TB, name, network, address string) {
	t.Helper()
	var l net.Listener
	err := h.net.do(func() (err error) { l, err = net.Listen(network, address); return err })
	if err != nil {
		t.Fatal(err)
	}
	hits := h.counter(name)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			hits.Add(1)
			c.Close()
		}
	})
	t.Cleanup(func() { l.Close(); serving.Wait() })
	h.place(name, network, l.Addr().String())
}

// receive reads datagrams until the test ends.
func (h *hosts) receive(t testing.TB, name, network, address string) {
	t.Helper()
	var c net.PacketConn
	err := h.net.do(func() (err error) { c, err = net.ListenPacket(network, address); return err })
	if err != nil {
		t.Fatal(err)
	}
	hits := h.counter(name)
	var serving sync.WaitGroup
	serving.Go(func() {
		buf := make([]byte, 2048)
		for {
			if _, _, err := c.ReadFrom(buf); err != nil {
				return
			}
			hits.Add(1)
		}
	})
	t.Cleanup(func() { c.Close(); serving.Wait() })
	h.place(name, network, c.LocalAddr().String())
}

// startVictim starts a process of the user that holds the canary in its environment.
func (h *hosts) startVictim(t testing.TB, w *world) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	h.victim = w.user.Command(ctx, w.home, "sleep", "1000000")
	h.victim.Env = append(h.victim.Env, canaryVariable+"="+w.canary)
	if err := h.victim.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); h.victim.Wait() })
	h.targets.Pid = h.victim.Process.Pid
}

// alive says whether the victim still runs.
func (h *hosts) alive() bool { return h.victim.Process.Signal(unix.Signal(0)) == nil }

// addIPC makes a shared segment and a message queue that everybody may use.
func (h *hosts) addIPC(t testing.TB, w *world) {
	t.Helper()
	id, _, errno := unix.Syscall(unix.SYS_SHMGET, 0, 4096, 0o1000|0o666) // IPC_CREAT with the private key
	if errno != 0 {
		t.Fatalf("shmget: %v", errno)
	}
	t.Cleanup(func() { unix.Syscall(unix.SYS_SHMCTL, id, 0, 0) }) // IPC_RMID
	h.targets.Shm = int(id)
	h.targets.Queue = "/" + filepath.Base(w.base)
	name := append([]byte(filepath.Base(w.base)), 0)
	p := unsafe.Pointer(&name[0])
	fd, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(p), unix.O_CREAT|unix.O_RDWR, 0o666, 0, 0, 0)
	if errno != 0 {
		t.Fatalf("mq_open: %v", errno)
	}
	if err := errors.Join(unix.Fchmod(int(fd), 0o666), unix.Close(int(fd))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Syscall(unix.SYS_MQ_UNLINK, uintptr(p), 0, 0) })
}

// aim writes the file that tells the attacker its targets, into the scratch folder of a world.
func (h *hosts) aim(t testing.TB, w *world, name string, pid int) string {
	t.Helper()
	to := h.targets
	to.Work, to.Outside, to.Home, to.Scratch, to.Pid = w.work, w.outside, w.home, filepath.Join(w.work, "scratch"), pid
	data, err := json.Marshal(to)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(w.work, "scratch", name)
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// outcome is one line of the attacker.
type outcome struct {
	Name   string `json:"name"`
	Worked bool   `json:"worked"`
	Errno  string `json:"errno"`
	Detail string `json:"detail"`
}

func outcomes(t testing.TB, text string) []outcome {
	t.Helper()
	var all []outcome
	for line := range bytes.Lines([]byte(text)) {
		var o outcome
		if err := json.Unmarshal(line, &o); err != nil {
			t.Fatalf("the attacker printed %q: %v", line, err)
		}
		all = append(all, o)
	}
	return all
}

// total counts what reached any listener.
func (h *hosts) total() (n int64) {
	for _, hits := range h.hits {
		n += hits.Load()
	}
	return n
}

// reached waits until something more than before has arrived: the kernel hands over what was sent before the sender
// ended, and the counting goroutine has to run.
func (h *hosts) reached(before int64) bool {
	deadline := time.Now().Add(5 * time.Second)
	for h.total() == before {
		if time.Now().After(deadline) {
			return false
		}
		runtime.Gosched()
	}
	return true
}
