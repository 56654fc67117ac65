package session

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"coworker/enforce"
	"coworker/enforce/probe"
)

// outsideChecks looks at the cell from the host's /proc: what the kernel says about a process
// cannot be forged by it.
func outsideChecks(pid int, b enforce.Backend, t probe.Targets) []enforce.Probe {
	o := &outside{pid: pid}
	status, err := readStatus(pid)
	if err != nil {
		o.add("priv/outside-status", enforce.Priv, enforce.Inconclusive, err.Error())
		return o.probes
	}
	o.field(status, "NoNewPrivs", "1", enforce.Priv)
	o.field(status, "Seccomp", "2", enforce.Kernel)
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapAmb"} {
		o.field(status, set, strings.Repeat("0", 16), enforce.Priv)
	}
	if b.Name() == enforce.Bare {
		return o.probes
	}
	o.field(status, "CapBnd", strings.Repeat("0", 16), enforce.Priv)
	o.pidNamespace(status)
	o.namespace("net", t.HostNetNS, enforce.NetEgress)
	o.namespace("mnt", t.HostMntNS, enforce.FSRead)
	o.idMap("uid_map")
	o.idMap("gid_map")
	o.interfaces()
	if c, ok := b.(containerBackend); ok {
		c.look(o)
	}
	return o.probes
}

type outside struct {
	pid    int
	probes []enforce.Probe
}

func (o *outside) add(name string, w enforce.Wall, got enforce.Outcome, detail string) {
	o.probes = append(o.probes, enforce.Probe{Name: name, Wall: w, Want: enforce.Stopped, Got: got, Detail: detail, Where: "outside"})
}

func (o *outside) judge(name string, w enforce.Wall, ok bool, detail string) {
	got := enforce.Leaked
	if ok {
		got = enforce.Stopped
	}
	o.add(name, w, got, detail)
}

// readStatus reads the fields of /proc/PID/status (proc_pid_status(5)).
func readStatus(pid int) (map[string]string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			fields[name] = strings.TrimSpace(value)
		}
	}
	return fields, nil
}

func (o *outside) field(status map[string]string, name, want string, w enforce.Wall) {
	o.judge(fmt.Sprintf("%s/outside-%s", w, strings.ToLower(name)), w, status[name] == want, name+" is "+status[name])
}

// found is judge for a question that may have no answer.
func (o *outside) found(name string, w enforce.Wall, ok bool, detail string, err error) {
	if err != nil {
		o.add(name, w, enforce.Inconclusive, err.Error())
		return
	}
	o.judge(name, w, ok, detail)
}

func (o *outside) pidNamespace(status map[string]string) {
	ids := strings.Fields(status["NSpid"])
	ok := len(ids) >= 2 && ids[len(ids)-1] == "1"
	o.judge("proc/outside-nspid", enforce.Proc, ok, "NSpid is "+status["NSpid"])
	// PID 1 of its own namespace: when it ends, the kernel ends all others in it
	// (pid_namespaces(7)).
	o.judge("life/outside-init", enforce.Life, ok, "NSpid is "+status["NSpid"])
}

func (o *outside) namespace(kind, host string, w enforce.Wall) {
	name := fmt.Sprintf("%s/outside-%s-namespace", w, kind)
	link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", o.pid, kind))
	if err != nil {
		// The cell is not dumpable, so without CAP_SYS_PTRACE its links cannot be read. That the
		// file of another namespace lists other interfaces is checked in interfaces.
		if os.IsPermission(err) {
			return
		}
		o.add(name, w, enforce.Inconclusive, err.Error())
		return
	}
	o.judge(name, w, link != host, link)
}

func (o *outside) idMap(file string) {
	name := "priv/outside-" + strings.ReplaceAll(file, "_", "-")
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(o.pid), file))
	if err != nil {
		o.add(name, enforce.Priv, enforce.Inconclusive, err.Error())
		return
	}
	f := strings.Fields(string(data))
	o.judge(name, enforce.Priv, len(f) == 3 && f[2] == "1", strings.Join(f, " "))
}

func (o *outside) interfaces() {
	const name = "net.egress/outside-interfaces"
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", o.pid))
	if err != nil {
		if os.IsPermission(err) {
			return
		}
		o.add(name, enforce.NetEgress, enforce.Inconclusive, err.Error())
		return
	}
	var found []string
	for line := range strings.Lines(string(data)) {
		if iface, _, ok := strings.Cut(line, ":"); ok {
			found = append(found, strings.TrimSpace(iface))
		}
	}
	o.judge(name, enforce.NetEgress, len(found) == 1 && found[0] == "lo", "interfaces: "+strings.Join(found, " "))
}
