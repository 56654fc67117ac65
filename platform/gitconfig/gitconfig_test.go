package gitconfig

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// gitList asks git itself. ok is false if git refuses the file.
func gitList(t testing.TB, data []byte) (list string, ok bool) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "c")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("git", "config", "-f", file, "--list", "-z")
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1", "GIT_CEILING_DIRECTORIES=" + filepath.Dir(dir)}
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal("git is needed:", err)
	}
	return string(out), err == nil
}

// render is what git config --list -z prints.
func render(entries []Entry) string {
	var b strings.Builder
	for _, e := range entries {
		b.WriteString(e.Name)
		if e.HasValue {
			b.WriteString("\n" + e.Value)
		}
		b.WriteByte(0)
	}
	return b.String()
}

var syntaxCases = []string{
	"", "\n", "[a]\nb = c\n", "[a]b=c", "[a]\nb", "[a]\nb = \n", "[a]\n\tb=c\n\td = e # x\n", "[A]\nB-1 = C\n",
	"[a \"B\"]\nc = d\n", "[a \"B\\\"q\\\\z\\x\"]\nc = d\n", "[a.B]\nc = d\n", "[a.b \"C\"]\nd = e\n", "[a \"\"]\nb = c\n",
	"[ \"x\"]\nb = c\n", "[.x]\nb = c\n", "[x.]\nb = c\n", "[.]\nb = c\n", "[]\nb = c\n", "[a\n]\nb = c\n", "[a \n\"b\"]\nc = d\n",
	"[a \"b\" ]\nc = d\n", "[a \"b\nc\"]\nd = e\n", "[a b]\nc = d\n", "[a]\nb = c\\\nd\n", "[a]\nb = c \\\n  d\n", "[a]\nb = \"c\\\nd\"\n",
	"[a]\nb = c ; d\n", "[a]\nb = \"c ; d\"\n", "[a]\nb = c\";\"d\n", "[a]\nb = \"  c  \"\n", "[a]\nb =   c   d  \n", "[a]\nb = c\t\td\n",
	"[a]\nb = \\t\\n\\b\\\\\\\"\n", "[a]\nb = \\x\n", "[a]\nb = \\r\n", "[a]\nb = \"c\n", "[a]\nb = c\\", "[a]\nb c\n", "[a]\nb : c\n",
	"[a]\n1b = c\n", "[a]\n_b = c\n", "[a]\nb_c = d\n", "[a]\nb.c = d\n", "[a_b]\nc = d\n", "[a-b]\nc = d\n", "[1a]\nb = c\n",
	"b = c\n", "b\n[a]\nc\n", "# x\n; y\n[a] # z\nb\n", "[a] ; z\n", "[a] x = y\n", "[a]\r\nb = c\r\n", "[a]\rb = c\n", "[a]\nb = c\rd\n",
	"[a]\nb\r\n", "[a]\nb = c\\\r\nd\n", "\xef\xbb\xbf[a]\nb = c\n", "\xef\xbb[a]\nb = c\n", "[a]\n\xef\xbb\xbfb = c\n", "\xef\xbb\xbf\xef\xbb\xbf[a]\n",
	"[a]\nb = \xff\xfe\n", "[\xffa]\nb\n", "[a \"\xff\"]\nb\n", "[a]\n\vb = c\n", "[a]\nb = \vc\f\n", "[a]\n[b]\nc\n[a]\nd\n", "[a]\nb = c = d\n",
	"[a]\nb = 'c'\n", "[a]\nb == c\n", "[a]\nb=#c\n", "[a]\nb = c#d\n", "[a]\nb # c\n", "[a]\nb ; c\n", "[include]\npath = /etc/passwd\n", "[a",
	"[a \"", "[a \"b", "[a \"b\\", "[a \"b\"", "[a]\nb = \"\"\n", "[a]\nb = \"\n\"\n", "[a]\nb\t= c\n", "[a]\nb \t \t= c\n", "[a]\nb = \" \" c\n",
	"[a]\nb = c \"d\" e\n", "[a]\nb=\\\n\\\n\\\nc\n", "[a]\nb = #\\\nc = d\n",
}

func TestAgainstGit(t *testing.T) {
	for _, in := range syntaxCases {
		compare(t, []byte(in))
	}
}

