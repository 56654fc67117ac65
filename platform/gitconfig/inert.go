package gitconfig

// inertPlain holds keys without a subsection, inertSub those with one. Sources: git-config(1) of 2.39 and later; each key
// was read for a value that names a program, a file or a transport, or that makes git read other configuration.
// Left out on purpose: core.{fsmonitor,hooksPath,sshCommand,editor,pager,askPass,gitProxy,attributesFile,excludesFile,
// worktree,alternateRefsCommand,protectHFS,protectNTFS,commentChar}, init.templateDir (hooks), merge.tool and
// pull.octopus (run git-merge-NAME), rebase.instructionFormat (adds lines to the to-do list), commit.template,
// diff.external and diff.orderFile, gpg.*, credential.*, include*, url.*, http.*, protocol.*, safe.*, sequence.*, pager.*,
// filter.*, *.driver, *.command, *.cmd, trailer.*, sendemail.*, uploadpack.*, receive.*, extensions.worktreeConfig.
var inertPlain = map[string]check{
	"core.repositoryformatversion": oneOf("0", "1"),
	"core.filemode":                boolean,
	"core.bare":                    boolean,
	"core.logallrefupdates":        choice("always"),
	"core.ignorecase":              boolean,
	"core.precomposeunicode":       boolean,
	"core.symlinks":                boolean,
	"core.autocrlf":                choice("input"),
	"core.eol":                     oneOf("lf", "crlf", "native"),
	"core.safecrlf":                choice("warn"),
	"core.quotepath":               boolean,
	"core.whitespace":              text,
	"core.abbrev":                  choice("auto"),
	"core.compression":             number,
	"core.loosecompression":        number,
	"core.bigfilethreshold":        number,
	"core.checkstat":               oneOf("default", "minimal"),
	"core.trustctime":              boolean,
	"core.sparsecheckout":          boolean,
	"core.sparsecheckoutcone":      boolean,
	"core.untrackedcache":          choice("keep"),
	"core.preloadindex":            boolean,
	"core.fscache":                 boolean,
	"core.longpaths":               boolean,
	"core.hidedotfiles":            choice("dotgitonly"),
	"core.commitgraph":             boolean,
	"core.multipackindex":          boolean,
	"core.warnambiguousrefs":       boolean,

	"extensions.objectformat":      oneOf("sha1", "sha256"),
	"extensions.refstorage":        oneOf("files", "reftable"),
	"extensions.noop":              anything,
	"extensions.preciousobjects":   boolean,
	"extensions.relativeworktrees": boolean,

	"user.name": text, "user.email": text, "user.signingkey": signingKey, "user.useconfigonly": boolean,
	"author.name": text, "author.email": text, "committer.name": text, "committer.email": text,

	"init.defaultbranch": refs, "init.defaultobjectformat": oneOf("sha1", "sha256"),
	"init.defaultrefformat": oneOf("files", "reftable"),

	"branch.autosetupmerge":  choice("always", "inherit", "simple"),
	"branch.autosetuprebase": oneOf("never", "local", "remote", "always"),
	"branch.sort":            word,

	"pull.rebase": choice("merges", "interactive", "preserve", "m", "i"), "pull.ff": choice("only"),

	"push.default":            oneOf("nothing", "current", "upstream", "tracking", "simple", "matching"),
	"push.autosetupremote":    boolean,
	"push.followtags":         boolean,
	"push.recursesubmodules":  choice("check", "on-demand", "only"),
	"push.useforceifincludes": boolean,
	"remote.pushdefault":      remoteName,

	"merge.ff":                choice("only"),
	"merge.conflictstyle":     oneOf("merge", "diff3", "zdiff3"),
	"merge.log":               boolean,
	"merge.renames":           boolean,
	"merge.renamelimit":       number,
	"merge.directoryrenames":  choice("conflict"),
	"merge.stat":              boolean,
	"merge.verbosity":         number,
	"merge.branchdesc":        boolean,
	"merge.suppressdest":      refs,
	"merge.defaulttoupstream": boolean,
	"merge.autostash":         boolean,
	"merge.renormalize":       boolean,

	"diff.algorithm":          oneOf("default", "myers", "minimal", "patience", "histogram"),
	"diff.renames":            choice("copy", "copies"),
	"diff.renamelimit":        number,
	"diff.mnemonicprefix":     boolean,
	"diff.noprefix":           boolean,
	"diff.colormoved":         choice("default", "plain", "blocks", "zebra", "dimmed-zebra", "dimmed_zebra"),
	"diff.colormovedws":       word,
	"diff.context":            number,
	"diff.interhunkcontext":   number,
	"diff.indentheuristic":    boolean,
	"diff.ignoresubmodules":   choice("all", "untracked", "dirty", "none"),
	"diff.submodule":          oneOf("log", "short", "diff"),
	"diff.wserrorhighlight":   word,
	"diff.relative":           boolean,
	"diff.statgraphwidth":     number,
	"diff.autorefreshindex":   boolean,
	"diff.suppressblankempty": boolean,

	"fetch.prune": boolean, "fetch.prunetags": boolean, "fetch.all": boolean, "fetch.parallel": number,
	"fetch.writecommitgraph": boolean, "fetch.recursesubmodules": choice("on-demand"), "fetch.fsckobjects": boolean,
	"fetch.showforcedupdates": boolean, "fetch.output": oneOf("full", "compact"),
	"transfer.fsckobjects": boolean,

	"rebase.autosquash": boolean, "rebase.autostash": boolean, "rebase.stat": boolean, "rebase.updaterefs": boolean,
	"rebase.missingcommitscheck": oneOf("ignore", "warn", "error"), "rebase.forkpoint": boolean,
	"rebase.abbreviatecommands": boolean, "rebase.reschedulefailedexec": boolean,
	"rebase.rebasemerges": choice("rebase-cousins", "no-rebase-cousins"),

	"commit.gpgsign": boolean, "commit.verbose": boolean, "commit.status": boolean,
	"commit.cleanup": oneOf("strip", "whitespace", "verbatim", "scissors", "default"),
	"tag.sort":       word, "tag.gpgsign": boolean, "tag.forcesignannotated": boolean,

	"status.short": boolean, "status.branch": boolean, "status.aheadbehind": boolean, "status.renames": choice("copies", "copy"),
	"status.showstash": boolean, "status.showuntrackedfiles": choice("no", "normal", "all"),
	"status.submodulesummary": boolean, "status.relativepaths": boolean,
	"log.date": text, "log.decorate": choice("short", "full", "auto"), "log.abbrevcommit": boolean, "log.follow": boolean,
	"log.showsignature": boolean, "log.mailmap": boolean, "log.showroot": boolean, "log.graphcolors": text,
	"column.ui": text, "column.branch": text, "column.status": text, "column.tag": text,

	"gc.auto": number, "gc.autodetach": boolean, "gc.autopacklimit": number, "gc.packrefs": choice("notbare"),
	"gc.writecommitgraph": boolean, "maintenance.auto": boolean,
	"index.version": number, "index.threads": boolean, "index.sparse": boolean, "pack.threads": number,
	"rerere.enabled": boolean, "rerere.autoupdate": boolean, "feature.manyfiles": boolean,

	"submodule.active": text, "submodule.recurse": boolean, "submodule.fetchjobs": number,
	"lfs.repositoryformatversion": oneOf("0"), // written by git-lfs in every clone
}

