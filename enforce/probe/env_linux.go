package probe

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strings"

	"coworker/enforce"
)

func env() []attempt {
	add := func(name string, run func(*battery) result) attempt {
		return attempt{name: name, wall: enforce.Env, run: run}
	}
	return []attempt{
		add("own", func(b *battery) result { return b.searchEnv(os.Environ()) }),
		add("initial", initialEnv),
		add("spec", func(b *battery) result { return b.searchEnv(b.Spec.Env) }),
		add("arguments", searchArguments),
	}
}

// searchEnv looks for the variable that only the supervisor has, and for the secret under any
// other name.
func (b *battery) searchEnv(env []string) result {
	if b.Targets.EnvName == "" {
		return unclear("the setup names no target")
	}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		if name == b.Targets.EnvName {
			return leaked("the variable " + name + " is set")
		}
		if b.Targets.Secret != "" && strings.Contains(value, b.Targets.Secret) {
			return leaked("the variable " + name + " holds the secret")
		}
	}
	return stopped("it is not set")
}

// initialEnv reads what exec put into memory; removing a variable later does not remove it there.
// A non-dumpable cell of an unprivileged person cannot read it, and neither can its children.
func initialEnv(b *battery) result {
	data, err := os.ReadFile("/proc/self/environ")
	if errors.Is(err, fs.ErrPermission) {
		return stopped("not readable from inside")
	}
	if err != nil {
		return unclear(err.Error())
	}
	return b.searchEnv(splitEnviron(data))
}

func searchArguments(b *battery) result {
	data, err := os.ReadFile("/proc/self/cmdline")
	if err != nil {
		return unclear(err.Error())
	}
	if b.Targets.Secret == "" {
		return unclear("the setup names no secret")
	}
	if bytes.Contains(data, []byte(b.Targets.Secret)) {
		return leaked("the secret is an argument of this process")
	}
	return stopped("no argument holds it")
}

func splitEnviron(data []byte) []string { return strings.Split(string(data), "\x00") }