// compare holds Parse and git to the same answer, and Format to giving git the same entries.
func compare(t testing.TB, in []byte) {
	t.Helper()
	want, ok := gitList(t, in)
	entries, err := Parse(in)
	if (err == nil) != ok {
		t.Errorf("Parse(%q): %v, git accepts it: %v", in, err, ok)
		return
	}
	if err != nil {
		if !errors.Is(err, ErrSyntax) {
			t.Errorf("Parse(%q): %v is no ErrSyntax", in, err)
		}
		return
	}
	if got := render(entries); got != want {
		t.Errorf("Parse(%q)\n got %q\nwant %q", in, got, want)
	}
	if again, ok := gitList(t, Format(entries)); !ok || again != want {
		t.Errorf("Format of %q gives git %q, want %q\n%s", in, again, want, Format(entries))
	}
}

// TestOracleCanFail shows that the comparison sees a difference.
func TestOracleCanFail(t *testing.T) {
	list, ok := gitList(t, []byte("[a]\nb = c\n"))
	if !ok || list == render([]Entry{{Name: "a.b", Value: "d", HasValue: true}}) {
		t.Fatalf("git says %q, %v", list, ok)
	}
}

func TestBounds(t *testing.T) {
	if _, err := Parse(bytes.Repeat([]byte("#"), MaxBytes+1)); !errors.Is(err, ErrSyntax) {
		t.Error(err)
	}
	if _, err := Parse([]byte("[a]\n" + strings.Repeat("b\n", MaxEntries+1))); !errors.Is(err, ErrSyntax) {
		t.Error(err)
	}
	if _, err := Parse([]byte("[a]\nb = c\x00d\n")); !errors.Is(err, ErrSyntax) {
		t.Error(err)
	}
}

var executing = []string{
	"core.fsmonitor=x", "core.fsmonitor=true", "core.hookspath=x", "core.sshcommand=x", "core.editor=x", "core.pager=x", "core.askpass=x", "core.gitproxy=x",
	"core.attributesfile=x", "core.excludesfile=x", "core.worktree=..", "core.alternaterefscommand=x", "core.commentchar=x", "core.protecthfs=false",
	"core.repositoryformatversion=2", "core.nonsense=1", "diff.external=x", "diff.x.textconv=x", "diff.x.command=x", "diff.orderfile=x",
	"filter.x.clean=x", "filter.x.smudge=x", "filter.x.process=x", "filter.x.required=true", "merge.x.driver=x", "merge.tool=x", "merge.x.name=y",
	"gpg.program=x", "gpg.ssh.program=x", "gpg.ssh.defaultkeycommand=x", "gpg.format=ssh", "credential.helper=x", "credential.https://x.helper=y",
	"include.path=x", "includeif.gitdir:/.path=x", "url.ext::x.insteadof=https://", "http.proxy=x", "http.sslverify=false", "http.cookiefile=x",
	"sequence.editor=x", "remote.o.uploadpack=x", "remote.o.receivepack=x", "remote.o.vcs=x", "remote.o.proxy=x", "remotes.x=y",
	"remote.o.url=ext::sh -c x", "remote.o.url=/tmp/x", "remote.o.url=../x", "remote.o.url=file:///x", "remote.o.url=-x", "remote.o.url=ssh://-oProxyCommand=x/y",
	"remote.o.url=-oProxyCommand=x:y", "remote.o.url=http://x/y", "remote.o.url=git://x/y", "remote.o.url=HTTPS://x/y", "remote.o.url=fd::17", "remote.o.url=a::b",
	"remote.o.url=https://x/y\nz", "remote.o.url=ssh://u@-x/y", "remote.o.url=host:-x", "remote.o.url=", "remote.o.url=https://", "remote.o.url=x", "remote.o.url=a/b:c",
	"remote.o.pushurl=ext::x", "alias.x=!sh", "alias.x=!", "alias.x=difftool -x sh", "alias.x=rebase --exec sh", "alias.x=bisect run sh", "alias.x=grep -Osh x",
	"alias.x=--exec-path=/x y", "alias.x=fetch --upload-p=sh", "alias.x=fetch ext::sh", "alias.x=submodule foreach sh", "alias.x=foo", "alias.x=log --ext-diff",
	"alias.x=log --output=.git/hooks/x", "alias.x=merge -s evil", "alias.x= !sh", "alias.x=-c core.pager=sh log", "alias.x=pull -c", "alias.x=commit\n!x",
	"pager.log=x", "browser.x.cmd=y", "mergetool.x.cmd=y", "difftool.x.cmd=y", "man.x.cmd=y", "web.browser=x", "protocol.ext.allow=always", "protocol.allow=always",
	"extensions.worktreeconfig=true", "extensions.partialclone=o", "extensions.objectformat=x", "trailer.x.command=y", "trailer.x.cmd=y", "sendemail.smtpserver=/x",
	"submodule.x.update=!cmd", "submodule.x.url=ext::x", "submodule.x.url=../x", "safe.directory=*", "safe.barerepository=all", "uploadpack.packobjectshook=x",
	"receive.denycurrentbranch=ignore", "gc.recentobjectshook=x", "init.templatedir=x", "pull.octopus=evil", "pull.twohead=evil", "branch.x.remote=ext::x",
	"branch.x.remote=../x", "branch.x.mergeoptions=-s evil", "rebase.instructionformat=%nexec x", "commit.template=x", "tar.x.command=y", "instaweb.httpd=x",
	"lfs.customtransfer.x.path=y", "maintenance.repo=x", "a.b=c", "b=c", "user.signingkey=-x", "imap.tunnel=x", "bundle.uri=x", "fetch.bundleuri=x",
	"hook.x.command=y", "core.hookspath", "sendpack.sideband=true", "guitool.x.cmd=y", "remote.pushdefault=ext::x", "help.autocorrect=1", "notes.rewriteref=x",
}

