package cli

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zalando/go-keyring"
)

const planted = "pl4nted-Value-77"

// secretsHome is a person's home for one test, and collects everything that was printed.
type secretsHome struct {
	t       *testing.T
	home    string
	printed strings.Builder
}

func newSecretsHome(t *testing.T) *secretsHome {
	h := &secretsHome{t: t, home: t.TempDir()}
	t.Setenv("HOME", h.home)
	t.Setenv("COWORKER_HOME", filepath.Join(h.home, "cw"))
	for _, name := range []string{"XDG_CONFIG_HOME", "NPM_CONFIG_USERCONFIG", "npm_config_userconfig", "PIP_CONFIG_FILE", "NETRC", "APPDATA", "DBUS_SESSION_BUS_ADDRESS"} {
		t.Setenv(name, "")
	}
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	return h
}

// run carries out one command line with a text on stdin.
func (h *secretsHome) run(stdin string, args ...string) (out, errText string, code int) {
	h.t.Helper()
	name := filepath.Join(h.t.TempDir(), "stdin")
	if err := os.WriteFile(name, []byte(stdin), 0o600); err != nil {
		h.t.Fatal(err)
	}
	in, err := os.Open(name)
	if err != nil {
		h.t.Fatal(err)
	}
	defer in.Close()
	var stdout, stderr bytes.Buffer
	err = Run(context.Background(), append([]string{"coworker"}, args...), Streams{In: in, Out: &stdout, Err: &stderr})
	code = Report(&stderr, err)
	h.printed.WriteString(stdout.String() + stderr.String())
	return stdout.String(), stderr.String(), code
}

// want is run with an expected exit code.
func (h *secretsHome) want(code int, stdin string, args ...string) (out, errText string) {
	h.t.Helper()
	out, errText, got := h.run(stdin, args...)
	if got != code {
		h.t.Fatalf("%q: exit code %d, want %d\n%s%s", args, got, code, out, errText)
	}
	return out, errText
}

