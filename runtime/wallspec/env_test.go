package wallspec

import (
	"slices"
	"strings"
	"testing"

	"coworker/platform/config"
)

// The values are made up; the formats are those of the services.
const (
	fakeGitHub = "ghp_" + "0123456789abcdefghijABCDEFGHIJ012345"
	fakePEM    = "-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----"
)

// Rows 256 to 262 of the escape list: what a caller's environment must not carry in.
func TestCallerEnvironmentIsNotInherited(t *testing.T) {
	bad := []string{
		"LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", "BASH_ENV", "ENV", "IFS", "PROMPT_COMMAND", "PS4", // 256
		"PYTHONSTARTUP", "PYTHONPATH", "NODE_OPTIONS", "PERL5OPT", "RUBYOPT", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "DOTNET_STARTUP_HOOKS", "GOFLAGS",
		"OP_SERVICE_ACCOUNT_TOKEN", "OP_SESSION_x", // 257
		"GIT_CONFIG_KEY_9", "GIT_CONFIG_PARAMETERS", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_EXTERNAL_DIFF", "GIT_EXEC_PATH", "GIT_DIR", // 261
		"GEMINI_CLI_X", "COWORKER_HOME", "GCONV_PATH", "SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST", "XDG_RUNTIME_DIR",
		"AWS_ACCESS_KEY_ID", "GITHUB_TOKEN", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "EDITOR", "DISPLAY", "BASH_FUNC_ls%%", "LC_EVIL", "MY_APP",
	}
	var env []string
	for _, n := range bad {
		env = append(env, n+"=x")
	}
	p := mustBuild(t, Request{}, newMachine().host(1000, env...))
	got := envOf(p)
	for _, n := range bad {
		if _, ok := got[n]; ok {
			t.Errorf("%s came in", n)
		}
		if !slices.Contains(p.Summary.DroppedEnv, listed(n)) {
			t.Errorf("%s is not listed as dropped", n)
		}
	}
	for n, want := range map[string]string{"HOME": "/home/ada", "USER": "ada", "LOGNAME": "ada", "SHELL": "/bin/bash", "TMPDIR": "/tmp", // 257
		"XDG_CACHE_HOME": "/home/ada/.cache", "GIT_CONFIG_COUNT": "4", "GIT_CONFIG_KEY_0": "branch.autoSetupMerge", "GIT_CONFIG_VALUE_1": "false",
		"GIT_CONFIG_KEY_3": "safe.directory", "GIT_CONFIG_VALUE_3": "/home/ada/src/proj"} {
		if got[n] != want {
			t.Errorf("%s = %q, want %q", n, got[n], want)
		}
	}
}

func TestPassedList(t *testing.T) {
	h := newMachine().host(1000, "TERM=xterm-256color", "LC_ALL=de_DE.UTF-8", "NO_COLOR=", "TZ=a\nb", "LANG="+fakeGitHub, "LANGUAGE=\xff",
		"CI=1", "CI=2", "COLORTERM=x", "COLORTERM=x", "GOTOOLCHAIN=go1.27.3", "malformed", "=odd")
	p := mustBuild(t, Request{}, h)
	got := envOf(p)
	for n, want := range map[string]string{"TERM": "xterm-256color", "LC_ALL": "de_DE.UTF-8", "NO_COLOR": "", "COLORTERM": "x", "GOTOOLCHAIN": "go1.27.3"} {
		if v, ok := got[n]; !ok || v != want {
			t.Errorf("%s = %q %v, want %q", n, v, ok, want)
		}
	}
	for _, n := range []string{"TZ", "LANG", "LANGUAGE", "CI"} { // control character, secret, not UTF-8, ambiguous
		if _, ok := got[n]; ok || !slices.Contains(p.Summary.DroppedEnv, n) {
			t.Errorf("%s passed or is not listed", n)
		}
	}
	if strings.Contains(strings.Join(p.Summary.DroppedEnv, " "), "malformed") {
		t.Error("an entry that is no variable was printed")
	}
}

