package native

import (
	"maps"
	"testing"

	"coworker/enforce"
)

// TestFileSystems wants the topmost mount of each place, in whatever order the table has them.
func TestFileSystems(t *testing.T) {
	const root = "20 1 8:1 / / rw - ext4 d rw\n"
	const staged = "30 20 0:40 / /w rw - overlay none rw\n"
	const live = "31 30 8:1 /w /w rw - ext4 d rw\n"
	for _, tt := range []struct {
		name, text string
		want       map[string]string
	}{
		{"staged", root + staged, map[string]string{"/": "ext4", "/w": "overlay"}},
		{"covered by the host's", root + staged + live, map[string]string{"/": "ext4", "/w": "ext4"}},
		{"in another order", live + staged + root, map[string]string{"/": "ext4", "/w": "ext4"}},
		{"the root is its own parent", "20 20 8:1 / / rw - ext4 d rw\n", map[string]string{"/": "ext4"}},
	} {
		if got, err := FileSystems(tt.text); err != nil || !maps.Equal(got, tt.want) {
			t.Errorf("%s: %v, %v, want %v", tt.name, got, err, tt.want)
		}
	}
	if _, err := FileSystems("x"); err == nil {
		t.Error("a table that is none was read")
	}
}

// TestCheckStage holds the keeper's own look at a staged tree: a mistake of the supervisor must not become a live one.
func TestCheckStage(t *testing.T) {
	for _, tt := range []struct {
		name string
		tree enforce.Tree
		ok   bool
	}{
		{"live", enforce.Tree{Path: "/w", Writable: true, Pins: []string{"a"}}, true},
		{"staged", enforce.Tree{Path: "/w", Writable: true, Stage: "/s/0", Masks: []string{".env"}}, true},
		{"read-only", enforce.Tree{Path: "/w", Stage: "/s/0"}, false},
		{"file", enforce.Tree{Path: "/w", Writable: true, File: true, Stage: "/s/0"}, false},
		{"stage in the tree", enforce.Tree{Path: "/w", Writable: true, Stage: "/w/s"}, false},
		{"tree in the stage", enforce.Tree{Path: "/s/0/upper", Writable: true, Stage: "/s/0"}, false},
		{"beside", enforce.Tree{Path: "/w", Writable: true, Stage: "/w2"}, true},
		{"pins", enforce.Tree{Path: "/w", Writable: true, Stage: "/s/0", Pins: []string{"a"}}, false},
		{"relative", enforce.Tree{Path: "/w", Writable: true, Stage: "s"}, false},
		{"not clean", enforce.Tree{Path: "/w", Writable: true, Stage: "/s/../w2"}, false},
	} {
		s := sampleSpec()
		s.Trees = []enforce.Tree{tt.tree}
		if err := checkSpec(s); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
