package walls

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"coworker/integration/house/testuser"
)

// gitAttack plants something that git on the host would execute. $FIRE is a program that notes the word behind it.
type gitAttack struct {
	name   string
	setup  string // on the host, before
	attack string // inside; some commands fail there
	use    string // on the host, after: what a person does every day
}

const (
	newRepository = `git init -q $R && cd $R && echo a > a && git add a && git commit -q -m one`
	// everyday starts every program that a poisoned repository would start.
	everyday = `cd $R; git status; git diff; git add -A; git commit -q --allow-empty -m two; git checkout -q -b side$$; git st; git log -1`
)

var gitAttacks = []gitAttack{
	{"fsmonitor", newRepository, `git -C $R config core.fsmonitor "$FIRE fsmonitor"`, everyday},
	{"hookspath", newRepository, `mkdir -p $R/tools && printf '#!/bin/sh\n%s hookspath' "$FIRE" > $R/tools/pre-commit && chmod +x $R/tools/pre-commit; git -C $R config core.hooksPath tools`, everyday},
	{"hook", newRepository, `mkdir -p $R/.git/hooks; printf '#!/bin/sh\n%s hook' "$FIRE" > $R/.git/hooks/pre-commit; chmod +x $R/.git/hooks/pre-commit`, everyday},
	{"hook-renamed", newRepository, `printf '#!/bin/sh\n%s hook-renamed' "$FIRE" > h; chmod +x h; mv h $R/.git/hooks/post-checkout`, everyday},
	{"hooks-aside", newRepository, `mv $R/.git/hooks $R/.git/old; mkdir $R/.git/hooks; printf '#!/bin/sh\n%s hooks-aside' "$FIRE" > $R/.git/hooks/pre-commit; chmod +x $R/.git/hooks/pre-commit`, everyday},
	{"alias", newRepository, `git -C $R config alias.st "!$FIRE alias"`, everyday},
	{"include", newRepository, `printf '[core]\nfsmonitor = %s include\n' "$FIRE" > $R/more; git -C $R config include.path ../more`, everyday},
	{"config-replaced", newRepository, `cp $R/.git/config c; git config -f c core.fsmonitor "$FIRE config-replaced"; mv c $R/.git/config`, everyday},
	{"git-aside", newRepository, `cp -r $R/.git g; git config -f g/config core.fsmonitor "$FIRE git-aside"; mv $R/.git old-git; mv g $R/.git`, everyday},
	{"fresh", `true`, newRepository + `; git config core.fsmonitor "$FIRE fresh"`, everyday},
	{"fresh-hook", `true`, newRepository + `; mkdir -p .git/hooks; printf '#!/bin/sh\n%s fresh-hook' "$FIRE" > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit`, everyday},
	{"fresh-moved", `true`, `mkdir $R; git init -q m; git config -f m/.git/config core.fsmonitor "$FIRE fresh-moved"; mv m/.git $R/.git`, everyday},
	{"template", `true`, `mkdir -p t/hooks; printf '#!/bin/sh\n%s template' "$FIRE" > t/hooks/pre-commit; chmod +x t/hooks/pre-commit; git init -q --template=t $R`, everyday},
	{"deep", `mkdir -p $R/1/2/3/4/5/6; cd $R/1/2/3/4/5/6; git init -q`, `git -C $R/1/2/3/4/5/6 config core.fsmonitor "$FIRE deep"`, `cd $R/1/2/3/4/5/6; git status`},
	{"gitfile", `true`, `git init -q --bare evil; git config -f evil/config core.bare false; git config -f evil/config core.fsmonitor "$FIRE gitfile"; mkdir $R; echo "gitdir: ../evil" > $R/.git`, everyday},
	{"gitfile-replaced", `git init -q main-$R; cd main-$R; git commit -q --allow-empty -m a; git worktree add -q ../$R 2>&1`,
		`git init -q --bare evil2; git config -f evil2/config core.bare false; git config -f evil2/config core.fsmonitor "$FIRE gitfile-replaced"; rm -f $R/.git; echo "gitdir: ../evil2" > $R/.git`, everyday},
	{"gitlink", `true`, `git init -q --bare evil3; git config -f evil3/config core.bare false; git config -f evil3/config core.fsmonitor "$FIRE gitlink"; mkdir $R; ln -s ../evil3 $R/.git`, everyday},
	{"commondir", newRepository, `git clone -q --bare $R $R/common; git config -f $R/common/config core.fsmonitor "$FIRE commondir"; git config -f $R/common/config core.bare false; echo ../common > $R/.git/commondir`, everyday},
	{"config-worktree", newRepository + `; git config extensions.worktreeConfig true`, `printf '[core]\nfsmonitor = %s config-worktree\n' "$FIRE" > $R/.git/config.worktree`, everyday},
	{"worktree-config", `git init -q $R-main; cd $R-main; git commit -q --allow-empty -m a; git config extensions.worktreeConfig true; git worktree add -q ../$R 2>&1`,
		`d=$(ls -d $R-main/.git/worktrees/*); printf '[core]\nfsmonitor = %s worktree-config\n' "$FIRE" > $d/config.worktree`, everyday},
	{"worktree-commondir", `git init -q $R-main; cd $R-main; git commit -q --allow-empty -m a; git worktree add -q ../$R 2>&1`,
		`git clone -q --bare $R-main $R-evil; git config -f $R-evil/config core.bare false; git config -f $R-evil/config core.fsmonitor "$FIRE worktree-commondir"; for d in $R-main/.git/worktrees/*; do rm -f $d/commondir; echo ../../../../$R-evil > $d/commondir; done`, everyday},
	{"attributes", newRepository, `mkdir -p $R/.git/info; echo '* filter=mine' > $R/.git/info/attributes; echo b > $R/a`, everyday},
	{"bare", `mkdir $R`, `cd $R; mkdir objects refs; echo 'ref: refs/heads/main' > HEAD; printf '[core]\nrepositoryformatversion = 0\nbare = false\nworktree = .\nfsmonitor = %s bare\n' "$FIRE" > config`, `cd $R; git status`},
	{"modules", `git init -q $R-sub; (cd $R-sub; git commit -q --allow-empty -m a); git init -q $R; cd $R; git -c protocol.file.allow=always submodule --quiet add ../$R-sub sub; git commit -q -m sub`,
		`git config -f $R/.git/modules/sub/config core.fsmonitor "$FIRE modules"`, everyday},
	{"rebase", newRepository + `; echo b > a; git commit -q -am two`,
		`cd $R; GIT_SEQUENCE_EDITOR="sh -c 'printf \"break\nexec $FIRE rebase\n\" > \$1' x" git rebase -q -i HEAD~1`, `cd $R; git rebase --continue`},
	{"unlistable", `true`, `(` + newRepository + `; git config core.fsmonitor "$FIRE unlistable"); chmod 100 $R`, everyday},
	{"unreadable", `true`, `(` + newRepository + `; git config core.fsmonitor "$FIRE unreadable"); chmod 000 $R/.git`, `chmod -R u+rwX $R; ` + everyday},
	{"environment", newRepository, `cd $R; GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=core.hooksPath GIT_CONFIG_VALUE_0=. git config core.fsmonitor "$FIRE environment"`, everyday},
}

