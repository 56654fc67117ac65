package life

import (
	"os"
	"path/filepath"
	"testing"

	"coworker/runtime/session"
)

// foreignUID is a user that owns nothing on any machine.
const foreignUID = 54321

// TestForeignFolders: folders of other users that the session's user cannot list are none of the
// session's business, whether they stood there before it or appeared meanwhile. Nothing inside can
// have made them, so no sweep changes or moves them.
func TestForeignFolders(t *testing.T) {
	if os.Geteuid() != 0 {
		return // only root can make them
	}
	for _, once := range []bool{false, true} {
		p := newPlace(t)
		foreign := func(name string) string {
			dir := filepath.Join(p.Workspace, name)
			for _, err := range []error{
				os.Mkdir(dir, 0o700),
				os.WriteFile(filepath.Join(dir, ".mcp.json"), []byte("{}"), 0o600),
				os.Chown(dir, foreignUID, foreignUID),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			return dir
		}
		before := foreign("before")
		s := opened(t, p, func(o *session.Options) { o.OneCommand = once })
		meanwhile := foreign("meanwhile")
		if _, err := s.Run(t.Context(), session.Command{Argv: []string{"/bin/true"}}); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		for _, dir := range []string{before, meanwhile} {
			info, err := os.Stat(dir)
			if err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("%s was touched: %v, %v", filepath.Base(dir), info, err)
			}
			if _, err := os.Stat(filepath.Join(dir, ".mcp.json")); err != nil {
				t.Errorf("%s lost a file: %v", filepath.Base(dir), err)
			}
		}
		if items := s.Held(); len(items) != 0 {
			t.Errorf("held: %v", items)
		}
	}
}
