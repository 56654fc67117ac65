package wallspec

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"coworker/platform/config"
)

// maxEnv is what one variable may have: the kernel refuses more (MAX_ARG_STRLEN, execve(2)).
const maxEnv = 128<<10 - 1

// inheritedEnv is the caller's environment. A name that stands there twice with two values has none: getenv takes
// the first, bash the last, and which of them a check saw would be luck.
func (b *builder) inheritedEnv() (values map[string]string, all []string) {
	values = map[string]string{}
	twice := map[string]bool{}
	for _, e := range b.host.Environ {
		name, value, ok := strings.Cut(e, "=")
		if !ok || name == "" {
			continue // not a variable; what it is may be anything, so it is not listed either
		}
		all = append(all, name)
		if old, seen := values[name]; seen && old != value {
			twice[name] = true
		}
		values[name] = value
	}
	for name := range twice {
		delete(values, name)
	}
	return values, all
}

func (b *builder) inherited(name string) string {
	values, _ := b.inheritedEnv()
	return values[name]
}

// environment makes exactly what commands get.
func (b *builder) environment() error {
	host, all := b.inheritedEnv()
	env := map[string]string{}
	for _, name := range passed {
		if v, ok := host[name]; ok && displayable(v) && !secretValue(v) {
			env[name] = v
		}
	}
	for _, name := range toolHomes {
		dir, info, err := b.host.Files.canonical(host[name])
		if err == nil && path.IsAbs(host[name]) && info.Mode.IsDir() && (inSystem(dir) || inAny(dir, b.plan.Spec.Toolchains)) {
			env[name] = dir
		}
	}
	for _, name := range b.req.Config.Exec.Env {
		if err := b.pass(env, host, "exec.env", string(name)); err != nil {
			return err
		}
	}
	for _, entry := range b.profile.Env {
		if err := b.give(env, host, "profile env", strings.ReplaceAll(entry, "$HOME", b.inside)); err != nil {
			return err
		}
	}
	if err := b.flags(env, host); err != nil {
		return err
	}
	b.ours(env)
	for name, value := range env {
		b.plan.Spec.Env = append(b.plan.Spec.Env, name+"="+value)
	}
	slices.Sort(b.plan.Spec.Env)
	for _, name := range all {
		if _, ok := env[name]; !ok && !slices.Contains([]string{"_", "SHLVL", "OLDPWD"}, name) {
			b.plan.Summary.DroppedEnv = append(b.plan.Summary.DroppedEnv, listed(name))
		}
	}
	return nil
}

// flags applies --env and --env-secret, which win over everything but what coworker sets itself.
func (b *builder) flags(env, host map[string]string) error {
	asked := map[string]string{}
	for _, entry := range b.req.Env {
		name, _, _ := strings.Cut(entry, "=")
		if old, seen := asked[name]; seen && old != entry {
			return refuse("--env", "give it once", "%s is given twice, differently", listed(name))
		}
		asked[name] = entry
		if err := b.give(env, host, "--env", entry); err != nil {
			return err
		}
	}
	for _, name := range b.profile.EnvSecret {
		if _, set := host[name]; set {
			if err := b.secret(env, host, "profile env_secret", name); err != nil {
				return err
			}
		}
	}
	for _, name := range b.req.EnvSecret {
		if _, seen := asked[name]; seen {
			return refuse("--env-secret", "give one of them", "%s is given with --env as well", listed(name))
		}
		if err := b.secret(env, host, "--env-secret", name); err != nil {
			return err
		}
	}
	return nil
}

// give handles NAME and NAME=VALUE.
func (b *builder) give(env, host map[string]string, subject, entry string) error {
	name, value, explicit := strings.Cut(entry, "=")
	if !explicit {
		return b.pass(env, host, subject, name)
	}
	if err := checkName(subject, name); err != nil {
		return err
	}
	if classify(name) == injection && subject == "--env" {
		b.note(fmt.Sprintf("%s %s: programs inside load or run what it says", subject, name))
	}
	if err := checkSecret(subject, name, value); err != nil {
		return err
	}
	if err := checkValue(subject, name, value); err != nil {
		return err
	}
	env[name] = value
	return nil
}

// pass takes a variable from the caller's environment. One that is not set stays so.
func (b *builder) pass(env, host map[string]string, subject, name string) error {
	if err := checkName(subject, name); err != nil {
		return err
	}
	if classify(name) == injection {
		return refuse(subject, fmt.Sprintf("if you want it, say what it is: --env %s=VALUE", name),
			"%s makes programs load or run something, and is not taken from the environment", name)
	}
	value, ok := host[name]
	if !ok {
		b.note(fmt.Sprintf("%s %s: not set here, so not set inside", subject, name))
		return nil
	}
	if err := checkSecret(subject, name, value); err != nil {
		return err
	}
	if err := checkValue(subject, name, value); err != nil {
		return err
	}
	env[name] = value
	return nil
}

