package wallspec

import (
	"slices"
	"strings"

	"coworker/platform/redact"
)

// passed are the variables every session gets if they are set: how to draw and in which language, and switches of
// build tools whose value is a word or a number and can neither name a program nor hold a login.
var passed = []string{
	"TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "LINES",
	"LANG", "LANGUAGE", "LC_ALL", "LC_ADDRESS", "LC_COLLATE", "LC_CTYPE", "LC_IDENTIFICATION", "LC_MEASUREMENT",
	"LC_MESSAGES", "LC_MONETARY", "LC_NAME", "LC_NUMERIC", "LC_PAPER", "LC_TELEPHONE", "LC_TIME",
	"TZ", "SOURCE_DATE_EPOCH", "CI", "GOTOOLCHAIN", "GOOS", "GOARCH", "GOMAXPROCS", "CGO_ENABLED", "NODE_ENV",
	"RUST_BACKTRACE", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE",
}

// toolHomes are passed if the folder they name is visible and read-only: there they can only choose between
// installations that are on the PATH as well.
var toolHomes = []string{"JAVA_HOME", "RUSTUP_HOME", "ANDROID_HOME", "ANDROID_SDK_ROOT", "DOTNET_ROOT"}

// class is what a variable could do to a session.
type class int

const (
	plain     class = iota
	managed         // coworker sets it, or decides that it is not set
	socket          // it leads to a service outside that acts for the person
	injection       // it makes programs load or run something
)

// names is a set of variables: whole names, and beginnings that end in "*".
type names []string

func (n names) has(name string) bool {
	return slices.ContainsFunc(n, func(pattern string) bool {
		if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
			return strings.HasPrefix(name, prefix)
		}
		return name == pattern
	})
}

var managedNames = names{
	"HOME", "USER", "LOGNAME", "SHELL", "PATH", "PWD", "OLDPWD", "SHLVL", "_", "TMPDIR", "TMP", "TEMP", "TEMPDIR",
	"XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME",
	"COWORKER_*", "GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_*", "GIT_CONFIG_VALUE_*", "GIT_CONFIG_PARAMETERS",
}

// Never passed, whatever is asked: the wall net.local closes these ways, and the variable alone would only make
// programs fail in odd ways, or find the service should the wall have a hole.
var socketNames = names{
	"SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "GNOME_KEYRING_*", "DBUS_*", "XDG_RUNTIME_DIR",
	"DOCKER_HOST", "DOCKER_CONTEXT", "CONTAINER_HOST", "CONTAINERD_ADDRESS", "BUILDKIT_HOST", "PODMAN_*", "LIBVIRT_*",
	"DISPLAY", "WAYLAND_*", "XAUTHORITY", "ICEAUTHORITY", "SESSION_MANAGER", "AT_SPI_BUS_ADDRESS", "PULSE_*", "PIPEWIRE_*",
	"TMUX", "TMUX_*", "STY", "ZELLIJ*", "SWAYSOCK", "I3SOCK", "HYPRLAND_*", "KITTY_LISTEN_ON", "KITTY_PUBLIC_KEY", "WEZTERM_UNIX_SOCKET",
	"NVIM", "NVIM_LISTEN_ADDRESS", "EMACS_SOCKET_NAME", "VSCODE_IPC_*", "VSCODE_GIT_*", "VSCODE_INJECTION",
	"NOTIFY_SOCKET", "LISTEN_*", "WATCHDOG_*", "SYSTEMD_*", "CREDENTIALS_DIRECTORY", "I_MPI_*", "PMI_*",
}

