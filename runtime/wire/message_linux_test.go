package wire

import (
	"errors"
	"strings"
	"testing"
)

func TestEveryTypeHasAName(t *testing.T) {
	seen := map[string]Type{}
	for typ := Type(1); typ < typeEnd; typ++ {
		name := typ.String()
		if name == "" || strings.HasPrefix(name, "Type(") {
			t.Errorf("type %d has no name", typ)
		}
		if other, ok := seen[name]; ok {
			t.Errorf("types %d and %d are both %s", other, typ, name)
		}
		seen[name] = typ
	}
	for _, typ := range []Type{0, typeEnd, 65535} {
		if !strings.HasPrefix(typ.String(), "Type(") || typ.known() {
			t.Errorf("type %d is known as %s", uint16(typ), typ)
		}
	}
}

func TestDecodeIsStrict(t *testing.T) {
	tests := []struct {
		body string
		ok   bool
	}{
		{`{"id":1,"port":80}`, true},
		{` {"id":1,"port":80} `, true},
		{`{}`, true},
		{``, false},
		{`{"id":1,"port":80,"host":"x"}`, false},
		{`{"id":1}{"id":2}`, false},
		{`{"id":1} x`, false},
		{`{"id":-1}`, false},
		{`{"port":65536}`, false},
		{`{"id":"1"}`, false},
		{`[]`, false},
		{`{"id":1`, false},
		{strings.Repeat(`[`, 100000), false},
	}
	for _, tt := range tests {
		var v Dial
		err := (&Frame{Type: TypeDial, Body: []byte(tt.body)}).Decode(&v)
		if (err == nil) != tt.ok || err != nil && !errors.Is(err, ErrProtocol) {
			t.Errorf("%.40q: %v, want ok %v", tt.body, err, tt.ok)
		}
	}
}

func TestFailedIsAnError(t *testing.T) {
	if got, want := (&Failed{Step: "mount", Value: []byte("/a\n\xff"), Reason: "no"}).Error(), `mount "/a\n\xff": no`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := (&Failed{Step: "mount", Reason: "no"}).Error(), "mount: no"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
