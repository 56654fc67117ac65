package probe
import ("testing";"os";"os/exec";"encoding/json";"strings")
func TestTiming(t *testing.T) {
	h := newHost(t)
	h.own(t, 0)
	write(t, h.dir, "mask", "")
	h.setup.Spec.Trees[0].MaskDirs = nil
	data, _ := json.Marshal(h.setup)
	os.WriteFile(h.path("setup"), data, 0o644)
	p := strings.Replace(pins, "set -e", "set -e\nip link set lo up\nmount -t tmpfs x /tmp/.t || true\n", 1)
	for range 5 {
	cmd := exec.Command("unshare", "-n", "-p", "-f","--mount-proc","-m", "sh", "-c", p, "sh", h.path("mask"), h.path("work"), h.path("scratch"), h.exe)
	cmd.Env = []string{"PATH=/usr/bin:/bin:/usr/sbin", "PROBE_TIME=1", "PROBE_TEST_SECCOMP=native", setupEnv+"="+h.path("setup")}
	var e strings.Builder
	cmd.Stderr=&e
	cmd.Output()
	os.WriteFile("/tmp/tt.txt",[]byte(e.String()),0o644)
	for _, a := range AbsentAttempts() { os.RemoveAll(h.path("scratch/"+a.Paths[0])) }
	}
}
