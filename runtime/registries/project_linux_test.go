package registries

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"coworker/platform/workfs"
)

func TestProjectNotes(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		".npmrc":             "registry=https://u:sesame@n.example/\n@s:registry=https://known.example\n@t:registry=https://bad host",
		"uv.toml":            "[[index]]\nurl='https://v.example'",
		"pyproject.toml":     "[tool.uv]\nindex-url='https://p.example'",
		".cargo/config.toml": "[source.x]\nregistry='sparse+https://c.example/'\n[registries.y]\nindex='https://d.example/'",
		"pom.xml":            "<project><repositories><repository><url>\n http://m.example/ </url></repository></repositories></project>",
		"Gemfile":            "source 'https://g.example'\nsource \"https://n.example\"",
		".yarnrc.yml":        strings.Repeat("#", maxProject+1),
	} {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "pip.conf")); err != nil {
		t.Fatal(err)
	}
	root, err := workfs.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var got []string
	for _, n := range ProjectNotes(root, List{Entries: []Entry{{Rule: "known.example"}}}) {
		got = append(got, n.Text[strings.LastIndexByte(n.Text, ' ')+1:])
		if strings.Contains(n.Text, "sesame") {
			t.Errorf("a secret is shown: %s", n.Text)
		}
	}
	if want := []string{"n.example", "v.example", "p.example", "d.example", "c.example", "m.example:80", "g.example"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestProjectNesting: a stranger's file of the largest size that is read, nested as deep as it goes, is survived.
func TestProjectNesting(t *testing.T) {
	for _, in := range []string{
		"a=" + strings.Repeat("[", maxProject), strings.Repeat("[a.", maxProject/3), "a=" + strings.Repeat("{a=", maxProject/3), strings.Repeat("<a>", maxProject/3),
		strings.Repeat("a.", maxProject/2) + "a=1",
	} {
		for _, file := range projectFiles {
			file.urls([]byte(in))
		}
	}
}
