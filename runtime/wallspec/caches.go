package wallspec

import (
	"fmt"
	"path"
	"strings"

	"coworker/enforce"
)

// cache is a host cache that shows through the private one. Reads find what the person downloaded; writes stay in
// the private home, so that no session can poison the host's builds.
type cache struct {
	dir  string // in the private home, where the tool looks by default
	env  string // variable that moves it on the host, and what follows the value
	rest string
	free string // why it holds no credential
}

var cacheTable = []cache{
	{"go/pkg/mod", "GOMODCACHE", "", "module source and its checksums; logins are in ~/.netrc"},
	{"go/pkg/mod", "GOPATH", "pkg/mod", "as above"},
	{".cache/go-build", "GOCACHE", "", "object files, named by the hash of their input"},
	{".npm/_cacache", "npm_config_cache", "_cacache", "tarballs and index records; npm keeps no request header with credentials in them"},
	{".cache/pip", "PIP_CACHE_DIR", "", "responses and wheels; credentials are in pip.conf, ~/.netrc and the keyring"},
	{".cache/uv", "UV_CACHE_DIR", "", "wheels and source; credentials are in .local/share/uv/credentials"},
	{".cache/pypoetry", "POETRY_CACHE_DIR", "", "wheels; credentials are in .config/pypoetry/auth.toml"},
	{".cargo/registry", "CARGO_HOME", "registry", "crates and index; credentials.toml lies in .cargo"},
	{".cargo/git", "CARGO_HOME", "git", "clones without remotes"},
	{".m2/repository", "", "", "artefacts; passwords are in .m2/settings.xml"},
	{".gradle/caches", "GRADLE_USER_HOME", "caches", "artefacts; passwords are in .gradle/gradle.properties"},
	{".gradle/wrapper", "GRADLE_USER_HOME", "wrapper", "Gradle distributions"},
	{".cache/yarn", "YARN_CACHE_FOLDER", "", "tarballs; tokens are in ~/.yarnrc.yml and ~/.npmrc"},
	{".local/share/pnpm/store", "", "", "package files, named by their hash"},
	{".cache/deno", "DENO_DIR", "", "modules; tokens are in DENO_AUTH_TOKENS"},
	{".bun/install/cache", "BUN_INSTALL_CACHE_DIR", "", "package files"},
	{".cache/bazel", "", "", "outputs and downloaded archives"},
	{".cache/ccache", "CCACHE_DIR", "", "object files"},
	{".nuget/packages", "NUGET_PACKAGES", "", "packages; credentials are in .nuget/NuGet"},
	{".ivy2/cache", "", "", "artefacts; credentials are in .ivy2/.credentials"},
	{".cache/coursier", "COURSIER_CACHE", "", "artefacts"},
	{".cache/composer", "COMPOSER_CACHE_DIR", "", "packages; auth.json lies in .config/composer"},
	{".stack/pantry", "", "", "package index"},
}

// caches finds those that exist. A variable counts only if the session runs as the caller whose variable it is,
// and only what belongs to that user or to root shows: another user's cache is another user's code.
func (b *builder) caches() error {
	if !b.req.Config.Cache.ShareHost() {
		b.note("host caches do not show: cache.share is false")
		return nil
	}
	seen := map[string]bool{}
	for _, c := range cacheTable {
		if seen[c.dir] {
			continue
		}
		given, moved := path.Join(b.home, c.dir), false
		if v := b.inherited(c.env); c.env != "" && path.IsAbs(v) && b.host.UID == b.user.UID {
			first, _, _ := strings.Cut(v, ":") // GOPATH is a list
			given, moved = path.Join(first, c.rest), true
		}
		lower, ok := b.cacheAt(given, moved)
		if !ok {
			continue
		}
		seen[c.dir] = true
		b.plan.Spec.Caches = append(b.plan.Spec.Caches, enforce.Cache{Dir: c.dir, Lower: lower})
	}
	return nil
}

func (b *builder) cacheAt(given string, moved bool) (string, bool) {
	p, info, err := b.host.Files.canonical(given)
	if err != nil || !info.Mode.IsDir() || p == "/" || within(b.home, p) {
		return "", false
	}
	switch {
	case inAny(p, kernelDirs) || inAny(p, []string{"/etc", "/boot", "/run", "/var/run", "/tmp", "/var/tmp"}):
		return "", false
	case !moved && !within(p, b.home):
		return "", false // a link out of the home: nobody configured it
	case info.UID != b.user.UID && info.UID != 0 || info.Mode.Perm()&0o002 != 0:
		b.note(fmt.Sprintf("cache %q does not show: it belongs to uid %d, mode %04o", p, info.UID, info.Mode.Perm()))
		return "", false
	}
	if why := b.concealed(p); why != "" {
		b.note(fmt.Sprintf("cache %q does not show because of %s", p, why))
		return "", false
	}
	return p, true
}