func (h *secretsHome) file(name, text string) {
	h.t.Helper()
	name = filepath.Join(h.home, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// searched finds a text in any of the forms in which it would be of use.
func searched(text, value string) bool {
	for _, form := range []string{value, base64.StdEncoding.EncodeToString([]byte("ada:" + value)), hex.EncodeToString([]byte(value))} {
		if strings.Contains(text, form) {
			return true
		}
	}
	// base64 of the value at each of the three alignments, without the characters that its neighbours change.
	for shift := range 3 {
		encoded := base64.RawStdEncoding.EncodeToString(append(make([]byte, shift), value...))
		if strings.Contains(text, encoded[4:len(encoded)-4]) {
			return true
		}
	}
	return false
}

// leaks looks through what was printed, what export prints, and every file of coworker's.
func (h *secretsHome) leaks() (where []string) {
	h.t.Helper()
	if searched(h.printed.String(), planted) {
		where = append(where, "output")
	}
	err := filepath.WalkDir(filepath.Join(h.home, "cw"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if searched(string(data), planted) {
			where = append(where, path)
		}
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return where
}

// TestPlantedValueIsNowhere uses every command, well and badly, and looks for the value afterwards.
func TestPlantedValueIsNowhere(t *testing.T) {
	h := newSecretsHome(t)
	h.want(0, planted+"\n", "secrets", "set", "one", "--host", "api.example.com", "--path", "/v1", "--methods", "post,GET")
	h.want(0, planted, "secrets", "set", "--host", "git.example.com", "--basic", "ada", "two")
	h.want(0, planted+"\r\n", "secrets", "set", "three", "--unbound")
	h.want(1, planted, "secrets", "set", "one", "--host", "api.example.com")
	h.want(0, planted, "secrets", "set", "one", "--host", "api.example.com", "--replace", "--raw", "--header", "X-Key")
	h.want(exitConfiguration, planted+"\n"+planted, "secrets", "set", "four", "--host", "api.example.com")
	h.want(exitConfiguration, planted, "secrets", "set", planted, "--host", "api.example.com")
	h.want(exitConfiguration, planted, "secrets", "set", "--bearer="+planted, "--host", "api.example.com", "four")
	h.want(exitConfiguration, planted, "secrets", "set", "four", planted, "--host", "api.example.com")
	h.want(exitConfiguration, planted, "secrets", "set", "four", "--value="+planted)
	h.want(1, "", "secrets", "remove", planted)

	h.file(".npmrc", "//npm.example.com/:_authToken="+planted+"\n//b.example.com/:_auth="+base64.StdEncoding.EncodeToString([]byte("ada:"+planted))+"\n_authToken="+planted+"\n")
	h.file(".config/pip/pip.conf", "[global]\nindex-url = https://ada:"+planted+"@pip.example.com/simple\nextra-index-url = http://ada:"+planted+"@plain.example.com/ https://ada:"+planted+"%zz@x\n")
	h.file(".netrc", "machine netrc.example.com login ada password "+planted+"\ndefault login ada password "+planted+"\n")
	h.file(".git-credentials", "https://ada:"+planted+"@forge.example.com\nhttps://"+planted+":x-oauth-basic@hub.example.com\nhttps://ada:"+planted+"@[::1]\nhttps://ada:"+planted+"@forge.example.com\n")
	for _, kind := range []string{"npm", "pip", "git"} {
		h.want(0, "", "secrets", "import", kind, "--dry-run")
		h.want(exitConfiguration, "y\n", "secrets", "import", kind)
		h.want(0, "", "secrets", "import", kind, "--yes")
		h.want(1, "", "secrets", "import", kind, "--yes")
		h.want(0, "", "secrets", "import", kind, "--yes", "--replace")
	}
	h.want(0, "", "secrets", "list")
	h.want(0, "", "secrets", "list", "--json")
	h.want(0, "", "secrets", "remove", "two")
	h.want(0, "", "audit", "list")
	h.want(0, "", "audit", "show", "1")
	h.want(0, "", "audit", "export")
	sealed := "cw/state/secrets.age"
	data, err := os.ReadFile(filepath.Join(h.home, sealed))
	if err != nil {
		t.Fatal(err)
	}
	h.file(sealed, string(data[:len(data)-1]))
	_, text := h.want(exitConfiguration, "", "secrets", "list")
	if !strings.Contains(text, "secrets.age: it was changed or cut off\nhint: ") {
		t.Errorf("cut off: %s", text)
	}
	if where := h.leaks(); len(where) > 0 {
		t.Errorf("the value is in %v\n%s", where, h.printed.String())
	}
	// The search can fail.
	h.file("cw/state/planted", "x"+base64.StdEncoding.EncodeToString([]byte("b:"+planted)))
	if where := h.leaks(); len(where) != 1 {
		t.Errorf("a planted file is not found: %v", where)
	}
}

func TestSecretsSetRefuses(t *testing.T) {
	h := newSecretsHome(t)
	for _, flags := range []string{
		"", "--host *.example.com", "--host 192.0.2.1", "--host [2001:db8::1]", "--host a@example.com", "--host https://example.com",
		"--host example.com:80", "--host example.com:0", "--host example.com --path x", "--host example.com --path /a/../b",
		"--host example.com --methods GET,,POST", "--host example.com --methods CONNECT", "--host example.com --methods G;T",
		"--host example.com --header Host", "--host example.com --header A:b", "--host example.com --basic a:b",
		"--host example.com --bearer --raw", "--host example.com --basic a --raw", "--unbound --host example.com", "--unbound --raw",
	} {
		args := append([]string{"secrets", "set", "one"}, strings.Fields(flags)...)
		if _, text, code := h.run(planted, args...); code != exitConfiguration {
			t.Errorf("%s: exit code %d, %s", flags, code, text)
		}
	}
	if out, _ := h.want(0, "", "secrets", "list"); out != "there are no secrets\n" {
		t.Errorf("something was stored: %s", out)
	}
	if _, err := os.Stat(filepath.Join(h.home, "cw/state/secrets.json")); err == nil {
		t.Error("a refused set made a store")
	}
}

// TestChangeIsOnRecordThoughNobodyReadsTheResult: stdout is closed, the secret is stored, and so is the row.
func TestChangeIsOnRecordThoughNobodyReadsTheResult(t *testing.T) {
	h := newSecretsHome(t)
	h.file("value", planted)
	in, err := os.Open(filepath.Join(h.home, "value"))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	closed, err := os.Open(os.DevNull) // for reading: writes fail
	if err != nil {
		t.Fatal(err)
	}
	defer closed.Close()
	args := []string{"coworker", "secrets", "set", "one", "--host", "a.example.com"}
	if err := Run(context.Background(), args, Streams{In: in, Out: closed, Err: io.Discard}); ExitCode(err) != exitInternal {
		t.Errorf("%v", err)
	}
	if out, _ := h.want(0, "", "audit", "list"); !strings.Contains(out, "one a.example.com") {
		t.Errorf("no row: %s", out)
	}
}

func TestSecretsList(t *testing.T) {
	h := newSecretsHome(t)
	keyring.MockInit()
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere")
	out, _ := h.want(0, planted, "secrets", "set", "one", "--host", "API.example.com:8443", "--path", "/v1/", "--methods", "post,get,GET")
	if !strings.Contains(out, "the key is in the keyring of your session") {
		t.Errorf("%s", out)
	}
	out, _ = h.want(0, "", "secrets", "list", "--json")
	var got struct {
		Key     map[string]string
		Secrets []map[string]any
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Secrets) != 1 || got.Key["place"] != "keyring" {
		t.Fatalf("%s %v", out, err)
	}
	delete(got.Secrets[0], "created")
	text, err := json.Marshal(got.Secrets[0])
	if want := `{"header":"Authorization","host":"api.example.com","methods":["GET","POST"],"name":"one","path":"/v1","port":8443,"scheme":"bearer","source":"set"}`; err != nil || string(text) != want {
		t.Errorf("%s, want %s", text, want)
	}
}

// TestImportNarrows: what npm and pip had is for reading only, each entry keeps its place, and names are unique.
func TestImportNarrows(t *testing.T) {
	h := newSecretsHome(t)
	h.file(".npmrc", "//r.example.com/b/:_authToken=token-bbbb\n//r.example.com/a/:_authToken=token-aaaa\n//192.0.2.1/:_authToken=token-cccc\n")
	h.file(".netrc", "machine r.example.com login ada password password-a\nmachine r.example.com login bob password password-b\n")
	out, text := h.want(0, "", "secrets", "import", "npm", "--yes")
	if !strings.Contains(text, ".npmrc:3 is not taken") {
		t.Errorf("an address: %s", text)
	}
	for _, want := range []string{"npm-r.example.com    r.example.com  /a    GET,HEAD", "npm-r.example.com-2  r.example.com  /b    GET,HEAD"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	out, _ = h.want(0, "", "secrets", "import", "pip", "--yes", "--host", "r.example.com")
	if !strings.Contains(out, "pip-r.example.com  r.example.com  all   GET,HEAD  Authorization basic ada") || strings.Contains(out, "bob") {
		t.Errorf("%s", out)
	}
	h.want(1, "", "secrets", "import", "pip", "--yes", "--host", "other.example.com")
	h.want(1, "", "secrets", "import", "git", "--yes")
}

// TestGitFillIsOutsideOfWorkspaces: the settings of the folder that coworker runs in name a helper, and so do variables.
// Neither runs; the person's own does, once a host is named.
func TestGitFillIsOutsideOfWorkspaces(t *testing.T) {
	h := newSecretsHome(t)
	work := t.TempDir()
	if out, err := exec.Command("git", "init", "-q", work).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	helper := func(name string) string {
		return "!f() { : > \"$HOME/" + name + "\"; echo username=ada; echo password=" + planted + "; }; f"
	}
	if out, err := exec.Command("git", "-C", work, "config", "credential.helper", helper("hostile")).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	t.Chdir(work)
	t.Setenv("GIT_CONFIG_COUNT", "1")
	t.Setenv("GIT_CONFIG_KEY_0", "credential.helper")
	t.Setenv("GIT_CONFIG_VALUE_0", helper("variable"))
	t.Setenv("GIT_DIR", filepath.Join(work, ".git"))
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	ran := func(name string) bool { _, err := os.Stat(filepath.Join(h.home, name)); return err == nil }

	h.want(1, "", "secrets", "import", "git", "--yes", "--host", "git.example.com") // nobody has one, and nobody is asked
	h.file(".gitconfig", "[credential]\n\thelper = \""+strings.ReplaceAll(helper("own"), `"`, `\"`)+"\"\n")
	h.want(1, "", "secrets", "import", "git", "--yes")
	if ran("own") {
		t.Error("git was asked without --host")
	}
	out, _ := h.want(0, "", "secrets", "import", "git", "--yes", "--host", "git.example.com")
	if !ran("own") || !strings.Contains(out, "git-git.example.com") || !strings.Contains(out, "git credential fill") {
		t.Errorf("the person's helper: %s", out)
	}
	if ran("hostile") || ran("variable") {
		t.Error("a helper of the workspace or of a variable ran")
	}
	if where := h.leaks(); len(where) > 0 {
		t.Errorf("the value is in %v", where)
	}
}
