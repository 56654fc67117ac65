package wallsd

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"coworker/integration/house/testuser"
)

// apart runs a script as root in a mount namespace of its own, where /run and /usr/local/lib are empty: a helper that is
// started there is the only one, and the machine stays as it is. $BIN holds the programs.
func apart(t *testing.T, script string, env ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	const prepare = "set -eu\nmount -t tmpfs -o mode=755 none /run\nmount -t tmpfs -o mode=755 none /usr/local/lib\nexport HOME=$ROOTHOME\n"
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--propagation", "private", "bash", "-c", prepare+script)
	root := testuser.User{UID: 0, GID: 0}.Dir(t)
	u := testuser.Unprivileged(t)
	home := u.Dir(t)
	if err := os.Mkdir(filepath.Join(home, "ws"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := u.Own(home); err != nil {
		t.Fatal(err)
	}
	cmd.Dir = "/"
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "BIN=" + bin, "ROOTHOME=" + root, "USERHOME=" + home,
		fmt.Sprintf("AS=setpriv --reuid %d --regid %d --clear-groups env -C %s/ws HOME=%s USER=u", u.UID, u.GID, home, home)}, env...)
	return cmd
}

// withHelper starts the helper and stops it at the end of the script; its log is $LOG.
const withHelper = `
LOG=$ROOTHOME/log
$BIN/coworker-wallsd --socket /run/coworker/wallsd.sock 2>$LOG & HELPER=$!
trap 'kill $HELPER 2>/dev/null || true; wait $HELPER || true' EXIT
for i in $(seq 100); do [ -S /run/coworker/wallsd.sock ] && break; sleep 0.05; done
`

func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// TestSessionThroughHelper: a person without privileges gets limits that are in force, and programs on the network.
func TestSessionThroughHelper(t *testing.T) {
	out := output(t, apart(t, withHelper+`
$AS $BIN/coworker exec --memory 64M --pids 40 --report $USERHOME/r.json -- sh -c 'python=$(head -c 200M /dev/zero | tail); true' || echo "exit $?"
cat $USERHOME/r.json
echo; echo LOG; cat $LOG; find /sys/fs/cgroup -name "u*-$(sed -n 's/.*"session":"\([0-9a-f]*\)".*/\1/p' $LOG | head -1)"
`))
	for _, want := range []string{`"source": "limit"`, "memory limit of 67108864 bytes", `"ebpf"`, `"cgroup"`, `"op":"open","verdict":"ok"`, `"op":"join","verdict":"ok"`, `"op":"close","verdict":"ok"`} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %s in\n%s", want, out)
		}
	}
	if _, left, _ := strings.Cut(out, "LOG"); strings.Contains(left, "/sys/fs/cgroup") {
		t.Errorf("a group is left:\n%s", left)
	}
}

// TestSessionWithoutHelper: the same limit is refused, and the next step named.
func TestSessionWithoutHelper(t *testing.T) {
	out := output(t, apart(t, `$AS $BIN/coworker exec --memory 64M -- true || echo "exit $?"`))
	if !strings.Contains(out, "exit 120") || !strings.Contains(out, "coworker sandbox setup") {
		t.Errorf("without a helper:\n%s", out)
	}
}

// TestBareThroughHelper: the backend without namespaces is held too. In a changed root the kernel makes no user namespace.
func TestBareThroughHelper(t *testing.T) {
	out := output(t, apart(t, withHelper+`
mkdir $ROOTHOME/root; mount --rbind / $ROOTHOME/root
chroot $ROOTHOME/root $AS $BIN/coworker exec --level partial --pids 40 --report $USERHOME/r.json -- true || echo "exit $?"
cat $USERHOME/r.json; echo LOG; cat $LOG
`))
	if !strings.Contains(out, `"exit_code": 0`) || strings.Contains(out, `"userns"`) || !strings.Contains(out, `"op":"join","verdict":"ok"`) {
		t.Errorf("bare:\n%s", out)
	}
}

// TestHelperDiesInSession: a session whose helper is killed ends, with a row.
func TestHelperDiesInSession(t *testing.T) {
	out := output(t, apart(t, withHelper+`
$AS $BIN/coworker exec -- sleep 60 & SESSION=$!
for i in $(seq 200); do grep -q '"op":"join"' $LOG && break; sleep 0.05; done
sleep 1; kill -9 $HELPER
wait $SESSION || echo "exit $?"
$AS $BIN/coworker audit list --json
`))
	if !strings.Contains(out, "exit 120") || !strings.Contains(out, "a wall fell: coworker-wallsd ended") {
		t.Errorf("the session did not end as it should:\n%s", out)
	}
	if !strings.Contains(out, `"fallen"`) {
		t.Errorf("there is no row:\n%s", out)
	}
}

