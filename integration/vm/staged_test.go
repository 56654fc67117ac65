package vm

import (
	"slices"
	"testing"

	"coworker/integration/vm/guest"
)

// diskScript mounts a disk of its own: the guest has its files in memory, where user attributes came with Linux 6.6, and
// without them nothing can be staged.
const diskScript = `
set -e
dd if=/dev/zero of=/disk bs=1M count=64 2>/dev/null; mke2fs -q -F -t ext4 /disk; mkdir -p /srv; mount -t ext4 -o loop /disk /srv
for user in root worker; do mkdir -p /srv/$user/w; cd /srv/$user/w; echo secret >.env; git init -q . 2>/dev/null; chown -R $user /srv/$user; done`

const onDisk = `export COWORKER_HOME=/srv/$(id -un)/own; cd /srv/$(id -un)/w; `

var diskModules = []string{"overlay", "ext4", "loop"}

var stagedScenarios = []scenario{
	{name: "staged", users: everyone, kernels: landlock,
		script: onDisk + `coworker exec --staged --apply never --report ../report -- bash -c 'mkdir .vscode && echo x >.vscode/tasks.json
				git config core.fsmonitor evil; echo made >new; cat .env; mv .git g; ls -d g new' 2>&1
			echo "outside: $(ls -A | tr '\n' ' ')$(grep -c evil .git/config)"; tr -d ' \n' <../report | grep -o '"fs.protect":{[^}]*}'
			coworker exec --staged --apply auto -- bash -c 'echo made >new; echo x >.mcp.json' 2>&1; echo "applied: $(ls -A | tr '\n' ' ')"`,
		says: []string{"'.env': Permission denied", "outside: .env .git 0\n", `"fs.protect":{"verified":true,"mechanisms":["staged"]}`, "applied: .env .git new \n"}},
	{name: "staged, in memory", users: worker, kernels: []string{"6.1"}, exit: 120,
		script: `mkdir -p ~/plain; cd ~/plain; coworker exec --staged -- true`,
		says:   []string{"on a file system without user attributes", "hint: --live"}},
	{name: "staged, no overlay for users", users: everyone, kernels: []string{"5.10"}, exit: 120,
		script: onDisk + `coworker exec --staged -- touch made; code=$?; ls -A | tr '\n' ' '; exit $code`,
		says:   []string{"this kernel makes no overlay for a user namespace", "hint: --live"}, never: []string{"made"}},
}

// filesWithDisk are the standard files and what diskScript needs.
func filesWithDisk(t *testing.T) []File {
	t.Helper()
	tools, err := HostPrograms("mke2fs")
	if err != nil {
		t.Fatal(err)
	}
	files := tools // busybox has a program of that name, which knows no ext4
	for _, f := range standardFiles(t) {
		if !slices.ContainsFunc(tools, func(o File) bool { return o.Path == f.Path }) {
			files = append(files, f)
		}
	}
	return files
}

// testStaged runs staged sessions on each kernel: refused with the reason where there is no overlay for a user namespace.
func testStaged(t *testing.T, kernels []Kernel) {
	files := filesWithDisk(t)
	for _, k := range kernels {
		t.Run(k.Name, func(t *testing.T) {
			cases := []Case{bash("prepare", guest.Root, diskScript)}
			for _, s := range stagedScenarios {
				for _, user := range s.users {
					if s.on(k.Name) {
						cases = append(cases, bash(s.name, user, s.script))
					}
				}
			}
			got := boot(t, k, Guest{Files: files, Modules: diskModules, Cases: cases})
			if r := got["prepare as root"]; r.Exit != 0 {
				t.Fatalf("the disk: %v", r)
			}
			checkScenarios(t, k, stagedScenarios, got)
		})
	}
}
