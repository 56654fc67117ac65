package wallsd

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"coworker/enforce"
)

func TestDecodeRequest(t *testing.T) {
	limits := `"limits":{"processes":5,"memory":0,"cpus":0,"open_files":0,"file_size":0,"tmp":0,"named":null}`
	tests := []struct {
		in string
		ok bool
	}{
		{`{"seq":1,"op":"hello","version":1}`, true},
		{`{"seq":2,"op":"open","name":"a-1",` + limits + `}`, true},
		{`{"seq":3,"op":"freeze","limit":1000000}`, true},
		{`{"seq":3,"op":"leave","ticket":1}`, true},
		{`{"seq":0,"op":"hello"}`, false},
		{`{"op":"hello"}`, false},
		{`{"seq":1,"op":"exec"}`, false},
		{`{"seq":1,"op":"join","pid":1}`, false},
		{`{"seq":1,"op":"kill","name":"x"}`, false},
		{`{"seq":1,"op":"hello"}{}`, false},
		{`{"seq":1,"op":"hello"`, false},
		{`[]`, false},
		{``, false},
		{`{"seq":-1,"op":"hello"}`, false},
		{`{"seq":1,"op":"open","name":"a"}`, false},
		{`{"seq":1,"op":"open","name":"",` + limits + `}`, false},
		{`{"seq":1,"op":"open","name":"../a",` + limits + `}`, false},
		{`{"seq":1,"op":"open","name":"a/b",` + limits + `}`, false},
		{`{"seq":1,"op":"open","name":"a\n",` + limits + `}`, false},
		{`{"seq":1,"op":"open","name":"` + strings.Repeat("a", 65) + `",` + limits + `}`, false},
		{`{"seq":1,"op":"open","name":"a",` + strings.Replace(limits, ":5", ":-5", 1) + `}`, false},
		{`{"seq":1,"op":"open","name":"a",` + strings.Replace(limits, `"cpus":0`, `"cpus":1e300`, 1) + `}`, false},
		{`{"seq":3,"op":"freeze"}`, false},
		{`{"seq":3,"op":"freeze","limit":99999999999999}`, false},
		{`{"seq":3,"op":"freeze","limit":-1}`, false},
		{strings.Repeat(" ", maxFrame) + `{"seq":1,"op":"hello"}`, false},
	}
	for _, tt := range tests {
		_, err := decodeRequest([]byte(tt.in))
		if (err == nil) != tt.ok || err != nil && !errors.Is(err, errProtocol) {
			t.Errorf("%.80s: %v, want ok %v", tt.in, err, tt.ok)
		}
	}
}

// TestFramesKeepBytes: paths and addresses are bytes, not text.
func TestFramesKeepBytes(t *testing.T) {
	trees := []enforce.Tree{{Path: "/a\xff\n", Masks: []string{"\xfe", "ü", "\x00base64:x"}, Pins: []string{}}}
	data, err := encodeTrees(trees)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decodeTrees(data); err != nil || !reflect.DeepEqual(got[0].Masks, trees[0].Masks) || got[0].Path != trees[0].Path {
		t.Errorf("trees came back as %+v, %v", got, err)
	}
	r := enforce.Refusal{Time: time.Unix(5, 0).UTC(), Source: enforce.SourceEBPF, Wall: enforce.NetEgress, Hook: "connect4", Pid: 7, Comm: "a\xffb", What: "\xfe\x00", Needed: "--allow x"}
	frame, err := encodeFrame(answer{Refusal: packed(r)})
	if err != nil {
		t.Fatal(err)
	}
	var a answer
	if err := decodeFrame(frame, &a); err != nil || a.Refusal.unpacked() != r {
		t.Errorf("the refusal came back as %+v, %v", a.Refusal, err)
	}
	r.What = strings.Repeat("\xff", 1<<20)
	if frame, err = encodeFrame(answer{Refusal: packed(r)}); err != nil || len(frame) > maxFrame {
		t.Errorf("a long refusal: %d bytes, %v", len(frame), err)
	}
}

func TestBounded(t *testing.T) {
	ask := enforce.Limits{Processes: 1 << 40, Memory: 0, CPUs: math.MaxInt16}
	most := enforce.Limits{Processes: 100, Memory: 1 << 20}
	got := bounded(ask, most)
	if got.Processes != 100 || got.Memory != 1<<20 || got.CPUs != math.MaxInt16 {
		t.Errorf("bounded to %+v", got)
	}
	if got := bounded(enforce.Limits{Processes: 5, Memory: 7}, most); got.Processes != 5 || got.Memory != 7 {
		t.Errorf("smaller limits became %+v", got)
	}
}

// FuzzFrame: no frame makes the decoder fail in another way than by an error, and what it takes keeps its bounds.
func FuzzFrame(f *testing.F) {
	for _, seed := range []string{
		`{"seq":1,"op":"hello","version":1}`, `{"seq":2,"op":"open","name":"a","limits":{"processes":1}}`, `{"seq":3,"op":"guard","part":"e30=","last":true}`,
		`{"seq":3,"op":"join"}`, `{"seq":4,"op":"leave","ticket":1}`, `{"seq":5,"op":"freeze","limit":5}`, "{", "null", `{"seq":1e3}`, strings.Repeat("[", 1000),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		decodeTrees(data)
		r, err := decodeRequest(data)
		if err != nil {
			if !errors.Is(err, errProtocol) {
				t.Fatalf("not a protocol error: %v", err)
			}
			return
		}
		if r.Op == opOpen && (!sessionName.MatchString(r.Name) || r.Limits.Processes < 0) || r.Limit < 0 || r.Limit > maxFreeze || len(r.Part) > maxPart {
			t.Fatalf("out of bounds: %+v", r)
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeRequest(again); err != nil && len(again) <= maxFrame {
			t.Fatalf("%s does not come back: %v", again, err)
		}
	})
}