func TestEnvFlags(t *testing.T) {
	host := []string{"MY_APP=1", "MY_TOKEN=abc", "DB=postgres://u:pw@h/d", "KEYFILE_TEXT=" + fakePEM, "GH=" + fakeGitHub, "LD_PRELOAD=/x.so",
		"HEX=0123456789abcdef0123456789abcdef", "NL=a\nb", "BIN=\xff", "SSH_AUTH_SOCK=/s", "EMPTY_TOKEN=", "OP_SESSION=1"}
	tests := []struct {
		name    string
		req     Request
		want    map[string]string
		secrets []string
		wantErr string
		hint    string
	}{
		{"name", Request{Env: []string{"MY_APP"}}, map[string]string{"MY_APP": "1"}, nil, "", ""},                                 // 260
		{"name that is not set", Request{Env: []string{"NOPE"}}, map[string]string{"NOPE": "-"}, nil, "", ""},                     // 260
		{"value", Request{Env: []string{"A=b=c"}}, map[string]string{"A": "b=c"}, nil, "", ""},                                    // "=" in a value
		{"empty value", Request{Env: []string{"A="}}, map[string]string{"A": ""}, nil, "", ""},                                    // set, not unset
		{"empty secret name", Request{Env: []string{"EMPTY_TOKEN"}}, map[string]string{"EMPTY_TOKEN": ""}, nil, "", ""},           // nothing in it
		{"line break", Request{Env: []string{"NL"}}, map[string]string{"NL": "a\nb"}, nil, "", ""},                                // named
		{"same twice", Request{Env: []string{"A=1", "A=1"}}, map[string]string{"A": "1"}, nil, "", ""},                            //
		{"explicit injection", Request{Env: []string{"LD_PRELOAD=/y.so"}}, map[string]string{"LD_PRELOAD": "/y.so"}, nil, "", ""}, // the person's word
		{"secret by name", Request{EnvSecret: []string{"MY_TOKEN"}}, map[string]string{"MY_TOKEN": "abc"}, []string{"MY_TOKEN"}, "", ""},
		{"password manager, by name", Request{EnvSecret: []string{"OP_SESSION"}}, map[string]string{"OP_SESSION": "1"}, []string{"OP_SESSION"}, "", ""},
		{"password manager", Request{Env: []string{"OP_SESSION"}}, nil, nil, "the name OP_SESSION says", ""}, // 257
		{"settings", Request{Config: config.Config{Exec: config.Exec{Env: []config.Name{"MY_APP", "NOPE"}}}}, map[string]string{"MY_APP": "1"}, nil, "", ""},

		{"twice", Request{Env: []string{"A=1", "A=2"}}, nil, nil, "given twice", ""},
		{"inherited injection", Request{Env: []string{"LD_PRELOAD"}}, nil, nil, "load or run", "--env LD_PRELOAD=VALUE"},
		{"settings injection", Request{Config: config.Config{Exec: config.Exec{Env: []config.Name{"NODE_OPTIONS"}}}}, nil, nil, "load or run", ""},
		{"secret injection", Request{EnvSecret: []string{"LD_PRELOAD"}}, nil, nil, "not a secret", ""},
		{"secret name", Request{Env: []string{"MY_TOKEN"}}, nil, nil, "the name MY_TOKEN says", "--env-secret MY_TOKEN"}, // 259
		{"secret name, value", Request{Env: []string{"API_KEY=x"}}, nil, nil, "the name API_KEY says", "--env-secret API_KEY"},
		{"url login", Request{Env: []string{"DB"}}, nil, nil, "looks like a secret", "--env-secret DB"}, // 259
		{"key", Request{Env: []string{"KEYFILE_TEXT"}}, nil, nil, "looks like a secret", ""},
		{"token", Request{Env: []string{"X=" + fakeGitHub}}, nil, nil, "looks like a secret", ""},
		{"digest", Request{Env: []string{"HEX"}}, nil, nil, "looks like a secret", ""},
		{"settings secret", Request{Config: config.Config{Exec: config.Exec{Env: []config.Name{"MY_TOKEN"}}}}, nil, nil, "says that its value", ""},
		{"secret unset", Request{EnvSecret: []string{"NOPE"}}, nil, nil, "NOPE is not set", ""},
		{"secret with value", Request{EnvSecret: []string{"A=hunter2"}}, nil, nil, "visible to every user", ""},
		{"both", Request{Env: []string{"MY_APP"}, EnvSecret: []string{"MY_APP"}}, nil, nil, "as well", ""},
		{"socket", Request{Env: []string{"SSH_AUTH_SOCK"}}, nil, nil, "outside that acts for you", ""},
		{"socket, explicit", Request{Env: []string{"DOCKER_HOST=tcp://127.0.0.1:1"}}, nil, nil, "outside that acts for you", ""},
		{"socket, secret", Request{EnvSecret: []string{"SSH_AUTH_SOCK"}}, nil, nil, "outside that acts for you", ""},
		{"path", Request{Env: []string{"PATH=/tmp"}}, nil, nil, "set by coworker", ""}, // 262
		{"home", Request{EnvSecret: []string{"HOME"}}, nil, nil, "set by coworker", ""},
		{"supervisor prefix", Request{Env: []string{"COWORKER_X=1"}}, nil, nil, "set by coworker", ""},          // 262
		{"git injection", Request{Env: []string{"GIT_CONFIG_COUNT=9"}}, nil, nil, "set by coworker", ""},        // 261
		{"git injection 2", Request{Env: []string{"GIT_CONFIG_PARAMETERS=x"}}, nil, nil, "set by coworker", ""}, // 261
		{"pattern", Request{Env: []string{"MY_*"}}, nil, nil, `"MY_*" is not the name`, ""},                     // 258
		{"name with newline", Request{Env: []string{"A\nB=1"}}, nil, nil, `"A\nB" is not the name`, ""},
		{"no name", Request{Env: []string{"=1"}}, nil, nil, "is not the name", ""},
		{"nul", Request{Env: []string{"A=a\x00b"}}, nil, nil, "NUL", ""},
		{"not utf-8", Request{Env: []string{"BIN"}}, nil, nil, "not UTF-8", ""},
		{"long", Request{Env: []string{"A=" + strings.Repeat("ab ", 60<<10)}}, nil, nil, "looks like a secret", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newMachine().host(1000, host...)
			if tt.wantErr != "" {
				e := wantError(t, tt.req, h, tt.wantErr)
				if !strings.Contains(e.Hint(), tt.hint) {
					t.Errorf("hint %q, want %q", e.Hint(), tt.hint)
				}
				for _, v := range []string{"hunter2", "pw@", fakeGitHub, "MIIB"} {
					if strings.Contains(e.Error()+e.Hint(), v) {
						t.Errorf("the message holds the value: %v", e)
					}
				}
				return
			}
			p := mustBuild(t, tt.req, h)
			got := envOf(p)
			for n, want := range tt.want {
				if v, ok := got[n]; want == "-" && ok || want != "-" && (!ok || v != want) {
					t.Errorf("%s = %q %v, want %q", n, v, ok, want)
				}
			}
			if !slices.Equal(p.Summary.NamedSecrets, tt.secrets) {
				t.Errorf("named secrets %q", p.Summary.NamedSecrets)
			}
		})
	}
}

