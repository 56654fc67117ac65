package guest

import (
	"errors"
	"io"
	"strings"
	"testing"
)

func TestReceive(t *testing.T) {
	const ready = `{"ready":{"release":"6.1.0","uptime":1}}` + "\n"
	const one, two = `{"result":{"name":"a","exit":3,"stdout":"b2s="}}` + "\n", `{"result":{"name":"b"}}` + "\n"
	for _, c := range []struct {
		name, in string
		want     error
		text     string
		results  int
	}{
		{"complete", ready + one + two + `{"done":2}`, nil, "", 2},
		{"blank lines", "\n" + ready + "\n" + one + two + `{"done":2}`, nil, "", 2},
		{"noise after the sentinel", ready + one + two + `{"done":2}` + "\ngarbage", nil, "", 2},
		{"empty", "", ErrCut, "0 of 2", 0},
		{"no sentinel", ready + one + two, ErrCut, "2 of 2", 2},
		{"half a line", ready + one + `{"result":{"na`, nil, "unexpected end", 1},
		{"too few", ready + one + `{"done":1}`, ErrCut, "counted 1", 1},
		{"sentinel lies", ready + one + `{"done":2}`, ErrCut, "1 of 2 arrived", 1},
		{"too many", ready + one + one + two, nil, "one more than", 2},
		{"fatal", ready + one + `{"fatal":"no memory"}`, ErrFatal, "no memory", 1},
		{"no content", `{}`, nil, "no content", 0},
		{"endless line", ready + strings.Repeat("x", maxLine+1), nil, "token too long", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Receive(strings.NewReader(c.in), 2)
			if len(got.Results) != c.results {
				t.Errorf("%d results, want %d", len(got.Results), c.results)
			}
			if c.want == nil && c.text == "" {
				if err != nil || got.Ready == nil || string(got.Results[0].Stdout) != "ok" || got.Results[0].Exit != 3 {
					t.Errorf("%+v, %v", got, err)
				}
				return
			}
			if err == nil || (c.want != nil && !errors.Is(err, c.want)) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("error %v, want %v with %q", err, c.want, c.text)
			}
		})
	}
}

func TestReceiveReadError(t *testing.T) {
	read, write := io.Pipe()
	broken := errors.New("broken")
	write.CloseWithError(broken)
	if _, err := Receive(read, 1); !errors.Is(err, broken) {
		t.Errorf("error %v, want the reader's", err)
	}
}

// FuzzReceive: a guest may write anything, and cannot make up a full set of
// results without the sentinel.
func FuzzReceive(f *testing.F) {
	f.Add(`{"ready":{}}`+"\n"+`{"result":{"name":"a"}}`+"\n"+`{"done":1}`, 1)
	f.Add(`{"done":0}`, 0)
	f.Add(`{"fatal":"x"}`, 3)
	f.Add(`{"result":null}`, 1)
	f.Fuzz(func(t *testing.T, in string, want int) {
		want &= 0xff
		got, err := Receive(strings.NewReader(in), want)
		if len(got.Results) > want || (err == nil && len(got.Results) != want) {
			t.Errorf("%d results of %d, error %v", len(got.Results), want, err)
		}
		for _, r := range got.Results {
			_ = r.String()
		}
	})
}
