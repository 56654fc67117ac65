package credential

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"coworker/integration/house/testuser"
)

// findings is what seeker prints.
type findings struct {
	Hits      []string `json:"hits"`
	Files     int      `json:"files"`
	Processes int      `json:"processes"`
	Memory    int64    `json:"memory"`
	Answers   []string `json:"answers"`
	Held      int      `json:"held"`
}

// seek runs seeker inside: it looks for the forms of s while it, and a program of its own, hold answers of servers.
func (p *person) seek(t *testing.T, s secret, flags []string, args ...string) (findings, ended) {
	t.Helper()
	exe := testuser.Install(t, filepath.Join(built, "seeker"))
	p.write(t, filepath.Join(p.work, "forms"), s.masked())
	argv := append([]string{filepath.Join(exe, "seeker"), "forms"}, args...)
	e := p.exec(t, append(flags, "--read", exe), argv...)
	if e.code != 0 {
		t.Fatal(e)
	}
	var f findings
	if err := json.Unmarshal([]byte(e.out), &f); err != nil {
		t.Fatalf("%v\n%s", err, e)
	}
	return f, e
}

// holdEcho has Python ask for everything that the server was sent, and keep it in memory.
const holdEcho = `import sys, urllib.request
held = [urllib.request.urlopen('https://ok.test/echo') for _ in range(3)]
held = [(r.read(), list(r.headers.items())) for r in held]
print('holds', sum(len(b) for b, _ in held), flush=True)
sys.stdin.read()`

// TestNoTraceInside: servers tell what they were sent, and nothing of it is inside.
func TestNoTraceInside(t *testing.T) {
	eachUser(t, func(t *testing.T, p *person) {
		l := p.lend(t)
		f, e := p.seek(t, l.all(), allow("ok.test", "npm.test", "git.test"),
			"https://ok.test/echo?early", "https://ok.test/dribble", "https://ok.test/x", "https://npm.test/left", "https://git.test/repo.git/info/refs?service=git-upload-pack", "--", "/usr/bin/python3", "-c", holdEcho)
		for _, hit := range f.Hits {
			t.Errorf("inside: %s", hit)
		}
		for _, one := range to("ok.test:443", p.take()) {
			if one.header.Get("Authorization") != "Bearer "+l.api.value {
				t.Errorf("the server got %q", one.header)
			}
		}
		if f.Files < 30 || f.Processes < 2 || f.Memory < 10<<20 || f.Held < 2000 || len(f.Answers) != 1 || !strings.HasPrefix(f.Answers[0], "holds ") {
			t.Errorf("seeker looked at too little: %+v", f)
		}
		if got := l.all().in([]byte(e.out + e.err + e.rawText)); len(got) > 0 {
			t.Errorf("coworker's own output holds %q", got)
		}
	})
}

// TestSeekerFinds is the control: the same search finds the same values where they are.
func TestSeekerFinds(t *testing.T) {
	eachUser(t, func(t *testing.T, p *person) {
		planted := newLent().api
		p.write(t, filepath.Join(p.work, "planted"), planted.value)
		p.variables = []string{"PLANTED=" + planted.value}
		f, _ := p.seek(t, planted, append(allow("other.test"), "--env-secret", "PLANTED"),
			"https://other.test/"+url.PathEscape(planted.value), "--", "/usr/bin/python3", "-c", "import sys; print('"+planted.value+"', flush=True); sys.stdin.read()")
		for _, place := range []string{"answer of https://other.test", "/environ", "/cmdline", "memory of", "/project/planted"} {
			if !strings.Contains(strings.Join(f.Hits, "\n"), place) {
				t.Errorf("nothing found in %s: %q", place, f.Hits)
			}
		}
	})
}