func TestSecretValue(t *testing.T) {
	for _, v := range []string{fakeGitHub, fakePEM, "https://user:pw@host/", "https://tok3n@host/", "0123456789abcdef0123456789abcdef",
		"AKIA" + "IOSFODNN7EXAMPL3", "x=1 y=9f86d081884c7d659a2feaa0", "xoxb-" + "123456789012-abcdefghijklmnop"} {
		if !secretValue(v) {
			t.Errorf("%q passes", v)
		}
	}
	for _, v := range []string{"", "1", "production", "/usr/lib/jvm/java-17-openjdk-amd64", "x86_64-unknown-linux-gnu", "2026-11-30T19:00:00Z",
		"https://proxy.example,direct", "go1.27.3", "en_US.UTF-8", "-O2 -g -march=x86-64-v3", "AbstractSingletonProxyFactoryBean", "20261130190000123456789",
		"git@github.com:a/b.git"} {
		if secretValue(v) {
			t.Errorf("%q is taken for a secret", v)
		}
	}
}

func TestClassify(t *testing.T) {
	for n, want := range map[string]class{"LD_BIND_NOW": injection, "BASH_FUNC_x": injection, "GIT_AUTHOR_NAME": plain, "GIT_SSH": injection, "CGO_CFLAGS": injection,
		"CGO_ENABLED": plain, "NODE_ENV": plain, "NODE_OPTIONS": injection, "TERM": plain, "TERMINFO": injection, "PATHX": plain, "PATH": managed, "OP_X": plain, "OPX": plain} {
		if got := classify(n); got != want {
			t.Errorf("%s: %d, want %d", n, got, want)
		}
	}
}