// Sources: ld.so(8), bash(1), git(1), python(1), perlrun(1), ruby(1), the manuals of Node.js, the JVM, .NET, Go,
// Cargo, OpenSSL, make, less and glibc's list of variables that it ignores in setuid programs (unsecvars.h).
var injectionNames = names{
	"LD_*", "DYLD_*", "GLIBC_TUNABLES", "GCONV_PATH", "GETCONF_DIR", "HOSTALIASES", "LOCALDOMAIN", "LOCPATH", "MALLOC_*",
	"NIS_PATH", "NLSPATH", "RESOLV_HOST_CONF", "RES_OPTIONS", "TZDIR", "ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS",
	"BASH_ENV", "ENV", "PROMPT_COMMAND", "PS0", "PS1", "PS2", "PS3", "PS4", "IFS", "CDPATH", "GLOBIGNORE", "SHELLOPTS", "BASHOPTS",
	"BASH_*", "ZDOTDIR", "FPATH", "HISTFILE", "INPUTRC", "KSH_*",
	"NODE_OPTIONS", "NODE_PATH", "NODE_REPL_EXTERNAL_MODULE", "NODE_EXTRA_CA_CERTS", "ELECTRON_*", "NPM_CONFIG_*", "npm_config_*", "YARN_*",
	"PYTHONSTARTUP", "PYTHONPATH", "PYTHONHOME", "PYTHONBREAKPOINT", "PYTHONINSPECT", "PYTHONUSERBASE", "PYTHONWARNINGS", "PYTHONEXECUTABLE",
	"PYTHONPLATLIBDIR", "PYTHONPYCACHEPREFIX", "PIP_*", "UV_*", "VIRTUAL_ENV", "CONDA_*",
	"PERL5OPT", "PERL5LIB", "PERLLIB", "PERL5DB", "PERL_*", "RUBYOPT", "RUBYLIB", "RUBYSHELL", "GEM_*", "BUNDLE_*",
	"JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "JAVA_OPTS", "JAVA_OPTIONS", "JAVA_HOME", "CLASSPATH", "MAVEN_*", "MVN_*", "GRADLE_*", "SBT_OPTS", "SCALA_*", "KOTLIN_*", "GROOVY_*",
	"DOTNET_*", "CORECLR_*", "COR_*", "COMPlus_*", "MONO_*",
	"GOFLAGS", "GOENV", "GOROOT", "GOPATH", "GOBIN", "GOTOOLDIR", "GOCACHEPROG", "GOAUTH", "GOVCS", "CC", "CXX", "LD", "AR",
	"RUSTC*", "RUSTDOC*", "RUSTFLAGS", "RUSTUP_*", "CARGO_*", "CARGO",
	"GIT_*", "SSH_ASKPASS", "SSH_ASKPASS_REQUIRE", "SUDO_*", "HG*", "SVN_*",
	"EDITOR", "VISUAL", "PAGER", "MANPAGER", "SYSTEMD_PAGER", "BROWSER", "LESS*", "MORE", "MANOPT", "FCEDIT", "DIFFPROG", "MAILER",
	"VIMINIT", "EXINIT", "GVIMINIT", "MYVIMRC", "VIM", "VIMRUNTIME", "EMACSLOADPATH", "TERMINFO*", "TERMCAP", "TERMPATH",
	"OPENSSL_*", "SSLKEYLOGFILE", "CURL_HOME", "WGETRC", "NETRC", "KRB5*", "GSS_*", "PKCS11_*", "P11_KIT_*",
	"MAKEFLAGS", "MAKEFILES", "GNUMAKEFLAGS", "MFLAGS", "MAKELEVEL", "CMAKE_*", "PKG_CONFIG*", "M4PATH", "AWKPATH", "AWKLIBPATH",
	"LUA_*", "R_*", "PHPRC", "PHP_INI_SCAN_DIR", "TCLLIBPATH", "GUILE_*", "JULIA_*", "ERL_*", "ELIXIR_*", "OCAML*", "GHC_*",
	"QT_*", "GTK_*", "GIO_*", "GST_*", "GDK_*", "LIBGL_*", "VK_*", "MESA_*", "OCL_*", "CUDA_*",
	"XDG_CONFIG_DIRS", "XDG_DATA_DIRS", "TAR_OPTIONS", "GREP_OPTIONS", "GZIP", "ZIPOPT", "UNZIP", "RSYNC_*", "FZF_*", "RIPGREP_CONFIG_PATH", "DIRENV_*", "PYENV_*", "NVM_*",
}

// harmless are exceptions from the wide patterns above.
var harmless = names{"CGO_ENABLED", "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "GIT_COMMITTER_DATE",
	"GIT_TERMINAL_PROMPT", "GIT_OPTIONAL_LOCKS", "CARGO_TERM_COLOR", "CARGO_INCREMENTAL", "CARGO_NET_OFFLINE", "CUDA_VISIBLE_DEVICES", "UV_OFFLINE", "PIP_NO_INPUT"}

func classify(name string) class {
	switch {
	case harmless.has(name) || slices.Contains(passed, name):
		return plain
	case managedNames.has(name):
		return managed
	case socketNames.has(name):
		return socket
	case injectionNames.has(name) || strings.HasPrefix(name, "CGO_"):
		return injection
	}
	return plain
}

// secretName reports whether a name says that the value is a secret. The variables of two password managers do
// not say so by a word.
func secretName(name string) bool { return redact.Key(name) || names{"OP_*", "BW_*"}.has(name) }

// secretValue reports whether a value looks like one: known token formats, private keys, URLs with a login, and
// runs of characters that only a generator writes.
func secretValue(value string) bool {
	if len(value) > 64<<10 {
		return true // nothing harmless is so long, and looking further costs
	}
	return patterns.String(value) != value || randomRun(value)
}

var patterns = redact.New()

// randomRun finds a run of 20 or more letters and digits that change between the two at least three times, as hex
// digests and base62 tokens do and words, versions, dates and triples do not. Telling a digest from a token is not
// possible, so both count.
func randomRun(s string) bool {
	const long, often = 20, 3
	start, changes, last := 0, 0, byte(0)
	for i := 0; i <= len(s); i++ {
		kind := byte(0)
		if i < len(s) {
			kind = alnum(s[i])
		}
		switch {
		case kind == 0:
			start, changes = i+1, 0
		case last != 0 && kind != last:
			changes++
		}
		if kind != 0 && i+1-start >= long && changes >= often {
			return true
		}
		last = kind
	}
	return false
}

func alnum(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return 'd'
	case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
		return 'l'
	}
	return 0
}
