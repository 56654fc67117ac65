package wallspec

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"coworker/enforce"
)

// toolsDir is where installers inside the wall put programs when the usual place shows the host's.
const toolsDir = ".tools"

// substituteHome is the private home where the real one is itself visible as a tree, or part of one: nothing may
// be made in the person's folder.
const substituteHome = "/run/coworker/home"

// homeDirs persist between the sessions of one workspace: caches, and what installers put in the home. Folders
// that hold start-up files, settings or credentials (.config, .ssh, .gnupg, .cargo itself) do not.
var homeDirs = []string{
	".cache", ".npm", ".local/bin", ".local/lib", ".local/share", ".local/state", toolsDir,
	".cargo/bin", ".cargo/git", ".cargo/registry", ".rustup/toolchains", ".rustup/downloads", ".rustup/update-hashes",
	"go/bin", "go/pkg", "sdk", ".m2/repository", ".gradle/caches", ".gradle/native", ".gradle/wrapper", ".ivy2/cache",
	".nuget/packages", ".bun/bin", ".bun/install", ".deno/bin", ".nvm/versions", ".volta/tools", ".volta/bin",
	".pyenv/versions", ".gem", ".bundle/cache", ".pub-cache", ".mix", ".hex", ".stack/pantry", ".cabal/packages",
}

// Bounds of the person's files that are filtered.
const (
	maxPersonal = 1 << 20
	maxLines    = 20000
)

// chooseHome decides where the private home is, before anything that names it.
func (b *builder) chooseHome() error {
	b.inside = b.home
	if t, ok := treeOf(b.home, b.trees); ok {
		b.inside = substituteHome
		b.plan.Spec.Identity.Home = substituteHome
		b.note(fmt.Sprintf("the real home is visible as part of %q, so the private home is %s", t.path, substituteHome))
	}
	return nil
}

// homeFiles describes the private home. It is keyed by the workspace, so that what one project installs is not
// on the PATH of another.
func (b *builder) homeFiles() error {
	s := &b.plan.Spec
	s.HomeStore = path.Join(b.storeRoot(), "homes", HomeKey(s.Workspace))
	for _, dir := range slices.Concat(homeDirs, b.profile.Home) {
		host := path.Join(b.home, dir)
		if slices.Contains(s.Toolchains, host) || b.inTree(dir) {
			continue
		}
		s.HomeDirs = append(s.HomeDirs, dir)
	}
	slices.Sort(s.HomeDirs)
	s.HomeDirs = slices.Compact(s.HomeDirs)
	s.Caches = slices.DeleteFunc(s.Caches, func(c enforce.Cache) bool { return b.inTree(c.Dir) })

	bashrc := startup(b.shellPath())
	files := []enforce.File{
		{Path: ".gitconfig", Data: b.gitFile()},
		{Path: ".bashrc", Data: bashrc},
		{Path: ".profile", Data: bashrc},
		{Path: ".zshrc", Data: zshrc(b.shellPath())},
		{Path: ".ssh/known_hosts", Data: knownHosts(b.personal(".ssh/known_hosts"))},
		{Path: ".npmrc", Data: npmrc(b.personal(".npmrc"))},
		{Path: ".config/pip/pip.conf", Data: pipConf(slices.Concat(b.personal(".config/pip/pip.conf"), []byte("\n"), b.personal(".pip/pip.conf")))},
		{Path: ".rustup/settings.toml", Data: rustup(b.personal(".rustup/settings.toml"))},
		{Path: ".pyenv/version", Data: pyenv(b.personal(".pyenv/version"))},
	}
	for _, f := range files {
		if len(f.Data) > 0 && !b.inTree(f.Path) {
			f.Mode = 0o644
			s.HomeFiles = append(s.HomeFiles, f)
		}
	}
	return nil
}

// HomeKey names the private home of a workspace. 16 bytes: two workspaces do not meet by chance or by search.
func HomeKey(workspace string) string {
	sum := sha256.Sum256([]byte(workspace))
	return hex.EncodeToString(sum[:16])
}

// storeRoot is the caller's cache folder. If root starts a session for somebody else it must be one that this
// user owns and that root need not trust: it lies outside both homes.
func (b *builder) storeRoot() string {
	if b.host.UID == 0 && b.user.UID != 0 {
		return path.Join(adminCache, strconv.Itoa(b.user.UID))
	}
	return b.host.Dirs.Cache
}

// inTree reports whether something in the private home would be made in a person's folder.
func (b *builder) inTree(rel string) bool {
	_, ok := treeOf(path.Join(b.inside, rel), b.trees)
	return ok
}

// personal reads one file of the user's real home, nil if there is none. Where root reads for somebody else the
// file must be theirs: a link from their home could otherwise bring in root's.
func (b *builder) personal(rel string) []byte {
	p, info, err := b.host.Files.canonical(path.Join(b.home, rel))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var data []byte
	if err == nil {
		var read Info
		data, read, err = b.host.Files.ReadFile(p, maxPersonal)
		if err == nil && (read.Device != info.Device || read.Inode != info.Inode) {
			err = errors.New("it was replaced while it was read")
		}
		if err == nil && b.host.UID != b.user.UID && read.UID != b.user.UID {
			err = fmt.Errorf("it belongs to uid %d", read.UID)
		}
	}
	if err != nil {
		b.note(fmt.Sprintf("~/%s is not used: %v", rel, err))
		return nil
	}
	return data
}

