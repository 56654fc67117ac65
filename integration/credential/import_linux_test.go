package credential

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestImported: what the person's own tools have in files works inside after an import, and the files stay outside.
func TestImported(t *testing.T) {
	eachUser(t, func(t *testing.T, p *person) {
		l := newLent()
		p.write(t, filepath.Join(p.home, ".npmrc"), "//npm.test/:_authToken="+l.npm.value+"\n")
		p.write(t, filepath.Join(p.home, ".git-credentials"), "https://ada:"+l.git.value+"@git.test\n")
		p.write(t, filepath.Join(p.home, ".gitconfig"), "[credential]\n\thelper = store\n")
		p.want("npm.test", "Bearer "+l.npm.value)
		p.want("git.test", basic("ada", l.git.value))
		files := map[string]string{}
		for _, tool := range []string{"npm", "git"} {
			e := p.must(t, "", "secrets", "import", tool, "--yes")
			p.wantNone(t, l.all(), "what the import prints", []byte(e.out+e.err))
			files[tool] = e.out
		}
		e := p.exec(t, allow("npm.test"), "npm", "view", "left", "version", "--registry=https://npm.test/")
		if e.code != 0 || !strings.Contains(e.out, "1.0.0") {
			t.Errorf("npm after %q: %s", files["npm"], e)
		}
		e = p.exec(t, allow("git.test"), "sh", "-c", "git clone -q https://git.test/repo.git copy && cat copy/README")
		if e.code != 0 || !strings.Contains(e.out, "the first") {
			t.Errorf("git after %q: %s", files["git"], e)
		}
		f, _ := p.seek(t, secret{"", slices.Concat(l.npm.forms, l.git.forms)}, allow("npm.test", "git.test"), "https://npm.test/left", "https://git.test/repo.git/info/refs?service=git-upload-pack")
		if len(f.Hits) > 0 {
			t.Errorf("inside: %q", f.Hits)
		}
	})
}