var inert = []string{
	"core.repositoryformatversion=0", "core.filemode=true", "core.bare=false", "core.logallrefupdates=true", "core.ignorecase=true", "core.precomposeunicode=true",
	"core.symlinks=false", "core.autocrlf=input", "core.eol=lf", "branch.main.remote=origin", "branch.main.merge=refs/heads/main", "branch.a/b.rebase=true", "branch.x.remote=.",
	"remote.origin.url=https://example.com/a/b.git", "remote.origin.url=https://user@example.com:8443/a", "remote.origin.url=ssh://git@example.com:22/a", "remote.origin.url=git@github.com:a/b.git",
	"remote.origin.url=host:path", "remote.origin.pushurl=https://example.com/x", "remote.origin.fetch=+refs/heads/*:refs/remotes/origin/*", "remote.origin.tagopt=--no-tags",
	"submodule.a/b.url=https://example.com/x", "submodule.x.active=true", "submodule.active=.", "submodule.x.update=rebase", "user.name=A B", "user.email=a@b", "init.defaultbranch=main",
	"pull.rebase=true", "push.default=simple", "merge.conflictstyle=zdiff3", "diff.algorithm=histogram", "color.ui=auto", "color.diff.meta=yellow bold", "alias.st=status -sb",
	"alias.lg=log --graph --oneline", "alias.up=pull --rebase origin", "extensions.objectformat=sha256", "core.bare", "advice.detachedhead=false", "lfs.repositoryformatversion=0", "branch.main.vscode-merge-base=origin/main",
}

func entryOf(s string) Entry {
	name, value, has := strings.Cut(s, "=")
	if i := strings.LastIndex(s, ".insteadof="); i >= 0 {
		name, value, has = s[:i+len(".insteadof")], s[i+len(".insteadof="):], true
	}
	return Entry{Name: name, Value: value, HasValue: has}
}

func TestClassify(t *testing.T) {
	for _, s := range executing {
		if got := Classify(entryOf(s)); got != Executes {
			t.Errorf("%q is %v", s, got)
		}
	}
	for _, s := range inert {
		if got := Classify(entryOf(s)); got != Inert {
			t.Errorf("%q is %v", s, got)
		}
	}
}

// TestTablesAreLowerCase: a key with a capital would never match what Parse gives.
func TestTablesAreLowerCase(t *testing.T) {
	for _, table := range []map[string]check{inertPlain, inertSub} {
		for name := range table {
			if name != strings.ToLower(name) || strings.Count(name, ".") != 1 {
				t.Errorf("key %q", name)
			}
		}
	}
}

