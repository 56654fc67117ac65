package load

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"coworker/integration/load/network"
)

// memory is the resident size of the session's proxy, from /proc/PID/status.
func (r *run) memory() (resident int64) {
	r.t.Helper()
	var pids []byte
	all, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", r.cmd.Process.Pid))
	for _, file := range all {
		more, _ := os.ReadFile(file) // a thread may be gone
		pids = append(append(pids, ' '), more...)
	}
	for _, pid := range strings.Fields(string(pids)) {
		name, _ := os.ReadFile("/proc/" + pid + "/cmdline")
		if strings.TrimRight(string(name), "\x00") != "coworker-proxy" {
			continue
		}
		status, err := os.ReadFile("/proc/" + pid + "/status")
		if err != nil {
			r.t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(status), "VmRSS:")
		kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
		if err != nil {
			r.t.Fatal(err)
		}
		return kib << 10
	}
	r.t.Fatalf("no coworker-proxy among the children %q (%v)", pids, err)
	return 0
}

// flows are the sums of the report and of the audit store.
type flows struct {
	Count, In, Out, Broken int64
}

type told struct {
	Host    string `json:"host"`
	Verdict string `json:"verdict"`
	Count   int64  `json:"count"`
	In      int64  `json:"bytes_in"`
	Out     int64  `json:"bytes_out"`
	Broken  string `json:"broken"`
}

func sum(list []told) flows {
	var f flows
	for _, r := range list {
		if !strings.HasPrefix(r.Host, network.Name) || r.Verdict != "allow" {
			continue
		}
		count := max(r.Count, 1)
		f.Count, f.In, f.Out = f.Count+count, f.In+r.In, f.Out+r.Out
		if r.Broken != "" {
			f.Broken += count
		}
	}
	return f
}

// reported is what the report of the session says.
func (w *world) reported(t testing.TB) flows {
	t.Helper()
	var report struct {
		Egress []told `json:"egress"`
	}
	data, err := os.ReadFile(w.reportFile())
	if err == nil {
		err = json.Unmarshal(data, &report)
	}
	if err != nil {
		t.Fatal(err)
	}
	return sum(report.Egress)
}

// stored is what the audit store says.
func (w *world) stored(t testing.TB) flows {
	t.Helper()
	data, err := w.command("net", "log", "--json", "--limit", "100000").Output()
	var rows []told
	if err == nil {
		err = json.Unmarshal(data, &rows)
	}
	if err != nil {
		t.Fatal(err)
	}
	return sum(rows)
}
