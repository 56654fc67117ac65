package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"coworker/integration/house/testuser"
	"coworker/integration/load/network"
)

// workload is one thing that clients do, with the figures of perf.md for peers, as parts of direct. They were measured
// elsewhere, so they are printed beside ours and enter no ratio but the promise of three times.
type workload struct {
	name        string
	job         clientJob
	download    bool
	codex, srt  float64 // measured inside their sandboxes
	smokescreen float64
	squidThen   float64
}

// clientJob is the argument of integration/load/client, whose type job explains it.
type clientJob struct {
	Kind, Proxy, Host, Path, CA string
	Port, Workers               int
	Seconds                     float64
	Bytes                       int64
}

// clientResult is what it prints.
type clientResult struct {
	Rate, P50, P99, MBps float64
	Requests, Errors     int
	Error                string
}

const (
	small       = "/small" // 1 KiB
	large       = "/large"
	largeBytes  = 256 << 20
	rawPort     = 8080
	measureTime = 1.0 // seconds of each turn
)

var workloads = []workload{
	{"plain HTTP, absolute form, kept alive, 16 at once", clientJob{Kind: "http", Port: 80, Path: small, Workers: 16}, false, 0.11, 0.04, 0.17, 0.38},
	{"HTTPS, kept-alive CONNECT, 16 at once", clientJob{Kind: "tls", Port: 443, Path: small, Workers: 16}, false, 0.27, 0.18, 0.73, 0.91},
	{"HTTPS, new CONNECT and handshake each, 8 at once", clientJob{Kind: "tls-new", Port: 443, Path: small, Workers: 8}, false, 0.15, 0.13, 0.66, 0.76},
	{"new CONNECT each, no TLS, 8 at once", clientJob{Kind: "raw-new", Port: rawPort, Path: small, Workers: 8}, false, 0.16, 0.04, 0.28, 0.34},
	{"download, CONNECT and TLS", clientJob{Kind: "download-tls", Port: 443, Path: large, Bytes: largeBytes}, true, 0.40, 0.23, 0.92, 0.96},
	{"download, CONNECT", clientJob{Kind: "download", Port: rawPort, Path: large, Bytes: largeBytes}, true, 0.25, 0.14, 0.39, 0.51},
	{"download, plain HTTP", clientJob{Kind: "download", Port: 80, Path: large, Bytes: largeBytes}, true, 0.54, 0.13, 0.59, 0.17},
}

// Labels of the variants. A direct client runs where coworker runs; the peers run there too and are asked from there.
const (
	direct      = "direct"
	cellConnect = "cell"
	cellByName  = "cell-by-name"
)

// BenchmarkProxy measures clients inside a cell against the same client without a proxy and with tinyproxy and squid, all
// on one host that is joined to the origin's by a cable. Each turn of ours opens a session, which is not in the figures:
// the client measures itself.
func BenchmarkProxy(b *testing.B) {
	if os.Geteuid() != 0 {
		report.note("the proxy is not measured: its benchmark makes network namespaces, which needs root")
		return
	}
	w := newProxyWorld(b)
	for _, load := range workloads {
		b.Run(strings.NewReplacer(" ", "-", ",", "").Replace(load.name), func(b *testing.B) {
			b.ReportMetric(0, "ns/op")
			s := loop(b, w.variants(load), func(order []string) map[string]float64 {
				round := map[string]float64{}
				for _, label := range order {
					round[label] = w.turn(b, label, load)
				}
				return round
			})
			w.report(b, load, s)
		})
	}
}

// variants has a key for everything that is measured; loop wants commands, which are made in turn.
func (w *proxyWorld) variants(load workload) map[string][]string {
	out := map[string][]string{direct: nil, cellConnect: nil}
	if load.job.Port != rawPort || load.job.Kind != "download" {
		out[cellByName] = nil
	}
	for name := range w.peers {
		out[name] = nil
	}
	return out
}

