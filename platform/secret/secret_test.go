package secret

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const planted = "pl4nted-Value-77"

func valid() Entry {
	return Entry{Name: "api", Value: NewValue(planted), Source: FromSet, Created: time.Unix(1e9, 0).UTC(),
		Binding: Binding{Host: "api.example.com", Port: 443, Header: "Authorization", Scheme: Bearer}}
}

func TestValueDoesNotPrint(t *testing.T) {
	var log bytes.Buffer
	e := valid()
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "value", e.Value, "entry", e)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "value", e.Value, "entry", &e)
	out := log.String()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "% x", "%T"} {
		out += fmt.Sprintf(verb, e.Value) + fmt.Sprintf(verb, &e.Value) + fmt.Sprintf(verb, e) + fmt.Sprintf(verb, []any{e, &e})
		out += fmt.Sprintf(verb, e.HeaderValue())
	}
	for _, v := range []any{e, &e, e.Value, e.Info(), map[string]any{"e": e}} {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out += string(data)
	}
	for _, form := range []string{planted, fmt.Sprintf("%x", planted), fmt.Sprintf("%X", planted), fmt.Sprintf("% x", planted), fmt.Sprintf("%d", []byte(planted)[:4])} {
		if strings.Contains(out, strings.Trim(form, "[]")) {
			t.Errorf("%q is in the output", form)
		}
	}
	// The search can fail: the way out is Reveal.
	if !strings.Contains(fmt.Sprint(e.Value.Reveal()), planted) {
		t.Error("Reveal hides the value")
	}
}

func TestHeaderValue(t *testing.T) {
	for scheme, want := range map[Scheme]string{Bearer: "Bearer " + planted, Raw: planted, Basic: "Basic YWRhOnBsNG50ZWQtVmFsdWUtNzc="} {
		e := valid()
		e.Binding.Scheme = scheme
		if scheme == Basic {
			e.Binding.User = "ada"
		}
		if got := e.HeaderValue().Reveal(); got != want {
			t.Errorf("%s: %q", scheme, got)
		}
	}
}

func TestCheck(t *testing.T) {
	if err := valid().Check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Entry){
		"empty name":        func(e *Entry) { e.Name = "" },
		"token as name":     func(e *Entry) { e.Name = "ghp_" + planted },
		"path as name":      func(e *Entry) { e.Name = "../x" },
		"dash first":        func(e *Entry) { e.Name = "-x" },
		"long name":         func(e *Entry) { e.Name = strings.Repeat("x", MaxName+1) },
		"short value":       func(e *Entry) { e.Value = NewValue("7 bytes") },
		"long value":        func(e *Entry) { e.Value = NewValue(strings.Repeat("x", MaxValue+1)) },
		"smuggled field":    func(e *Entry) { e.Value = NewValue(planted + "\r\nHost: evil") },
		"NUL":               func(e *Entry) { e.Value = NewValue(planted + "\x00") },
		"source":            func(e *Entry) { e.Source = "elsewhere" },
		"wildcard":          func(e *Entry) { e.Binding.Host = "*.example.com" },
		"capital host":      func(e *Entry) { e.Binding.Host = "API.example.com" },
		"plain HTTP":        func(e *Entry) { e.Binding.Port = 80 },
		"no port":           func(e *Entry) { e.Binding.Port = 0 },
		"path without host": func(e *Entry) { e.Binding = Binding{Path: "/x"} },
		"relative path":     func(e *Entry) { e.Binding.Path = "x" },
		"final slash":       func(e *Entry) { e.Binding.Path = "/x/" },
		"dot segment":       func(e *Entry) { e.Binding.Path = "/x/../y" },
		"empty segment":     func(e *Entry) { e.Binding.Path = "/x//y" },
		"escape":            func(e *Entry) { e.Binding.Path = "/x%2f" },
		"query":             func(e *Entry) { e.Binding.Path = "/x?y" },
		"backslash":         func(e *Entry) { e.Binding.Path = `/x\y` },
		"CONNECT":           func(e *Entry) { e.Binding.Methods = []string{"CONNECT"} },
		"small method":      func(e *Entry) { e.Binding.Methods = []string{"get"} },
		"unsorted":          func(e *Entry) { e.Binding.Methods = []string{"POST", "GET"} },
		"twice":             func(e *Entry) { e.Binding.Methods = []string{"GET", "GET"} },
		"no header":         func(e *Entry) { e.Binding.Header = "" },
		"header syntax":     func(e *Entry) { e.Binding.Header = "A: b" },
		"framing header":    func(e *Entry) { e.Binding.Header = "Transfer-Encoding" },
		"routing header":    func(e *Entry) { e.Binding.Header = "host" },
		"scheme":            func(e *Entry) { e.Binding.Scheme = "digest" },
		"user of bearer":    func(e *Entry) { e.Binding.User = "ada" },
		"colon in user":     func(e *Entry) { e.Binding.Scheme, e.Binding.User = Basic, "a:b" },
		"break in user":     func(e *Entry) { e.Binding.Scheme, e.Binding.User = Basic, "a\nb" },
	} {
		e := valid()
		change(&e)
		err := e.Check()
		if err == nil {
			t.Errorf("%s is accepted", name)
		} else if strings.Contains(err.Error(), planted) {
			t.Errorf("%s: the error holds the value", name)
		}
	}
}

