package vm

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"coworker/integration/vm/guest"
)

// hardenedScript goes for the highest level as the worker, through the helper, on the real folder and on a copy of it.
const hardenedScript = `
cd /srv/worker/w
(exec coworker-wallsd --socket /run/coworker/wallsd.sock 2>/run/wallsd.log) & HELPER=$!
trap 'kill $HELPER; wait $HELPER; cat /run/wallsd.log' EXIT
until [ -S /run/coworker/wallsd.sock ] || ! kill -0 $HELPER; do usleep 50000; done
as() { setpriv --reuid %[1]d --regid %[1]d --clear-groups env HOME=/home/worker COWORKER_HOME=/srv/worker/own "$@"; }
for mode in "-w" "--staged --apply never"; do
	rm -rf .git; as timeout -s QUIT 150 coworker exec $mode --level hardened --report /home/worker/r.json -- sh -c 'mkdir .claude; echo x >.envrc; ls -A'
	echo "$mode: exit $?"
	tr -d ' \n' </home/worker/r.json
	echo
done
ls -A
`

// testHardened: a user without privileges reaches the level hardened through the helper where bpf is among the kernel's
// security modules: live, because the programs on the hooks stop names that were absent, and staged. Linux 5.10 has no
// Landlock, so content rests on the mounts alone there, and the level says so.
func testHardened(t *testing.T, kernels []Kernel) {
	files := filesWithDisk(t)
	for _, k := range kernels {
		t.Run(k.Name, func(t *testing.T) {
			c := bash("hardened", guest.Root, diskScript+"\nset +e"+fmt.Sprintf(hardenedScript, guest.WorkerUID))
			c.Timeout = 6 * time.Minute
			got := boot(t, k, Guest{Files: files, Modules: diskModules, Cmdline: withGuard, Timeout: 3 * DefaultLife, Cases: []Case{c}})
			r := got["hardened as root"]
			out := string(r.Stdout) + string(r.Stderr) + r.Err
			wanted := []string{`"level":"hardened"`, `"bpf-lsm"`, "-w: exit ", "--staged --apply never: exit 0", "create directory '.claude': Permission denied"}
			if k.Name == "5.10" {
				wanted = []string{"content reads: not shown with Landlock and kernel programs alone", "-w: exit 120"}
			}
			for _, want := range wanted {
				if !strings.Contains(out, want) {
					t.Errorf("there is no %q", want)
				}
			}
			if k.Name != "5.10" && strings.Contains(out, "exit 120") {
				t.Error("a session was refused")
			}
			if t.Failed() {
				t.Log(out)
			}
		})
	}
}
