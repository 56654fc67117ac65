package wallspec

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// toolchain is a folder of programs that is visible read-only at its own path.
type toolchain struct {
	dir  string // absolute, or relative to the home
	free string // why it holds no credential
}

// toolchainTable names the folders of programs, never the folder around them: what a manager needs to log in
// (settings, tokens) lies beside these.
var toolchainTable = []toolchain{
	{".cargo/bin", "programs; credentials.toml and config.toml lie in .cargo"},
	{".rustup/toolchains", "compilers; settings.toml lies in .rustup"},
	{".nvm/versions", "Node.js installations; npm's token lies in ~/.npmrc"},
	{".local/share/fnm/node-versions", "Node.js installations"},
	{".volta/bin", "links to programs"},
	{".volta/tools", "Node.js installations"},
	{".bun/bin", "programs; bunfig.toml lies in the home"},
	{".deno/bin", "programs"},
	{".pyenv/versions", "Python installations"},
	{".pyenv/shims", "shell scripts that start pyenv"},
	{".pyenv/bin", "shell scripts"},
	{".pyenv/libexec", "shell scripts"},
	{".pyenv/pyenv.d", "shell scripts"},
	{".local/share/uv/python", "Python installations"},
	{".local/share/uv/tools", "virtual environments of programs"},
	{".local/share/pipx/venvs", "virtual environments of programs"},
	{".local/pipx/venvs", "virtual environments of programs"},
	{".local/bin", "programs"},
	{".sdkman/candidates", "Java installations; etc/config lies in .sdkman"},
	{".jdks", "Java installations"},
	{".rbenv/versions", "Ruby installations; gem credentials lie in ~/.gem"},
	{".asdf/installs", "installations; .tool-versions lies in the home"},
	{".local/share/mise/installs", "installations; settings lie in .config/mise"},
	{".ghcup/bin", "programs"},
	{".ghcup/ghc", "compilers"},
	{".opam/opam-init", "shell scripts"},
	{"go/bin", "programs"},
	{"sdk", "Go installations made by golang.org/dl"},
	{"/opt", "software outside the package manager, for all users of the machine"},
	{"/nix/store", "world-readable by design: Nix forbids secrets there"},
	{"/snap", "images of installed snaps; their data lies in ~/snap and /var/snap"},
	{"/var/lib/snapd/snap", "the same on distributions without /snap"},
	{"/var/lib/flatpak/exports/bin", "start scripts"},
	{"/home/linuxbrew/.linuxbrew", "Homebrew's installation, for all users of the machine"},
}

// privateBins are on PATH last. They are in the private home and persist with it.
var privateBins = []string{toolsDir + "/bin", ".local/bin", "go/bin", ".cargo/bin", ".bun/bin"}

// noTools are places where a PATH entry is no toolchain: others write there, or other people's homes lie there.
var noTools = []string{"/tmp", "/var/tmp", "/run", "/var/run", "/home", "/root", "/Users", "/etc", "/boot", "/var/lib", "/var/cache", "/var/spool", "/mnt", "/media"}

func (b *builder) toolchains() error {
	var dirs []string
	for _, t := range toolchainTable {
		dirs = append(dirs, path.Join(homeOr(t.dir, b.home), t.dir))
	}
	for _, p := range b.req.Config.Exec.Toolchains {
		dirs = append(dirs, p.Expand(b.callerHome()))
	}
	for _, d := range dirs {
		b.addToolchain(d)
	}
	b.searchPath()
	slices.Sort(b.plan.Spec.Toolchains)
	return nil
}

func homeOr(dir, home string) string {
	if path.IsAbs(dir) {
		return "/"
	}
	return home
}

// addToolchain makes dir visible if it exists and nothing speaks against it.
func (b *builder) addToolchain(dir string) bool {
	p, info, err := b.host.Files.canonical(dir)
	if err != nil || !info.Mode.IsDir() || inAny(p, kernelDirs) || within(b.home, p) || slices.Contains(sharedRoots, p) && p != "/opt" {
		return false
	}
	if inSystem(p) || inAny(p, b.plan.Spec.Toolchains) {
		return true
	}
	if why := b.concealed(p); why != "" {
		b.note(fmt.Sprintf("tools in %q are not visible because of %s", p, why))
		return false
	}
	b.plan.Spec.Toolchains = append(slices.DeleteFunc(b.plan.Spec.Toolchains, func(t string) bool { return within(t, p) }), p)
	return true
}

// searchPath makes PATH: the host's entries in their order as far as they are visible and no session can write
// there, then the private home's.
func (b *builder) searchPath() {
	for _, entry := range strings.Split(b.inherited("PATH"), ":") {
		if !path.IsAbs(entry) {
			continue // empty and relative entries mean the working folder, which the repository fills
		}
		p, info, err := b.host.Files.canonical(entry)
		if err != nil || !info.Mode.IsDir() || strings.ContainsRune(p, ':') {
			continue
		}
		if b.usable(p, info) {
			b.path = append(b.path, p)
		}
	}
	for _, dir := range []string{"/usr/local/bin", "/usr/bin", "/bin"} {
		if _, info, err := b.host.Files.canonical(dir); err == nil && info.Mode.IsDir() {
			b.path = append(b.path, dir)
		}
	}
	for _, dir := range privateBins {
		b.path = append(b.path, path.Join(b.inside, dir))
	}
	b.path = unique(b.path)
}

// usable decides about one directory of the host's PATH.
func (b *builder) usable(p string, info Info) bool {
	if t, ok := treeOf(p, b.trees); ok {
		return t.kind == read && t.path != b.plan.Spec.Workspace && b.concealed(p) == ""
	}
	switch {
	case inSystem(p) || inAny(p, b.plan.Spec.Toolchains):
		return true
	case within(p, b.home) || inAny(p, noTools) || p == "/" || info.Mode.Perm()&0o002 != 0:
		return false
	}
	return b.addToolchain(b.installation(p))
}

// treeOf finds the smallest tree that holds p.
func treeOf(p string, trees []rule) (found rule, ok bool) {
	for _, t := range trees {
		if within(p, t.path) && (!ok || len(t.path) > len(found.path)) {
			found, ok = t, true
		}
	}
	return found, ok
}

// installation widens X/bin to X where X is known to be nothing but an installation: a compiler without its
// libraries is of no use. Of an unknown folder only bin is shown; beside it may lie anything.
func (b *builder) installation(bin string) string {
	root := path.Dir(bin)
	if path.Base(bin) != "bin" || path.Dir(root) == root {
		return bin
	}
	for _, marks := range [][]string{{"VERSION", "pkg/tool"}, {"release", "lib/modules"}, {"include/node", "lib/node_modules"}, {"pyvenv.cfg"}} {
		if !slices.ContainsFunc(marks, func(m string) bool { return !b.exists(path.Join(root, m)) }) {
			return root
		}
	}
	return bin
}

func (b *builder) exists(p string) bool {
	_, err := b.host.Files.Lstat(p)
	return err == nil
}

func unique(list []string) []string {
	var out []string
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