func TestMerge(t *testing.T) {
	const pinned = "# mine\n[core]\n\tbare = false\n\tpager = less\n[remote \"o\"]\n\turl = https://a/b\n"
	tests := []struct{ name, pinned, now, want, held string }{
		{"same", pinned, pinned, pinned, ""},
		{"inert added", pinned, pinned + "[branch \"x\"]\n\tremote = o\n", pinned + "[branch \"x\"]\n\tremote = o\n", ""},
		{"executing added", pinned, pinned + "[core]\n\tfsmonitor = evil\n", pinned, "+core.fsmonitor=evil"},
		{"executing changed", pinned, strings.Replace(pinned, "less", "evil", 1), pinned, "+core.pager=evil -core.pager=less"},
		{"executing removed", pinned, strings.Replace(pinned, "\tpager = less\n", "", 1), pinned, "-core.pager=less"},
		{"both", pinned, "[core]\n\tbare = true\n\tpager = evil\n", "[core]\n\tpager = \"less\"\n\tbare = \"true\"\n", "+core.pager=evil -core.pager=less"},
		{"ext remote", "", "[remote \"o\"]\n\turl = ext::sh\n\tfetch = +a:b\n", "[remote \"o\"]\n\tfetch = \"+a:b\"\n", "+remote.o.url=ext::sh"},
		{"order", "[x]\na=1\na=2\n", "[x]\na=2\na=1\n", "[x]\na=1\na=2\n", "+x.a=2 +x.a=1"},
	}
	for _, tt := range tests {
		got, held, err := Merge([]byte(tt.pinned), []byte(tt.now))
		var names []string
		for _, k := range held {
			sign := "+"
			if k.Removed {
				sign = "-"
			}
			names = append(names, sign+k.Name+"="+k.Value)
		}
		if err != nil || string(got) != tt.want || strings.Join(names, " ") != tt.held {
			t.Errorf("%s: %q, %q, %v", tt.name, got, names, err)
		}
	}
	if got, _, err := Merge([]byte(pinned), []byte("[a\n")); !errors.Is(err, ErrSyntax) || string(got) != pinned {
		t.Errorf("bad syntax: %q, %v", got, err)
	}
}

func TestInertGlobal(t *testing.T) {
	in := `[user]
	name = "A \"B\""
	signingkey = X
[include]
	path = x
[alias]
	st = status
	sh = !sh
	q = "  !sh"
	re = rebase -i
[core]
	editor = vim
	autocrlf = input
	hooksPath = x
[init]
	templateDir = x
	defaultBranch = main
[commit]
	gpgsign = true
[credential]
	helper = x
[url "git@x:"]
	insteadOf = https://x/
`
	want := "[user]\n\tname = \"A \\\"B\\\"\"\n[alias]\n\tst = \"status\"\n\tre = \"rebase -i\"\n[core]\n\tautocrlf = \"input\"\n[init]\n\tdefaultbranch = \"main\"\n"
	got, err := InertGlobal([]byte(in))
	if err != nil || string(got) != want {
		t.Errorf("%v\n%s", err, got)
	}
}

// FuzzMerge: whatever the new version is, no executing key that was not pinned comes through.
func FuzzMerge(f *testing.F) {
	for _, s := range syntaxCases {
		f.Add([]byte("[core]\npager = less\n"), []byte(s))
	}
	for _, s := range executing {
		f.Add([]byte("[core]\nbare = false\n"), Format([]Entry{entryOf(s)}))
	}
	f.Fuzz(func(t *testing.T, pinned, now []byte) {
		before, err := Parse(pinned)
		if err != nil {
			return
		}
		result, _, err := Merge(pinned, now)
		if err != nil {
			if !bytes.Equal(result, pinned) {
				t.Fatal("an unparsable version came through")
			}
			return
		}
		after, err := Parse(result)
		if err != nil {
			t.Fatalf("result does not parse: %v\n%q", err, result)
		}
		a, _ := divide(before)
		b, _ := divide(after)
		if !equal(a, b) {
			t.Fatalf("executing keys %v became %v", a, b)
		}
	})
}

// FuzzFormat: what is written reads back the same.
func FuzzFormat(f *testing.F) {
	for _, s := range syntaxCases {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := Parse(data)
		if err != nil {
			return
		}
		again, err := Parse(Format(entries))
		if err != nil || !equal(entries, again) {
			t.Fatalf("%v\n%+v\n%+v", err, entries, again)
		}
	})
}

// FuzzAgainstGit is the same comparison as TestAgainstGit; it starts a process for each input, so it is for longer runs.
func FuzzAgainstGit(f *testing.F) {
	f.Add([]byte("[a \"b\"]\nc = d\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if bytes.IndexByte(data, 0) >= 0 || len(data) > 4096 {
			return // Parse refuses NUL on purpose
		}
		compare(t, data)
	})
}

func ExampleClassify() {
	entries, _ := Parse([]byte("[core]\n\tfsmonitor = ./run\n[user]\n\tname = Ann\n"))
	for _, e := range entries {
		fmt.Println(e.Name, Classify(e))
	}
	// Output:
	// core.fsmonitor executes
	// user.name inert
}