var inertSub = map[string]check{
	"branch.remote":                 remoteName,
	"branch.pushremote":             remoteName,
	"branch.merge":                  refs,
	"branch.rebase":                 choice("merges", "interactive", "preserve", "m", "i"),
	"branch.description":            text,
	"branch.vscode-merge-base":      refs, // written by VS Code
	"branch.gh-merge-base":          refs, // written by GitHub CLI
	"branch.github-pr-owner-number": text,

	"remote.url":                remoteURL,
	"remote.pushurl":            remoteURL,
	"remote.fetch":              refs,
	"remote.push":               refs,
	"remote.tagopt":             oneOf("--tags", "--no-tags"),
	"remote.prune":              boolean,
	"remote.prunetags":          boolean,
	"remote.mirror":             boolean,
	"remote.skipdefaultupdate":  boolean,
	"remote.skipfetchall":       boolean,
	"remote.promisor":           boolean,
	"remote.partialclonefilter": text,
	"remote.gh-resolved":        text, // written by GitHub CLI

	"submodule.url":                    remoteURL,
	"submodule.active":                 boolean,
	"submodule.branch":                 refs,
	"submodule.ignore":                 oneOf("all", "dirty", "untracked", "none"),
	"submodule.fetchrecursesubmodules": choice("on-demand"),
	"submodule.shallow":                boolean,
	"submodule.update":                 oneOf("checkout", "rebase", "merge", "none"), // "!command" executes
}

// signingKey allows a key id, an address or a literal ssh key. A path is passed to ssh-keygen only, as an argument of its
// own; a leading dash would be an option.
func signingKey(e Entry) bool { return text(e) && e.Value != "" && e.Value[0] != '-' }
