package enforce

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestSpecJSONKeepsEveryByte(t *testing.T) {
	in := Spec{
		Workspace: "/tmp/a\xff\nb",
		Trees:     []Tree{{Path: "/tmp/\xf0\x28", Protected: []string{"x\x80/.git/config", "é"}}},
		Env:       []string{"A=\xfe", "B=plain", "C=\ufffd"},
		Etc:       []File{{Path: "passwd", Data: []byte{0, 1, 0xff}, Mode: 0o644}},
		Limits:    Limits{Named: []string{"memory"}, CPUs: 1.5},
	}
	data, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out Spec
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(in, out) {
		t.Fatalf("round trip changed the spec:\n in %#v\nout %#v", in, out)
	}
}

func TestSpecJSONRefusesUnknownFields(t *testing.T) {
	var s Spec
	if err := json.Unmarshal([]byte(`{"workspace":"/w","surprise":1}`), &s); err == nil {
		t.Fatal("a spec with an unknown field was accepted")
	}
}
