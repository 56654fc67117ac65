package vm

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"coworker/enforce"
	"coworker/enforce/redirect"
	"coworker/integration/product"
	"coworker/integration/vm/guest"
)

// binaries is the folder with the product, built once.
var binaries string

func TestMain(m *testing.M) {
	os.Exit(product.Main(m, func(dir string) error { return product.Release(dir, "test") }, func(dir string) { binaries = dir }))
}

// productFiles are the binaries and one system file that is no program: BusyBox is every program of the guest at
// once, and what runs cannot be opened for writing whatever the walls say.
func productFiles(t *testing.T) []File {
	t.Helper()
	files, err := Tree(binaries, "/usr/local/bin")
	if err != nil {
		t.Fatal(err)
	}
	return append(files, File{Path: "/usr/lib/os-release", Mode: 0o644, Data: []byte("ID=guest\n")})
}

// A trial is one thing tried inside a cell and, as its control, in the same guest without one, where it must work.
type trial struct {
	name, script string
	stopped      string // part of the message inside; empty when it must work inside too
	root         bool   // the control needs root
}

// Variables of the scripts: OUT is a folder beside the workspace, FOREIGN a process of the same user.
var trials = []trial{
	// What a tree keeps: pins, read-only covers and masks, with mount_setattr and without (5.10).
	{"write git config", `echo "[a]" >>.git/config`, "Read-only file system", false},
	{"replace git config", `cp .git/config n && mv n .git/config`, "Device or resource busy", false},
	{"plant a hook", `echo x >.git/hooks/pre-commit`, "Read-only file system", false},
	{"plant a hook on a mount below", `echo x >.git/hooks/deep/x`, "Read-only file system", false},
	{"rename .git", `mv .git g && mv g .git`, "Device or resource busy", false},
	{"read a secret", `cat .env`, "Permission denied", false},
	{"rename a secret", `mv .env e && mv e .env`, "Device or resource busy", false},
	{"truncate a protected file", `guestprobe truncate .git/config`, "read-only file system", false},
	// What an honest command needs.
	{"rename between folders", `mv a/f b/f && mv b/f a/f`, "", false},
	{"commit", `echo $RANDOM >>a/f && git add a && git commit -qm two`, "", false},
	{"truncate an own file", `guestprobe truncate a/f && guestprobe truncate-3 a/empty`, "", false},
	{"write on a mount below", `echo x >sub/deep/f`, "", false},
	{"write to the null device", `echo x >/dev/null && ls /proc/self/fd`, "", false},
	// Files, processes and sockets outside.
	{"truncate outside", `guestprobe truncate $OUT/file`, "no such file", false},
	{"truncate outside without access", `guestprobe truncate-3 $OUT/empty`, "no such file", false},
	{"write outside", `echo x >$OUT/new`, "No such file", false},
	{"signal outside", `kill -0 $FOREIGN`, "No such process", false},
	{"abstract socket outside", `guestprobe abstract outside-$UID`, "connection refused", false},
	{"new user namespace", `unshare -U true`, "Operation not permitted", false},
	// What would change the machine: the controls are why these run here only.
	{"set the clock", `guestprobe set-clock x`, "operation not permitted", true},
	{"set the host name", `hostname guest`, "Operation not permitted", true},
	{"write core_pattern", `echo core >/proc/sys/kernel/core_pattern`, "Read-only file system", true},
	{"magic system request", `echo h >/proc/sysrq-trigger`, "Read-only file system", true},
	{"mount", `mount -t tmpfs x /tmp && umount /tmp`, "permission denied", true},
	{"kexec", `guestprobe kexec x`, "operation not permitted", true},
	{"remove a module", `rmmod veth`, "Operation not permitted", true},
	{"make a network interface", `ip link add name d0 type dummy || ip link add name br7 type bridge || ip addr add 127.0.0.7/8 dev lo`, "Operation not permitted", true},
	{"make a disk node", `mknod n b 7 0 && rm n`, "Operation not permitted", true},
	{"change the root", `chroot / true`, "Operation not permitted", true},
	{"raise the priority of a process outside", `renice -n -5 $FOREIGN`, "No such process", true},
}

// script prints "name: worked" or "name: last line of its message" for each.
func (tr trial) line() string {
	return fmt.Sprintf(`if out=$( (%s) 2>&1 ); then echo '%s: worked'; else echo "%[2]s: ${out##*$'\n'}"; fi`+"\n", tr.script, tr.name)
}

