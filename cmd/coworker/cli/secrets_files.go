package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"coworker/platform/credfile"
	"coworker/platform/secret"
)

// credentialFile is one file that was read.
type credentialFile struct {
	name   string
	result credfile.Result
}

// credentialFiles reads what the program keeps for this person. Files that are not there are left out.
func (e *environment) credentialFiles(kind secret.Source) ([]credentialFile, error) {
	home := e.getenv("HOME")
	in := func(env, name string) string { // a file below the folder that a variable names
		if dir := e.getenv(env); dir != "" {
			return filepath.Join(dir, name)
		}
		return ""
	}
	var out []credentialFile
	var err error
	read := func(parse func([]byte) (credfile.Result, error), names ...string) {
		seen := map[string]bool{}
		for _, name := range names {
			if name == "" || seen[name] || err != nil {
				continue
			}
			seen[name] = true
			var file credentialFile
			if file, err = readCredentials(name, parse); err == nil && file.name != "" {
				out = append(out, file)
			}
		}
	}
	switch kind {
	case secret.FromNPM:
		npm := func(data []byte) (credfile.Result, error) { return credfile.ParseNPM(data, e.lookup) }
		read(npm, e.getenv("NPM_CONFIG_USERCONFIG"), e.getenv("npm_config_userconfig"), filepath.Join(home, ".npmrc"))
	case secret.FromPip:
		read(credfile.ParsePip, e.getenv("PIP_CONFIG_FILE"), in("XDG_CONFIG_HOME", "pip/pip.conf"), filepath.Join(home, ".config/pip/pip.conf"),
			filepath.Join(home, ".pip/pip.conf"), filepath.Join(home, "Library/Application Support/pip/pip.conf"), in("APPDATA", "pip/pip.ini"))
		read(credfile.ParseNetrc, e.getenv("NETRC"), filepath.Join(home, ".netrc"), filepath.Join(home, "_netrc"))
	case secret.FromGit:
		read(credfile.ParseGit, filepath.Join(home, ".git-credentials"), in("XDG_CONFIG_HOME", "git/credentials"), filepath.Join(home, ".config/git/credentials"))
	}
	return out, err
}

// lookup tells an empty variable from one that is not set as far as getenv does: npm fails on the second only, and an
// empty credential is none.
func (e *environment) lookup(name string) (string, bool) {
	text := e.getenv(name)
	return text, text != ""
}

// readCredentials returns the zero value for a file that is not there.
func readCredentials(name string, parse func([]byte) (credfile.Result, error)) (credentialFile, error) {
	wrong := func(err error) (credentialFile, error) {
		return credentialFile{}, &usageError{text: fmt.Sprintf("%s: %v", name, err), hint: "nothing was stored"}
	}
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return credentialFile{}, nil
	case err != nil:
		return credentialFile{}, err
	case info.IsDir() || name == os.DevNull: // PIP_CONFIG_FILE=/dev/null is pip's way to say none
		return credentialFile{}, nil
	case !info.Mode().IsRegular():
		return wrong(errors.New("not a regular file"))
	}
	f, err := os.Open(name)
	if err != nil {
		return credentialFile{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, credfile.MaxFile+1))
	if err != nil {
		return credentialFile{}, err
	}
	result, err := parse(data)
	if err != nil {
		return wrong(err)
	}
	return credentialFile{name, result}, nil
}

// gitLimit is for a helper that looks something up; there is nobody to answer a question.
const gitLimit = 20 * time.Second

// gitFill asks git's credential helpers for one host. git runs in the root folder with the person's own settings: those
// of a workspace could name a helper, which is a program.
func (e *environment) gitFill(ctx context.Context, host string) (credentialFile, error) {
	git, err := exec.LookPath("git")
	if err != nil {
		return credentialFile{}, &failedError{text: "git is not installed", hint: "leave out --host to read ~/.git-credentials only"}
	}
	ctx, cancel := context.WithTimeout(ctx, gitLimit)
	defer cancel()
	var out limitedBuffer
	cmd := exec.CommandContext(ctx, git, "-C", "/", "-c", "core.askPass=", "credential", "fill")
	cmd.Dir, cmd.Env = "/", gitEnvironment(os.Environ())
	cmd.Stdin, cmd.Stdout = strings.NewReader("protocol=https\nhost="+host+"\n\n"), &out
	cmd.WaitDelay = time.Second // a helper may have left something behind that holds the pipe
	if err := cmd.Run(); err != nil {
		// What git printed is left out: a helper's message may hold anything.
		e.note("note", fmt.Sprintf("git credential fill gave nothing for %s: %v", host, err), "")
		return credentialFile{}, nil
	}
	file := credentialFile{name: "git credential fill"}
	if c, ok := credfile.ParseGitFill(out.Bytes()); ok {
		file.result.Found = []credfile.Credential{c}
	}
	return file, nil
}

// gitEnvironment takes out what points git at a repository or at other settings, and closes its ways to ask.
func gitEnvironment(environ []string) []string {
	environ = slices.DeleteFunc(slices.Clone(environ), func(s string) bool {
		return strings.HasPrefix(s, "GIT_") || strings.HasPrefix(s, "SSH_ASKPASS")
	})
	return append(environ, "GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=", "SSH_ASKPASS=", "GCM_INTERACTIVE=never")
}

// limitedBuffer refuses more than one credential needs.
type limitedBuffer struct{ bytes.Buffer }

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > 2*secret.MaxValue {
		return 0, errors.New("more output than a credential has")
	}
	return b.Buffer.Write(p)
}