// turn runs one client and gives requests or MB per second.
func (w *proxyWorld) turn(b *testing.B, label string, load workload) float64 {
	b.Helper()
	job := load.job
	job.Host, job.CA, job.Seconds = network.Name, filepath.Join(w.place.workspace, "ca.pem"), measureTime
	switch label {
	case direct, cellByName:
	case cellConnect:
		job.Proxy = "127.0.0.1:3128"
	default:
		job.Proxy = w.peers[label]
	}
	text, err := json.Marshal(job)
	if err != nil {
		b.Fatal(err)
	}
	argv := []string{filepath.Join(w.place.workspace, "client"), string(text)}
	if label == cellConnect || label == cellByName {
		argv = append(w.exec(), argv...)
	}
	cmd := w.place.command(argv[0], argv[1:]...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := w.net.Near(cmd.Run); err != nil {
		b.Fatalf("%s: %v\n%s", label, err, errs.String())
	}
	var r clientResult
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		b.Fatalf("%s: %v\n%s%s", label, err, out.String(), errs.String())
	}
	if r.Errors > 0 {
		b.Fatalf("%s: %d errors, the first: %s", label, r.Errors, r.Error)
	}
	if load.download {
		return r.MBps
	}
	return r.Rate
}

// exec is coworker with every rule that the workloads need.
func (w *proxyWorld) exec() []string {
	out := []string{filepath.Join(w.place.bin, "coworker"), "exec", "--ro"}
	for _, port := range []string{"443", "80", fmt.Sprint(rawPort)} {
		out = append(out, "--allow", network.Name+":"+port+"="+network.Range)
	}
	return append(out, "--")
}

// report adds the lines of one workload: ours both ways, the peers of this run, and the promises.
func (w *proxyWorld) report(b *testing.B, load workload, s series) {
	unit := " req/s"
	if load.download {
		unit = " MB/s"
	}
	rate := func(label string) string { return fmt.Sprintf("%.0f%s", s.median(label), unit) }
	elsewhere := fmt.Sprintf("codex %.2fx, srt %.2fx (inside theirs), smokescreen %.2fx, squid %.2fx", load.codex, load.srt, load.smokescreen, load.squidThen)
	for _, label := range slices.Sorted(maps.Keys(s)) {
		x := s.over(label, direct)
		b.ReportMetric(s.median(label), label+strings.ReplaceAll(unit, " ", "-"))
		b.ReportMetric(x, label+"-x-direct")
		r := result{what: load.name + ": " + label, ours: rate(label), peer: "direct " + rate(direct), ratio: times(x), value: x}
		switch {
		case label == direct:
			continue
		case label != cellConnect && label != cellByName:
			r.what, r.ours, r.peer = load.name+": peer "+label, "", label+" "+rate(label)
		case load.download && load.job.Kind == "download-tls":
			r.budget = atLeast(0.8, "≥ 0.8x direct")
		case !load.download:
			limit := 3 * max(load.codex, load.srt)
			r.budget = atLeast(limit, fmt.Sprintf("≥ %.2fx, three times codex and srt", limit))
		}
		if label == cellConnect {
			r.elsewhere = elsewhere
		}
		report.add(r)
	}
	if len(s["squid"]) == 0 {
		return
	}
	x := s.over(cellConnect, "squid")
	report.add(result{what: load.name + ": cell against squid", ours: rate(cellConnect), peer: "squid " + rate("squid"), ratio: times(x), value: x,
		budget: atLeast(1, "stretch: squid")})
	// Clients and origins differ between that machine and this one; squid was measured on both.
	x *= load.squidThen / max(load.codex, load.srt)
	r := result{what: load.name + ": cell against the better of codex and srt, by way of squid", ratio: times(x), value: x}
	if !load.download {
		r.budget = atLeast(3, "≥ 3x")
	}
	report.add(r)
}

// proxyWorld is a host with coworker and the peers, and an origin behind it.
type proxyWorld struct {
	place place
	net   *network.Network
	peers map[string]string // address by name
}

func newProxyWorld(b *testing.B) *proxyWorld {
	b.Helper()
	w := &proxyWorld{place: newPlace(b, testuser.Unprivileged(b)), peers: map[string]string{}}
	report.note("figures in the last column are parts of direct, measured elsewhere: Debian 12, kernel 6.18, 2 shared processors, nginx origin on loopback")
	var err error
	if w.net, err = network.New(b.TempDir()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := w.net.Close(); err != nil {
			b.Error(err)
		}
	})
	if err := os.MkdirAll(w.place.workspace, 0o755); err != nil {
		b.Fatal(err)
	}
	w.startOrigin(b)
	w.build(b)
	w.startPeers(b)
	if err := w.place.user.Own(w.place.workspace); err != nil {
		b.Fatal(err)
	}
	return w
}