func trialsOf(user string) []trial {
	return slices.DeleteFunc(slices.Clone(trials), func(tr trial) bool { return tr.root && user != guest.Root })
}

// prepareScript makes a repository that holds a secret and that has file systems mounted in it.
const prepareScript = `
for home in /root /home/worker; do
	mkdir -p $home/out $home/repo/a $home/repo/b $home/repo/sub && cd $home/repo
	export HOME=$home GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0=user.name GIT_CONFIG_VALUE_0=w GIT_CONFIG_KEY_1=user.email GIT_CONFIG_VALUE_1=w@localhost
	git init -q . 2>/dev/null; git config user.name w; git config user.email w@localhost
	echo one >a/f; git add a; git commit -qm one
	echo secret >.env; : >a/empty; echo the-person >$home/out/file; : >$home/out/empty
	mkdir -p .git/hooks/deep; mount -t tmpfs none .git/hooks/deep
	mount -t tmpfs none sub; mkdir sub/deep; mount -t tmpfs none sub/deep
	[ $home = /root ] || chown -R worker:worker $home
done`

// foreignScript starts what the trials reach for outside.
const foreignScript = `
cd ~/repo; export OUT=$HOME/out
sleep 300 >/dev/null 2>&1 & export FOREIGN=$!
guestprobe listen outside-$UID >/dev/null 2>&1 & LISTENER=$!
trap 'kill $FOREIGN $LISTENER' EXIT
until grep -q @outside-$UID /proc/net/unix; do usleep 20000; done
`

// A scenario is one command line of the product and how it must end.
type scenario struct {
	name, script string
	users        []string
	exit         int
	says         []string // parts of both streams together
	never        []string
	kernels      []string // all when empty
}

var (
	everyone = []string{guest.Root, guest.Worker}
	onlyRoot = []string{guest.Root}
	worker   = []string{guest.Worker}
	landlock = []string{"6.1", "6.12"}
)

// race lets the host rename over protected and masked files while a cell tries to use the moment, and then looks at
// what stands: every rename has its window in the record, and the pins are back.
const race = `cd ~/repo; rm -f started finished; cp .git/config ~/config
( for i in $(seq 500); do [ ! -e started ] || break; usleep 20000; done
  for i in 1 2; do cp ~/config .git/.n; mv .git/.n .git/config; usleep 100000; done
  echo secret >.n; mv .n .env; usleep 300000; : >finished ) &
coworker exec -w -- bash -c ': >started; until [ -e finished ]; do echo "[core] fsmonitor=evil" >.git/config; cat .env >/dev/null; done 2>/dev/null
	echo evil >.git/config; cat .env; mv .git g; ls' 2>&1
wait; echo "evil: $(grep -c evil .git/config) windows: $(($(coworker audit list --json | grep -c '"window"')>0))"; mv ~/config .git/config`

var raceSays = []string{".git/config: Read-only file system", "'.env': Permission denied", "'.git': Device or resource busy", "evil: 0 windows: 1"}

