package session

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

// TestRefusedMovesNothing: in a session that never ran a command, whatever is new in the tree is the
// person's, and stays where it is.
func TestRefusedMovesNothing(t *testing.T) {
	var planted string
	o := fakeOptions(t, func(c *fakeCell) {
		c.Receive()
		if err := os.WriteFile(planted, []byte("{}"), 0o600); err != nil {
			t.Error(err)
		}
		c.Close()
	})
	planted = filepath.Join(o.Spec.Workspace, ".mcp.json")
	if s, err := Open(context.Background(), o); err == nil || s != nil {
		t.Fatalf("got a session: %v", err)
	}
	if _, err := os.Stat(planted); err != nil {
		t.Errorf("the person's file was moved: %v", err)
	}
	if items, err := os.ReadDir(filepath.Join(o.StateDir, "held")); err != nil || len(items) != 0 {
		t.Errorf("held: %v, %v", items, err)
	}
}