// TestSetupAndRemove: without systemd. Twice set up changes nothing the second time; the helper that was installed serves;
// removed, the machine is as before.
func TestSetupAndRemove(t *testing.T) {
	out := output(t, apart(t, `
list() { find /usr/local/lib /run /etc/systemd /etc/apparmor.d -exec stat -c '%n %A %u' {} + 2>/dev/null | sort; }
list > $ROOTHOME/before
$BIN/coworker sandbox setup --machine || echo "exit $?"
list | diff $ROOTHOME/before - && echo SAME-WITHOUT-YES
$BIN/coworker sandbox setup --machine --yes
list > $ROOTHOME/after
cmp /usr/local/lib/coworker/coworker-wallsd $BIN/coworker-wallsd && echo VERIFIED
$BIN/coworker sandbox setup --machine --yes
list | diff $ROOTHOME/after - && echo UNCHANGED
$AS $BIN/coworker sandbox remove || echo "exit $?"
/usr/local/lib/coworker/coworker-wallsd --socket /run/coworker/wallsd.sock 2>/dev/null & HELPER=$!
for i in $(seq 100); do [ -S /run/coworker/wallsd.sock ] && break; sleep 0.05; done
$AS $BIN/coworker sandbox status
$BIN/coworker sandbox remove --yes || echo "running: exit $?"
kill $HELPER; wait $HELPER
$BIN/coworker sandbox remove --yes
$BIN/coworker sandbox remove --yes
list | diff $ROOTHOME/before - && echo NO-TRACE
cp $BIN/coworker $BIN/coworker-cell $BIN/coworker-proxy $ROOTHOME; echo other > $ROOTHOME/coworker-wallsd
$ROOTHOME/coworker sandbox setup --machine --yes || echo "other helper: exit $?"
list | diff $ROOTHOME/before - && echo NOT-INSTALLED
`))
	for _, want := range []string{
		"SAME-WITHOUT-YES", "This will install coworker-wallsd", "VERIFIED", "machine   unchanged", "UNCHANGED", "coworker-wallsd --socket", "helper    answers",
		"processes, memory, cpus, network (ebpf)", "running: exit 123", "nothing to remove", "NO-TRACE", "its SHA-256 is", "NOT-INSTALLED",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q in\n%s", want, out)
		}
	}
}

// TestCapabilities: the helper has what the unit file names, no more and no less, also when it is started by hand.
func TestCapabilities(t *testing.T) {
	unit, err := os.ReadFile("../../runtime/wallsd/install/coworker-wallsd.service")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^CapabilityBoundingSet=(.+)$`).FindSubmatch(unit)
	if m == nil {
		t.Fatal("the unit has no CapabilityBoundingSet=")
	}
	numbers := map[string]int{"CAP_KILL": 5, "CAP_SETGID": 6, "CAP_SETUID": 7, "CAP_NET_ADMIN": 12, "CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21, "CAP_PERFMON": 38, "CAP_BPF": 39}
	want := uint64(0)
	for _, name := range strings.Fields(string(m[1])) {
		n, ok := numbers[name]
		if !ok {
			t.Fatalf("%s is new: say why it is needed, here too", name)
		}
		want |= 1 << n
	}
	h := start(t)
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", h.cmd.Process.Pid))
	if err != nil || len(tasks) == 0 {
		t.Fatal(tasks, err)
	}
	for _, file := range tasks {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // the thread ended
		}
		for _, set := range []string{"CapPrm", "CapEff", "CapBnd"} {
			m := regexp.MustCompile(set + `:\t([0-9a-f]+)`).FindSubmatch(data)
			if got, err := strconv.ParseUint(string(m[1]), 16, 64); err != nil || got != want {
				t.Errorf("%s: %s is %x, want %x", file, set, got, want)
			}
		}
		if !strings.Contains(string(data), "NoNewPrivs:\t1") {
			t.Errorf("%s can gain privileges", file)
		}
	}
}

// TestActivated: a socket that systemd passes is served, and not unlinked.
func TestActivated(t *testing.T) {
	h := start(t) // for its folder and its groups
	dir := filepath.Dir(h.socket)
	socket := filepath.Join(dir, "passed.sock")
	cmd := exec.Command("systemd-socket-activate", "--seqpacket", "-l", socket, filepath.Join(bin, "coworker-wallsd"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.Stderr = h.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait() // killed
	}()
	eventually(t, "the socket is there", func() bool { _, err := os.Stat(socket); return err == nil })
	passed := &helper{socket: socket}
	eventually(t, "the activated helper answers", passed.serving)
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("the activated helper ended with %v\n%s", err, h.log.String())
	}
	if _, err := os.Stat(socket); err != nil {
		t.Errorf("the socket of systemd was removed: %v", err)
	}
}

// TestStatusJSON: what status says about the helper is a contract.
func TestStatusJSON(t *testing.T) {
	out := output(t, apart(t, withHelper+`$AS $BIN/coworker sandbox status --json`))
	var status struct {
		Helper struct {
			Answers bool `json:"answers"`
			Trial   struct {
				Build string `json:"build"`
				State struct {
					Helper bool `json:"helper"`
				} `json:"state"`
			} `json:"trial"`
		} `json:"helper"`
		Limits []struct {
			Active bool `json:"active"`
		} `json:"limits"`
	}
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !status.Helper.Answers || status.Helper.Trial.Build != "test" || !status.Helper.Trial.State.Helper || len(status.Limits) != 3 || !status.Limits[1].Active {
		t.Errorf("status says %+v", status)
	}
}
