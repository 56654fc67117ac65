package vm

import (
	"fmt"
	"strings"
	"testing"

	"coworker/integration/vm/guest"
)

// helperScript starts the helper by FLAGS, after BEFORE, and goes on as the worker.
const helperScript = `
mkdir -p /home/worker/ws; chown worker:worker /home/worker/ws
cd /home/worker/ws
(eval "$BEFORE"; exec coworker-wallsd --socket /run/coworker/wallsd.sock $FLAGS 2>/run/wallsd.log) & HELPER=$!
trap 'kill $HELPER; wait $HELPER; cat /run/wallsd.log; ls -d /sys/fs/cgroup/coworker/u* /sys/fs/cgroup/unit/coworker/u* 2>/dev/null; true' EXIT
until [ -S /run/coworker/wallsd.sock ] || ! kill -0 $HELPER; do usleep 50000; done
as() { setpriv --reuid %[1]d --regid %[1]d --clear-groups env HOME=/home/worker "$@"; }
as coworker sandbox status
as timeout -s QUIT 100 coworker exec --memory 64M --pids 40 --report /home/worker/r.json -- sh -c 'echo inside'
echo "exit $?"
tr -d ' \n' </home/worker/r.json
echo
as coworker exec -- sleep 60 & SESSION=$!
until [ $(grep -c '"op":"join","verdict":"ok"' /run/wallsd.log) -ge 2 ] || ! kill -0 $SESSION; do usleep 50000; done
usleep 3000000
cat /sys/fs/cgroup/coworker/u*/memory.max /sys/fs/cgroup/unit/coworker/u*/memory.max 2>/dev/null
kill -9 $HELPER
wait $SESSION; echo "session $?"
`

// testHelper: users without privileges get the control group from the helper where v2 has the controllers, at the top and
// below a group that was delegated to it.
func testHelper(t *testing.T, kernels []Kernel) {
	files := standardFiles(t)
	helper := func(name, flags, before string) Case {
		c := bash(name, guest.Root, fmt.Sprintf(helperScript, guest.WorkerUID))
		c.Env = []string{"FLAGS=" + flags, "BEFORE=" + before}
		return c
	}
	for _, k := range kernels {
		t.Run(k.Name, func(t *testing.T) {
			got := boot(t, k, Guest{Files: files, Modules: []string{"overlay"}, Timeout: 2 * DefaultLife, Cases: []Case{
				helper("by hand", "", ""),
				helper("delegated", "--delegated", "mkdir /sys/fs/cgroup/unit; echo $BASHPID >/sys/fs/cgroup/unit/cgroup.procs"),
			}})
			for _, name := range []string{"by hand", "delegated"} {
				r := got[name+" as root"]
				out := string(r.Stdout) + string(r.Stderr) + r.Err
				var missing []string
				for _, want := range []string{
					"helper    answers", "processes, memory, cpus", "inside\n", "exit 0\n", `"cgroup"`, `"op":"close","verdict":"ok"`,
					"session 120", "a wall fell: coworker-wallsd ended",
				} {
					if !strings.Contains(out, want) {
						missing = append(missing, want)
					}
				}
				if missing != nil {
					t.Errorf("%s: there is no %q in\n%s", name, missing, out)
				}
			}
		})
	}
}