var scenarios = []scenario{
	{name: "read-only workspace with mounts below", users: everyone, exit: 1,
		script: `cd ~/repo && coworker exec -- bash -c 'n=0; for f in y sub/y sub/deep/y; do echo x >$f || n=$((n+1)); done; echo refused $n; false'`,
		says:   []string{"sub/deep/y: Read-only file system", "refused 3"}},
	{name: "host renames while a cell runs", users: everyone, script: race, says: raceSays},
	{name: "host renames, no control groups", users: onlyRoot, says: raceSays,
		script: "cat >~/race <<'END'\n" + race + "\nEND\n" + `unshare -m bash -c 'umount -l /sys/fs/cgroup; . ~/race'`},
	{name: "supervisor killed", users: everyone, exit: 0, // what is left behind fails every case
		script: `cd ~/repo; coworker exec -w -- bash -c ': >up; (setsid sleep 300 &) ; sleep 300' >/dev/null 2>&1 & until [ -e up ] || ! kill -0 $!; do usleep 20000; done; kill -9 $!; wait; rm up`},
	{name: "process limit before 5.14", users: worker, kernels: []string{"5.10"}, exit: 120,
		script: `cd ~/repo; coworker exec -w --pids 30 -- true`,
		says:   []string{"before Linux 5.14 RLIMIT_NPROC counts all processes of the user"}},
	{name: "process limit beside other processes", users: worker, kernels: landlock, says: []string{"inside: 1", "limited: 1"},
		script: `cd ~/repo; for i in $(seq 30); do sleep 60 >/dev/null 2>&1 & done
			coworker exec -w --pids 30 -- bash -c 'echo inside: 1; for i in $(seq 40); do sleep 1 & done; wait' 2>&1 | tee ~/log | grep inside
			echo "limited: $(($(grep -c "Resource temporarily" ~/log)>0))"; kill $(jobs -p)`},
	{name: "part of /proc covered", users: onlyRoot, exit: 120,
		script: `cd ~/repo; unshare -m sh -c 'mount -t tmpfs none /proc/irq && coworker exec -w -- true'`,
		says:   []string{"/proc/irq is covered here", "hint: run coworker outside of it"}},
	{name: "part of /proc covered, partial", users: onlyRoot, kernels: landlock,
		script: `cd ~/repo; unshare -m sh -c 'mount -t tmpfs none /proc/irq && coworker exec -w --level partial -- echo ran'`,
		says:   []string{"ran\n", "level partial"}},
	{name: "no /proc", users: onlyRoot, exit: 120,
		script: `cd ~/repo; unshare -m sh -c 'umount -l /proc; exec coworker exec -w -- true'`,
		says:   []string{"/proc is not mounted", "hint: as root: mount -t proc proc /proc"}},
}

// withoutUserNS run while the setting before them is in force.
var withoutUserNS = []struct {
	set, reset string
	scenarios  []scenario
}{
	{"echo 0 >/proc/sys/user/max_user_namespaces", "echo 1000 >/proc/sys/user/max_user_namespaces", []scenario{
		{name: "no user namespaces", users: everyone, exit: 120, script: `cd ~/repo; coworker exec -w -- true`,
			says: []string{"user.max_user_namespaces is 0", "hint: as root: sysctl -w user.max_user_namespaces=65536"}},
		{name: "no user namespaces, partial", users: worker, kernels: landlock,
			script: `cd ~/repo; coworker exec -w --level partial -- bash -c 'echo x >y && rm y && echo wrote; cat ~worker/out/file; guestprobe truncate ~worker/out/file; guestprobe truncate-3 ~worker/out/empty; mv a/f b/f && mv b/f a/f && echo renamed'`,
			says:   []string{"wrote\n", "renamed\n", "out/file': Permission denied\npermission denied\npermission denied\n"}, never: []string{"the-person"}},
		{name: "no user namespaces, partial, no Landlock", users: worker, kernels: []string{"5.10"}, exit: 120,
			script: `cd ~/repo; coworker exec -w --level partial -- true`,
			says:   []string{"the kernel has no Landlock", "hint: use a kernel from 5.19 on"}},
	}},
	{"echo 0 >/proc/sys/kernel/unprivileged_userns_clone", "echo 1 >/proc/sys/kernel/unprivileged_userns_clone", []scenario{
		{name: "no user namespaces for users", users: worker, exit: 120, script: `cd ~/repo; coworker exec -w -- true`,
			says: []string{"kernel.unprivileged_userns_clone is 0", "hint: as root: sysctl -w kernel.unprivileged_userns_clone=1"}},
	}},
}

func (s scenario) on(kernel string) bool {
	return len(s.kernels) == 0 || slices.Contains(s.kernels, kernel)
}

func bash(name, user, script string) Case {
	return Case{Name: name + " as " + user, User: user, Argv: []string{"bash", "-c", script}}
}

// verifyCase prints the report for one row of levels.json. Only the settings name a backend.
func verifyCase(e Expectation) Case {
	script := "coworker sandbox verify --json --net " + string(e.Net)
	if e.Backend == enforce.Bare {
		script += " --level partial"
	}
	if e.Backend != enforce.Native {
		script = `mkdir -p ~/.config/coworker; echo 'backend = "` + string(e.Backend) + `"' >~/.config/coworker/config.toml; chmod 600 ~/.config/coworker/config.toml
			` + script + `; status=$?; rm ~/.config/coworker/config.toml; exit $status`
	}
	return shell(e.verifyName(), e.User, script)
}

func (e Expectation) verifyName() string {
	return fmt.Sprintf("verify %s with network %s as %s", e.Backend, e.Net, e.User)
}