// anyEntry draws entries with values of any bytes but the three.
func anyEntry(t *rapid.T, name string) Entry {
	e := valid()
	e.Name = name
	value := rapid.SliceOfN(rapid.Byte().Filter(func(b byte) bool { return b != 0 && b != '\r' && b != '\n' }), MinValue, 200).Draw(t, "value")
	e.Value = NewValue(string(value))
	if rapid.Bool().Draw(t, "unbound") {
		e.Binding = Binding{}
	} else if rapid.Bool().Draw(t, "narrow") {
		e.Binding.Path, e.Binding.Methods = "/a/b", []string{"GET", "HEAD"}
	}
	return e
}

func TestCodecKeepsEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want []Entry
		for i := range rapid.IntRange(0, 5).Draw(t, "entries") {
			want = append(want, anyEntry(t, fmt.Sprintf("e%d", i)))
		}
		data, err := Encode(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(data)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%d entries come back as %d, or differ: %v", len(want), len(got), err)
		}
	})
}

func TestDecodeRefuses(t *testing.T) {
	good, err := Encode([]Entry{valid()})
	if err != nil {
		t.Fatal(err)
	}
	swap := func(old, to string) string { return strings.Replace(string(good), old, to, 1) }
	for name, text := range map[string]string{
		"nothing":       "",
		"a list":        "[]",
		"other purpose": swap(purpose, "coworker notes"),
		"no purpose":    `{"version":1,"entries":[]}`,
		"new member":    swap(`"version"`, `"extra":1,"version"`),
		"member twice":  string(good) + string(good),
		"version zero":  swap(`"version":1`, `"version":0`),
		"bad entry":     swap(`"port":443`, `"port":80`),
		"same name":     swap(`"entries":[`, `"entries":[`+strings.TrimSuffix(strings.SplitN(string(good), `"entries":[`, 2)[1], "]}")+","),
		"not base64":    swap(`"value":"`, `"value":"*`),
	} {
		got, err := Decode([]byte(text))
		if err == nil {
			t.Errorf("%s gives %d entries", name, len(got))
		} else if strings.Contains(err.Error(), planted) {
			t.Errorf("%s: the error holds the value", name)
		}
	}
	if _, err := Decode([]byte(swap(`"version":1`, `"version":2`))); !errors.Is(err, ErrNewer) {
		t.Errorf("a newer version: %v", err)
	}
	if _, err := Encode(make([]Entry, MaxEntries+1)); err == nil {
		t.Error("too many entries are accepted")
	}
	if _, err := Encode([]Entry{valid(), valid()}); err == nil {
		t.Error("two entries of one name are accepted")
	}
}

func FuzzDecode(f *testing.F) {
	good, err := Encode([]Entry{valid()})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"version":1,"purpose":"coworker secrets","entries":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := Decode(data)
		if err != nil {
			return
		}
		again, err := Encode(entries)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if back, err := Decode(again); err != nil || len(back) != len(entries) {
			t.Fatalf("%d entries, then %d: %v", len(entries), len(back), err)
		}
	})
}
