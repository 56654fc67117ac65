package walls

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"coworker/integration/house/testuser"
)

// raceLoop is what runs inside: it writes what it must not, and prints the secret whenever it can read it.
const raceLoop = `
while [ ! -e scratch/stop ]; do
	printf '[core]\n\tfsmonitor = /nonexistent/evil\n' >> .git/config
	printf 'evil\n' > .mcp.json
	cat .env
	printf x >> scratch/turns
done 2>/dev/null
echo ended`

// row is one row of the record.
type row struct {
	Stage    string `json:"stage"`
	Status   string `json:"status"`
	Resource string `json:"resource"`
}

// rows reads the record of the windows.
func (w *world) rows(t testing.TB, stage string) []row {
	t.Helper()
	var list []row
	text := w.coworker(t, "audit", "list", "--json", "--limit", "1000000", "--stage", stage)
	for dec := json.NewDecoder(strings.NewReader(text)); dec.More(); {
		var r json.RawMessage
		if err := dec.Decode(&r); err != nil {
			t.Fatalf("audit list: %v", err)
		}
		if r[0] == '[' {
			if err := json.Unmarshal(r, &list); err != nil {
				t.Fatal(err)
			}
			continue
		}
		var one row
		if err := json.Unmarshal(r, &one); err != nil {
			t.Fatal(err)
		}
		list = append(list, one)
	}
	return list
}