func (b *builder) gitFile() []byte {
	var out bytes.Buffer
	out.WriteString("# Made anew for each session from the inert keys of the person's configuration.\n")
	for _, rel := range []string{".config/git/config", ".gitconfig"} { // git reads them in this order
		data := b.personal(rel)
		if len(data) == 0 || b.host.InertGit == nil {
			continue
		}
		inert, err := b.host.InertGit(data)
		if err != nil {
			b.note(fmt.Sprintf("~/%s is not used: %v", rel, err))
			continue
		}
		out.Write(inert)
		if bytes.Contains(bytes.ToLower(data), []byte("gpgsign")) {
			b.note("commits and tags made inside are not signed: keys and agents stay outside")
		}
	}
	fmt.Fprintf(&out, "[safe]\n\tdirectory = %s\n", GitQuote(b.plan.Spec.Workspace))
	out.Write(b.req.Net.GitConfig)
	return out.Bytes()
}

// GitQuote writes a value as git-config(1) defines it.
func GitQuote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`).Replace(s) + `"`
}

func (b *builder) shellPath() string { return shellQuote(strings.Join(b.path, ":")) }

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// startup serves bash and sh. PATH is set again because login shells of some systems reset it in /etc/profile.
func startup(quotedPath string) []byte {
	return []byte("# Made anew for each session.\nexport PATH=" + quotedPath + `
case $- in *i*) PS1='[walled] \w \$ ' ;; esac
`)
}

func zshrc(quotedPath string) []byte {
	return []byte("# Made anew for each session.\nexport PATH=" + quotedPath + "\nPROMPT='[walled] %~ %# '\n")
}

func lines(data []byte) []string {
	all := strings.Split(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n")
	return all[:min(len(all), maxLines)]
}

func join(kept []string) []byte {
	if len(kept) == 0 {
		return nil
	}
	return []byte(strings.Join(kept, "\n") + "\n")
}

// knownHosts keeps lines of the form of sshd(8): [marker] hosts type key [comment]. The comment is left out.
func knownHosts(data []byte) []byte {
	var kept []string
	for _, line := range lines(data) {
		f := strings.Fields(line)
		n := 3
		if len(f) > 0 && (f[0] == "@revoked" || f[0] == "@cert-authority") {
			n = 4
		}
		if len(f) < n || strings.HasPrefix(f[0], "#") || !keyType(f[n-2]) {
			continue
		}
		if _, err := base64.StdEncoding.DecodeString(f[n-1]); err != nil {
			continue
		}
		kept = append(kept, strings.Join(f[:n], " "))
	}
	return join(kept)
}

func keyType(s string) bool {
	for _, prefix := range []string{"ssh-", "ecdsa-sha2-", "sk-ssh-", "sk-ecdsa-"} {
		if strings.HasPrefix(s, prefix) {
			return true
		}
	}
	return false
}

// npmrc keeps which registries are used, not how to log in there (npmrc(5)).
func npmrc(data []byte) []byte {
	var kept []string
	for _, line := range lines(data) {
		key, value, ok := strings.Cut(line, "=")
		key, value = strings.TrimSpace(key), strings.Trim(strings.TrimSpace(value), `"`)
		scoped := strings.HasPrefix(key, "@") && strings.HasSuffix(key, ":registry") && !strings.ContainsAny(key, " \t/$")
		if ok && (key == "registry" || scoped) && publicURL(value) {
			kept = append(kept, key+"="+value)
		}
	}
	return join(kept)
}

// pipConf keeps which indexes are used.
func pipConf(data []byte) []byte {
	var kept []string
	for _, line := range lines(data) {
		key, value, ok := strings.Cut(line, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if ok && (key == "index-url" || key == "extra-index-url") && publicURL(value) {
			entry := key + " = " + value
			kept = append(slices.DeleteFunc(kept, func(k string) bool { return strings.HasPrefix(k, key+" ") }), entry)
		}
	}
	if kept == nil {
		return nil
	}
	return join(append([]string{"[global]"}, kept...))
}

// publicURL accepts an address without any part that could carry a login.
func publicURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.User == nil && u.RawQuery == "" &&
		u.Fragment == "" && !strings.ContainsAny(s, "$ \t'\"") && !secretValue(s)
}

// rustup keeps which toolchain is the default; without it the programs in ~/.cargo/bin only complain.
func rustup(data []byte) []byte {
	var kept []string
	for _, line := range lines(data) {
		if strings.HasPrefix(strings.TrimSpace(line), "[") {
			break // tables name folders of the person
		}
		key, value, ok := strings.Cut(line, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if ok && slices.Contains([]string{"default_toolchain", "default_host_triple", "profile", "version"}, key) && word(strings.Trim(value, `"`)) {
			kept = append(kept, key+" = "+value)
		}
	}
	return join(kept)
}

// pyenv keeps the names of the default versions, one a line.
func pyenv(data []byte) []byte {
	return join(slices.DeleteFunc(lines(data), func(line string) bool { return !word(line) }))
}

// word reports whether s is a plain name: no separator of any file that it is written to.
func word(s string) bool {
	return s != "" && len(s) < 128 && strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.' && r != '_'
	}) < 0
}