// secret passes a variable that a person named as a secret.
func (b *builder) secret(env, host map[string]string, subject, entry string) error {
	name, _, explicit := strings.Cut(entry, "=")
	if explicit {
		return refuse(subject, fmt.Sprintf("export %s first, then --env-secret %s", listed(name), listed(name)),
			"a secret on the command line is visible to every user of the machine; only the name is given")
	}
	if err := checkName(subject, name); err != nil {
		return err
	}
	if classify(name) == injection {
		return refuse(subject, "", "%s makes programs load or run something; it is not a secret", name)
	}
	value, ok := host[name]
	if !ok {
		return refuse(subject, "export it, or leave the flag out", "%s is not set", name)
	}
	if err := checkValue(subject, name, value); err != nil {
		return err
	}
	env[name] = value
	b.plan.Summary.NamedSecrets = append(b.plan.Summary.NamedSecrets, name)
	return nil
}

func checkName(subject, name string) error {
	if !config.ValidName(name) {
		return refuse(subject, "", "%s is not the name of a variable: letters, digits and _, no digit first", listed(name))
	}
	switch classify(name) {
	case managed:
		return refuse(subject, "", "%s is set by coworker", name)
	case socket:
		return refuse(subject, "", "%s leads to a service outside that acts for you; sessions do not reach it", name)
	}
	return nil
}

func checkSecret(subject, name, value string) error {
	hint := fmt.Sprintf("if the session needs it: export %s, then --env-secret %s (recorded)", name, name)
	switch {
	case value == "":
		return nil
	case secretName(name):
		return refuse(subject, hint, "the name %s says that its value is a secret", name)
	case secretValue(value):
		return refuse(subject, hint, "the value of %s looks like a secret", name)
	}
	return nil
}

// checkValue accepts what a program can receive; line breaks are part of keys and certificates.
func checkValue(subject, name, value string) error {
	switch {
	case strings.ContainsRune(value, 0):
		return refuse(subject, "", "the value of %s holds a NUL byte", name)
	case !utf8.ValidString(value):
		return refuse(subject, "", "the value of %s is not UTF-8; the record could not show it", name)
	case len(value)+len(name) > maxEnv-2:
		return refuse(subject, "pass a file with --read instead", "the value of %s is longer than the kernel takes (128 KiB)", name)
	}
	return nil
}

// displayable is stricter, for what nobody named: these variables are words.
func displayable(v string) bool {
	return len(v) <= 1024 && utf8.ValidString(v) && strings.IndexFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f }) < 0
}

// listed makes a name safe to print. A very long or odd one may be a value that slipped.
func listed(name string) string {
	if len(name) > 64 {
		name = name[:64]
	}
	if config.ValidName(name) {
		return name
	}
	return strconv.Quote(name)
}

// ours sets what coworker decides. These come last and nothing overrides them.
func (b *builder) ours(env map[string]string) {
	set := func(name, value string) { env[name] = value }
	set("HOME", b.inside)
	set("USER", b.user.Name)
	set("LOGNAME", b.user.Name)
	set("SHELL", b.user.Shell)
	set("PATH", strings.Join(b.path, ":"))
	set("PWD", b.plan.Spec.Workspace)
	set("TMPDIR", "/tmp")
	set("XDG_CONFIG_HOME", path.Join(b.inside, ".config"))
	set("XDG_CACHE_HOME", path.Join(b.inside, ".cache"))
	set("XDG_DATA_HOME", path.Join(b.inside, ".local/share"))
	set("XDG_STATE_HOME", path.Join(b.inside, ".local/state"))
	// Installers write beside the host's tools by default, which are read-only.
	for _, r := range []struct{ host, name, value string }{
		{"go/bin", "GOBIN", toolsDir + "/bin"}, {".cargo/bin", "CARGO_INSTALL_ROOT", toolsDir}, {".local/bin", "PYTHONUSERBASE", toolsDir},
	} {
		if _, given := env[r.name]; !given && slices.Contains(b.plan.Spec.Toolchains, path.Join(b.home, r.host)) {
			set(r.name, path.Join(b.inside, r.value))
		}
	}
	b.netEnvironment(env)
	for i, kv := range b.gitConfig() {
		set(fmt.Sprintf("GIT_CONFIG_KEY_%d", i), kv[0])
		set(fmt.Sprintf("GIT_CONFIG_VALUE_%d", i), kv[1])
		set("GIT_CONFIG_COUNT", strconv.Itoa(i+1))
	}
}

// gitConfig gives the keys that must hold whatever the repository says: .git/config is protected, so tracking set
// up by `git switch -c` would fail; signing keys and agents stay outside. git reads safe.directory from the
// command scope since 2.38 (git-config(1)); for older ones it stands in .gitconfig too.
func (b *builder) gitConfig() [][2]string {
	return [][2]string{
		{"branch.autoSetupMerge", "false"},
		{"commit.gpgSign", "false"},
		{"tag.gpgSign", "false"},
		{"safe.directory", b.plan.Spec.Workspace},
	}
}