// TestRace lets the person's programs replace protected and hidden files while a cell tries to use the moment. A
// mount on a file falls off when somebody outside renames another file over it.
func TestRace(t *testing.T) {
	eachBackend(t, func(t *testing.T, u testuser.User) {
		w := emptyWorld(t, u)
		if e := w.onHost(t, `git init -q . && mkdir scratch && echo '{}' > .mcp.json && echo "TOKEN=`+w.canary+`-0" > .env`); e.code != 0 {
			t.Fatal(e.err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		cmd := w.command(ctx, "exec", "-w", "--", "bash", "-c", raceLoop)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		r := &race{world: w, t: t, ctx: ctx}
		r.awaitTurn()
		for i := range 5 {
			r.paced(i)
		}
		for i := range 200 {
			r.replace(i)
		}
		r.awaitTurn()
		if err := os.WriteFile(filepath.Join(w.work, "scratch/stop"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatalf("the session ended with %v: %s", err, errs.String())
		}
		r.check(out.String())
	})
}

type race struct {
	world  *world
	t      *testing.T
	ctx    context.Context
	failed int // runs of git
}

// awaitTurn waits until the loop inside has come round once more.
func (r *race) awaitTurn() {
	r.t.Helper()
	size := func() int64 {
		info, err := os.Stat(filepath.Join(r.world.work, "scratch/turns"))
		if err != nil {
			return 0
		}
		return info.Size()
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for from := size(); size() <= from+1; {
		select {
		case <-tick.C:
		case <-r.ctx.Done():
			r.t.Fatal("the loop inside does not run")
		}
	}
}

// over renames a new version over a file, as editors do.
func (r *race) over(name, text string) {
	r.t.Helper()
	tmp := filepath.Join(r.world.base, "new")
	if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Lchown(tmp, r.world.user.UID, r.world.user.GID); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(r.world.work, name)); err != nil {
		r.t.Fatal(err)
	}
}

// remote adds one with git. Git maps the file, and copies what it keeps from the map: a cell that writes the same file
// in that moment spoils the copy, git refuses it, and the repair puts the last good version back. So a person may have
// to try again; more than that is a failure.
func (r *race) remote(name string) {
	r.t.Helper()
	var out []byte
	var err error
	for range 20 {
		cmd := r.world.user.Command(r.ctx, r.world.home, "git", "remote", "add", name, "https://example.com/"+name)
		cmd.Dir = r.world.work
		if out, err = cmd.CombinedOutput(); err == nil || bytes.Contains(out, []byte("already exists")) {
			return
		}
		r.failed++
		r.awaitTurn()
	}
	r.t.Fatalf("git remote add %s: %v: %s", name, err, out)
}

func (r *race) replace(i int) {
	r.t.Helper()
	r.remote(fmt.Sprintf("fast%d", i))
	r.over(".mcp.json", fmt.Sprintf("{\"version\": %d}\n", i))
	r.over(".env", fmt.Sprintf("TOKEN=%s-%d\n", r.world.canary, i))
}

// paced replaces one file at a time and waits for the row of its window, so that rows can be counted.
func (r *race) paced(i int) {
	r.t.Helper()
	for name, change := range map[string]func(){
		".git/config": func() { r.remote(fmt.Sprintf("paced%d", i)) },
		".mcp.json":   func() { r.over(".mcp.json", fmt.Sprintf("{\"paced\": %d}\n", i)) },
		".env":        func() { r.over(".env", fmt.Sprintf("TOKEN=%s-paced%d\n", r.world.canary, i)) },
	} {
		before := r.windows(name)
		change()
		for deadline := time.Now().Add(10 * time.Second); r.windows(name) == before; {
			if time.Now().After(deadline) {
				r.t.Fatalf("%s was replaced, and no row of a window came", name)
			}
		}
		if got := r.windows(name); got != before+1 {
			r.t.Errorf("%s was replaced once, and %d rows came", name, got-before)
		}
	}
}

func (r *race) windows(name string) (n int) {
	for _, row := range r.world.rows(r.t, "window") {
		if row.Resource == filepath.Join(r.world.work, name) {
			n++
		}
	}
	return n
}

func (r *race) check(out string) {
	t, w := r.t, r.world
	t.Helper()
	if !strings.HasSuffix(out, "ended\n") {
		t.Errorf("the session did not run to its end: %.500q", out)
	}
	config, err := os.ReadFile(filepath.Join(w.work, ".git/config"))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(config, []byte("evil")) {
		t.Errorf("LEAK: an executing key stands in .git/config:\n%s", config)
	}
	r.checkRemotes(config)
	if data, err := os.ReadFile(filepath.Join(w.work, ".mcp.json")); err != nil || strings.Contains(string(data), "evil") {
		t.Errorf("LEAK: .mcp.json holds %q, %v", data, err)
	}
	if data, err := os.ReadFile(filepath.Join(w.work, ".env")); err != nil || string(data) != fmt.Sprintf("TOKEN=%s-199\n", w.canary) {
		t.Errorf(".env holds %q, %v", data, err)
	}
	possible := 0
	for _, row := range w.rows(t, "window") {
		if row.Status == "possible-read" {
			possible++
		}
	}
	reads := map[string]bool{}
	for line := range strings.Lines(out) {
		if strings.Contains(line, w.canary) {
			reads[line] = true
		}
	}
	if len(reads) > possible {
		t.Errorf("LEAK: %d versions of .env were read, and %d windows recorded", len(reads), possible)
	}
	for _, name := range []string{".git/config", ".mcp.json", ".env"} {
		if r.windows(name) < 6 {
			t.Errorf("%d rows for windows of %s", r.windows(name), name)
		}
	}
	held := w.coworker(t, "held", "list", "--json")
	t.Logf("%d versions of .env read of %d windows; held: %d of .git/config, %d of .mcp.json", len(reads), possible,
		strings.Count(held, `"path": ".git/config"`)+strings.Count(held, `"path":".git/config"`), strings.Count(held, `.mcp.json`))
	if !strings.Contains(held, ".mcp.json") {
		t.Error("no version of .mcp.json was held, although the person changed it while the cell could write it")
	}
	w.coworker(t, "audit", "verify")
	if e := w.exec(t, nil, "sh", "-c", "cat .env; echo evil > .mcp.json; git remote | grep -q fast0 && echo fine"); e.out != "fine\n" {
		t.Errorf("the next session printed %q: %s", e.out, e.err)
	}
}

// checkRemotes looks for everything that the person added: it stands in the file or in a held version of it.
func (r *race) checkRemotes(config []byte) {
	r.t.Helper()
	versions := [][]byte{config}
	err := filepath.WalkDir(filepath.Join(r.world.own, "state/held"), func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			var data []byte
			data, err = os.ReadFile(path)
			versions = append(versions, data)
		}
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	for name, n := range map[string]int{"paced": 5, "fast": 200} {
		for i := range n {
			section := fmt.Appendf(nil, "[remote \"%s%d\"]", name, i)
			if !slices.ContainsFunc(versions, func(v []byte) bool { return bytes.Contains(v, section) }) {
				r.t.Errorf("LOST: %s of the person is neither in .git/config nor in a held version", section)
			}
		}
	}
	r.t.Logf("%d of 205 remotes stand in .git/config, %d runs of git were refused", bytes.Count(config, []byte("[remote ")), r.failed)
}

// TestRaceControl shows that the loop does harm where there is no wall.
func TestRaceControl(t *testing.T) {
	w := emptyWorld(t, testuser.Unprivileged(t))
	e := w.onHost(t, `git init -q . && mkdir scratch && echo "TOKEN=`+w.canary+`" > .env && (sleep 0.2; touch scratch/stop) &`+raceLoop)
	config, err := os.ReadFile(filepath.Join(w.work, ".git/config"))
	if err != nil || !bytes.Contains(config, []byte("evil")) || !strings.Contains(e.out, w.canary) {
		t.Errorf("the loop did nothing: %q, %v, %.200q", config, err, e.out)
	}
}

// TestNewSocketAndSecret shows that what appears in the workspace while a session runs is masked.
func TestNewSocketAndSecret(t *testing.T) {
	eachBackend(t, func(t *testing.T, u testuser.User) {
		w := emptyWorld(t, u)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		script := `while [ ! -e stop ]; do [ -e .env ] && [ -e late.sock ] && { cat .env; curl -sS -m 2 --unix-socket late.sock http://a/; [ -r .env ] || n=$((n+1)); [ "${n:-0}" -gt 3 ] && { echo masked; break; }; }; done 2>/dev/null`
		cmd := w.command(ctx, "exec", "-w", "--", "bash", "-c", script)
		var out bytes.Buffer
		cmd.Stdout = &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		h := &hosts{hits: map[string]*atomic.Int64{}, targets: targets{Net: map[string]string{}, Sockets: map[string]string{}}}
		h.listen(t, "late", "unix", filepath.Join(w.work, "late.sock"))
		if err := os.WriteFile(filepath.Join(w.work, ".env"), []byte("TOKEN="+w.canary), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, f := range []string{".env", "late.sock"} {
			if err := os.Lchown(filepath.Join(w.work, f), u.UID, u.GID); err != nil {
				t.Fatal(err)
			}
		}
		err := cmd.Wait()
		if _, exited := err.(*exec.ExitError); err != nil && !exited {
			t.Fatal(err)
		}
		if !strings.HasSuffix(out.String(), "masked\n") {
			t.Errorf("the secret that appeared was not masked: %q", out.String())
		}
	})
}
