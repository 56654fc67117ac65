package inject

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	"coworker/netproxy/control"
	"coworker/netproxy/request"
)

// slowFilter is the whole text at once and by definition: what is at least three quarters of a pattern becomes stars.
func slowFilter(list []string, text []byte) []byte {
	out := bytes.Clone(text)
	for i := range text {
		for _, p := range list {
			n := 0
			for n < len(p) && i+n < len(text) && text[i+n] == p[n] {
				n++
			}
			if n >= len(p)-len(p)/4 {
				stars(out[i : i+n])
			}
		}
	}
	return out
}

func FuzzFilter(f *testing.F) {
	f.Add("abababcdabab", []byte("xxababababcdababcdabab"), uint8(1))
	f.Add("Bearer aaaaaaaa", []byte("aaaaaaaaaaaaaaaaaaaaa"), uint8(3))
	f.Add("Basic dXNlcjpwYXNzd29yZDEy", []byte("password12 dXNlcjpwYXNzd29yZDEy"), uint8(7))
	f.Fuzz(func(t *testing.T, value string, text []byte, size uint8) {
		if checkValue(value) != nil || len(value) > 100 || len(text) > 1000 {
			return
		}
		a := newAutomaton([]string{value})
		text = append(text, value...)
		text = append(append(text, text...), value[:len(value)-1]...)
		filter := Filter{automaton: a}
		var got []byte
		for rest := text; len(rest) > 0; {
			n := min(len(rest), int(size)+1)
			got = filter.Append(got, rest[:n])
			rest = rest[n:]
			if len(filter.held) > maxPattern {
				t.Fatalf("%d octets held", len(filter.held))
			}
		}
		got = filter.Flush(got)
		if want := slowFilter(patterns(value), text); !bytes.Equal(got, want) {
			t.Fatalf("value %q, text %q:\n%q, not\n%q", value, text, got, want)
		}
		if bytes.Contains(got, []byte(secretPart(value))) && !strings.Contains(secretPart(value), "***") {
			t.Fatalf("%q passes in %q", value, got)
		}
	})
}

func TestFormsAreFound(t *testing.T) {
	secret := `s3cr/t+"va<lue&0123456`
	rule := func(value string) Decision {
		return ask(t, parse(t, control.HostRule{Host: "a.example", Port: 443, Secret: "x", Header: "Authorization", Value: value}), "GET", "/")
	}
	quoted, _ := json.Marshal(secret)
	basic := base64.StdEncoding.EncodeToString([]byte("x-access-token:" + secret))
	for _, d := range []Decision{rule("Bearer " + secret), rule("Basic " + basic)} {
		for name, form := range map[string]string{
			"raw": secret, "query": url.QueryEscape(secret), "query, lower": lowerEscapes(url.QueryEscape(secret)),
			"path": url.PathEscape(secret), "JSON": string(quoted), "hex": hex.EncodeToString([]byte(secret)), "cut": secret[:len(secret)-3],
			"base64 in a longer text": basic, "base64": base64.StdEncoding.EncodeToString([]byte(secret)),
			"base64 for addresses": base64.RawURLEncoding.EncodeToString([]byte("u:" + secret)),
		} {
			got := d.Clean("before " + form + " after")
			if len(got) != len(form)+13 || !strings.HasPrefix(got, "before ") || !strings.HasSuffix(got, " after") || !strings.Contains(got, "*******") {
				t.Errorf("%s: %q", name, got)
			}
		}
	}
	if d := rule("Basic " + basic); strings.Contains(d.Clean("x-access-token"), "*") {
		t.Error("a public name is hidden")
	}
}

func TestBodyStreams(t *testing.T) {
	d := ask(t, parse(t, credential("a.example", "/in")), "GET", "/out") // without the credential, and filtered all the same
	text := "data: one\n\n" + token + "\n" + strings.Repeat("ghp_", 9000) + token
	want := strings.ReplaceAll(text, token, strings.Repeat("*", len(token)))
	for name, r := range map[string]io.Reader{"one byte": iotest.OneByteReader(strings.NewReader(text)), "data and error": iotest.DataErrReader(strings.NewReader(text)), "whole": strings.NewReader(text)} {
		got, err := io.ReadAll(d.Body(r))
		if err != nil || string(got) != want {
			t.Errorf("%s: %v, %d of %d octets", name, err, len(got), len(want))
		}
	}
	filter := d.NewFilter()
	if got := filter.Append(nil, []byte("data: one\n\n")); string(got) != "data: one\n\n" {
		t.Errorf("an event is held back: %q", got)
	}
	if _, err := io.ReadAll(d.Body(iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader(text))))); err != iotest.ErrTimeout {
		t.Errorf("the error of the body: %v", err)
	}
}

func TestAnswer(t *testing.T) {
	d := ask(t, parse(t, credential("a.example", "/in")), "GET", "/out")
	got, err := d.Answer([]request.Field{{Name: "Location", Value: "https://b.example/?t=" + token}, {Name: "Content-Encoding", Value: "identity"}, {Name: "Transfer-Encoding", Value: "chunked"}})
	if err != nil || got[0].Value != "https://b.example/?t="+strings.Repeat("*", len(token)) {
		t.Errorf("%v, %v", got, err)
	}
	for _, f := range []request.Field{{Name: "content-encoding", Value: "gzip"}, {Name: "Content-Encoding", Value: "identity, br"}, {Name: "Transfer-Encoding", Value: "gzip, chunked"}} {
		if _, err := d.Answer([]request.Field{f}); err == nil {
			t.Errorf("%v passes", f)
		}
	}
}