// productCases is what the product does in one boot, in an order in which the destructive controls come last.
func productCases(k Kernel, rows []Expectation) []Case {
	cases := []Case{bash("prepare", guest.Root, prepareScript)}
	for _, row := range rows {
		if row.Kernel == k.Name {
			cases = append(cases, verifyCase(row))
		}
	}
	add := func(list []scenario) {
		for _, s := range list {
			for _, user := range s.users {
				if s.on(k.Name) {
					cases = append(cases, bash(s.name, user, s.script))
				}
			}
		}
	}
	add(scenarios)
	cases = append(cases, networkCases()...)
	for i, w := range withoutUserNS {
		cases = append(cases, shell(fmt.Sprintf("set %d", i), guest.Root, w.set))
		add(w.scenarios)
		cases = append(cases, shell(fmt.Sprintf("reset %d", i), guest.Root, w.reset))
	}
	for _, user := range everyone {
		var lines strings.Builder
		for _, tr := range trialsOf(user) {
			lines.WriteString(tr.line())
		}
		inside := bash("inside", user, foreignScript+`coworker exec -w --env OUT --env FOREIGN -- bash -c "$TRIALS"`)
		inside.Env = []string{"TRIALS=" + lines.String()}
		cases = append(cases, inside, bash("control", user, foreignScript+lines.String()))
	}
	return cases
}

func checkProduct(t *testing.T, k Kernel, rows []Expectation, got map[string]Result) {
	t.Helper()
	for name, r := range got {
		if len(r.Leftover) > 0 {
			t.Errorf("processes are left behind: %v", r)
		}
		if setup := strings.HasPrefix(name, "set ") || strings.HasPrefix(name, "reset ") || strings.HasPrefix(name, "prepare "); setup && r.Exit != 0 {
			t.Errorf("setting up: %v", r)
		}
	}
	for _, row := range rows {
		if row.Kernel != k.Name {
			continue
		}
		for _, diff := range Check(row, got[row.verifyName()]) {
			t.Errorf("%s: %s", row.verifyName(), diff)
		}
		if row.Net.Egress() && row.Level != Refused {
			checkProxyNote(t, k, row, got[row.verifyName()])
		}
	}
	checkScenarios(t, k, scenarios, got)
	for _, user := range everyone {
		checkNetwork(t, user, redirect.ModeNAT, got)
	}
	for _, w := range withoutUserNS {
		checkScenarios(t, k, w.scenarios, got)
	}
	for _, user := range everyone {
		checkTrials(t, user, got["inside as "+user], got["control as "+user])
	}
}

func checkScenarios(t *testing.T, k Kernel, list []scenario, got map[string]Result) {
	t.Helper()
	for _, s := range list {
		for _, user := range s.users {
			if !s.on(k.Name) {
				continue
			}
			r := got[s.name+" as "+user]
			text := string(r.Stdout) + string(r.Stderr)
			if r.Exit != s.exit || r.Err != "" {
				t.Errorf("want exit %d: %v", s.exit, r)
			}
			for _, part := range s.says {
				if !strings.Contains(text, part) {
					t.Errorf("want %q: %v", part, r)
				}
			}
			for _, part := range s.never {
				if strings.Contains(text, part) {
					t.Errorf("must not say %q: %v", part, r)
				}
			}
		}
	}
}

// checkTrials wants every control to work and every attempt to be stopped by the wall it names.
func checkTrials(t *testing.T, user string, inside, control Result) {
	t.Helper()
	in, out := trialLines(inside), trialLines(control)
	failed := false
	for _, tr := range trialsOf(user) {
		if out[tr.name] != "worked" {
			failed = true
			t.Errorf("control %q as %s does not work: %q", tr.name, user, out[tr.name])
		}
		want := tr.stopped
		if want == "" {
			want = "worked"
		}
		if text := in[tr.name]; text == "" || !strings.Contains(text, want) {
			failed = true
			t.Errorf("%q as %s inside: %q, want %q", tr.name, user, text, want)
		}
	}
	if failed {
		t.Logf("%v\n%v", inside, control)
	}
}

func trialLines(r Result) map[string]string {
	lines := map[string]string{}
	for line := range strings.Lines(string(r.Stdout)) {
		if name, text, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			lines[name] = text
		}
	}
	return lines
}