// gitScript puts parts of all attacks into one script, each in a shell of its own.
func gitScript(w *world, part func(gitAttack) string) string {
	var b strings.Builder
	b.WriteString("export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b FIRE=" + w.outside + "/fire\n")
	for _, a := range gitAttacks {
		b.WriteString("(R=" + a.name + "\n" + part(a) + "\n)\n")
	}
	return b.String()
}

// onHost runs a script as the person, in their workspace.
func (w *world) onHost(t testing.TB, script string) ended {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := w.user.Command(ctx, w.home, "bash", "-c", script)
	cmd.Dir = w.work
	cmd.Env = append(cmd.Env, "GIT_CONFIG_NOSYSTEM=1", "GIT_EDITOR=true")
	return w.finish(t, nil, cmd)
}

// armed is an empty world with the program that notes what was executed, and a person's git configuration.
func armed(t testing.TB, u testuser.User) *world {
	t.Helper()
	w := emptyWorld(t, u)
	for file, text := range map[string]string{
		filepath.Join(w.outside, "fire"):    "#!/bin/sh\n: > \"${0%/*}/fired-$1\"\n",
		filepath.Join(w.home, ".gitconfig"): "[init]\ndefaultBranch = main\n[filter \"mine\"]\nclean = " + w.outside + "/fire attributes\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := u.Own(w.base); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) fired(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(w.outside, "fired-*"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimPrefix(filepath.Base(f), "fired-"))
	}
	return names
}

// TestGit plants what git executes, by every way we know, and then works with git on the host as a person does.
func TestGit(t *testing.T) {
	setup := func(a gitAttack) string { return a.setup }
	attack := func(a gitAttack) string { return a.attack }
	use := func(a gitAttack) string { return a.use }
	eachUser(t, func(t *testing.T, u testuser.User) {
		for name, flags := range map[string][]string{"inside": nil, "staged": {"--staged", "--apply", "auto"}} {
			t.Run(name, func(t *testing.T) {
				w := armed(t, u)
				w.onHost(t, gitScript(w, setup))
				e := w.exec(t, flags, "bash", "-c", gitScript(w, attack)+"\ntrue")
				if e.report.Started == nil {
					t.Fatalf("the session did not start: %s", e.err)
				}
				if flags != nil && (e.report.Staged == nil || e.report.Staged.Applied == 0) {
					t.Fatalf("nothing was applied: %.2000s", e.err)
				}
				used := w.onHost(t, gitScript(w, use))
				for _, name := range w.fired(t) {
					t.Errorf("LEAK: git on the host executed what %s planted", name)
				}
				if t.Failed() {
					t.Logf("inside: %.1500s\nheld: %+v\nhost: %.500s", e.err, e.report.Held, used.err)
				}
			})
		}
		t.Run("control", func(t *testing.T) {
			w := armed(t, u)
			w.onHost(t, gitScript(w, setup))
			attacked := w.onHost(t, gitScript(w, attack))
			used := w.onHost(t, gitScript(w, use))
			fired := w.fired(t)
			for _, a := range gitAttacks {
				if !slices.Contains(fired, a.name) {
					t.Errorf("%s outside is not executed: inside it shows nothing", a.name)
				}
			}
			if t.Failed() {
				t.Logf("attack: %.1500s\nhost: %.1500s", attacked.err, used.err)
			}
		})
	})
}