// TestNoTraceOutside: what coworker writes, shows and tells the system about itself holds no value.
func TestNoTraceOutside(t *testing.T) {
	eachUser(t, func(t *testing.T, p *person) {
		l := p.lend(t)
		t.Run("files", func(t *testing.T) {
			e := p.exec(t, allow("ok.test", "other.test"), "sh", "-c", "curl -sS https://ok.test/echo https://ok.test/x https://ok.test/gzip; curl -sS https://nowhere.test/; curl -sS https://other.test/echo; exit 3")
			if e.code != 3 {
				t.Fatal(e)
			}
			p.wantNone(t, l.all(), "what exec printed", []byte(e.out+e.err))
			p.wantNone(t, l.all(), "the report", []byte(e.rawText))
			for _, args := range [][]string{
				{"net", "log", "--json"}, {"net", "log"}, {"net", "top", "--json"}, {"audit", "export"}, {"audit", "list"}, {"secrets", "list"}, {"secrets", "list", "--json"},
			} {
				shown := p.must(t, "", args...)
				p.wantNone(t, l.all(), fmt.Sprintf("coworker %q", args), []byte(shown.out+shown.err))
			}
			if shown := p.must(t, "", "net", "log", "--json"); !strings.Contains(shown.out, `"used_secret"`) || !strings.Contains(shown.out, "api") {
				t.Errorf("net log does not name the credential: %s", shown.out)
			}
			for name, data := range p.files(t) {
				p.wantNone(t, l.all(), name, data)
			}
		})
		t.Run("commands", func(t *testing.T) {
			argv := []string{"true", "-H", "X-Key: " + l.api.value, l.npm.value, "--user=ada:" + l.git.value, basic("ada", l.git.value), "https://other.test/" + l.api.value}
			for name, flags := range map[string][]string{"with a network": allow("other.test"), "without": nil} {
				if e := p.exec(t, flags, argv...); e.code != 0 {
					t.Errorf("%s: %s", name, e)
				}
			}
			if e := p.exec(t, allow("other.test"), "curl", "-sS", "https://other.test/"+l.npm.value, "http://other.test/"+l.npm.value); e.code != 0 {
				t.Error(e)
			}
			for name, data := range p.files(t) {
				p.wantNone(t, l.all(), name, data)
			}
		})
		t.Run("processes", func(t *testing.T) { p.lookAtProcesses(t, l.all()) })
		t.Run("control", func(t *testing.T) {
			planted := newLent().api
			p.write(t, filepath.Join(p.home, ".local/state/coworker/planted"), planted.forms[len(planted.forms)-1])
			found := 0
			for _, data := range p.files(t) {
				found += len(planted.in(data))
			}
			if found == 0 {
				t.Error("a planted value was not found")
			}
		})
	})
}

func (p *person) wantNone(t *testing.T, s secret, place string, data []byte) {
	t.Helper()
	if got := s.in(data); len(got) > 0 {
		t.Errorf("%s holds %q", place, got)
	}
}

// files reads everything below the person's folder: home, workspace, coworker's state, the record.
func (p *person) files(t *testing.T) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	err := filepath.WalkDir(p.base, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		out[path], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"coworker.db", "secrets"} {
		found := false
		for path := range out {
			found = found || strings.Contains(filepath.Base(path), want)
		}
		if !found {
			t.Fatalf("no file %s below %s", want, p.base)
		}
	}
	return out
}

// lookAtProcesses reads what every user of the machine may know of coworker and its proxy, while a request is under way.
func (p *person) lookAtProcesses(t *testing.T, s secret) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := p.command(ctx, append(append([]string{"exec"}, allow("ok.test")...), "--", "curl", "-sS", "https://ok.test/wait")...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := p.begin(cmd); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.reached:
	case <-ctx.Done():
	}
	names := map[string]bool{}
	for _, pid := range family(t, cmd.Process.Pid) {
		for _, file := range []string{"cmdline", "environ", "comm", "maps", "status"} {
			data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), file))
			if err != nil {
				t.Errorf("process %d: %v", pid, err)
			}
			p.wantNone(t, s, fmt.Sprintf("/proc/%d/%s", pid, file), data)
			if file == "cmdline" {
				program, _, _ := strings.Cut(string(data), "\x00")
				names[filepath.Base(program)] = true
			}
		}
	}
	close(p.release)
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "released") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if !names["coworker"] || !names["coworker-proxy"] || !names["curl"] {
		t.Errorf("looked at %v", names)
	}
}

// family lists a process and all below it.
func family(t *testing.T, pid int) []int {
	t.Helper()
	out := []int{pid}
	for i := 0; i < len(out); i++ {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", out[i]))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range tasks {
			data, err := os.ReadFile(file)
			if err != nil {
				continue
			}
			for field := range strings.FieldsSeq(string(data)) {
				child, err := strconv.Atoi(field)
				if err != nil {
					t.Fatal(err)
				}
				out = append(out, child)
			}
		}
	}
	return out
}
