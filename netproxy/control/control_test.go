package control

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"coworker/netproxy/flow"
)

// line is a stream of bytes to read from and to write to.
type line struct {
	io.Reader
	bytes.Buffer
}

func (l *line) Read(p []byte) (int, error) { return l.Reader.Read(p) }
func (l *line) Close() error               { return nil }

func reading(text string, limit int) *Conn {
	return NewConn(&line{Reader: strings.NewReader(text)}, limit)
}

func text(s string) *string { return &s }

func TestRoundTrip(t *testing.T) {
	sent := []Message{
		{Config: &Config{
			Allow: []string{"a.example"}, Deny: []string{"*.b.example"}, Open: true, IPv6: true, Ask: time.Minute, Probe: Probe{"p.probe.internal", "t"},
			Upstream: &Upstream{URL: "http://proxy:3128", User: "u", Password: "p", NoProxy: []string{".corp"}},
			Hosts:    []HostRule{{Host: "a.example", Port: 443, Methods: []string{"GET"}, Path: "/x", Secret: "s", Header: "Authorization", Value: "v"}},
			CA:       &CA{Certificate: []byte("c"), Key: []byte("k"), Roots: []byte("r")}, Limits: Limits{Connections: 5, Idle: time.Second, Total: time.Hour},
		}},
		{Ready: &struct{}{}}, {Settle: &struct{}{}}, {Grant: text("c.example:22")},
		{Flow: &flow.Record{Source: flow.Proxy, Host: "a.example", Port: 443, Verdict: flow.Allow, Begun: time.Unix(1, 0).UTC(), Count: 1}},
		{Ask: &Ask{ID: 7, Host: "d.example", Port: 443, Source: flow.DNS, Reason: "r", Needed: "d.example"}}, {Answer: &Answer{ID: 7, Allow: true}},
	}
	out := &line{}
	c := NewConn(out, MaxLine)
	for _, m := range sent {
		if err := c.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	in := reading(out.String(), MaxConfig)
	for _, want := range sent {
		got, err := in.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(*got, want) {
			t.Errorf("got  %+v\nwant %+v", *got, want)
		}
	}
	if _, err := in.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

// TestReceiveRefuses: what is not exactly one known message ends the line, whichever side sent it.
func TestReceiveRefuses(t *testing.T) {
	for name, bad := range map[string]string{
		"no JSON": "hello\n", "no object": "[]\n", "nothing": "{}\n", "null": "null\n", "an unknown member": `{"shutdown":{}}` + "\n", "an unknown field": `{"answer":{"id":1,"allow":true,"rule":"*"}}` + "\n",
		"two members": `{"ready":{},"settle":{}}` + "\n", "two objects": `{"ready":{}}{"ready":{}}` + "\n", "trailing text": `{"ready":{}} x` + "\n", "a wrong type": `{"grant":5}` + "\n",
		"a negative number": `{"answer":{"id":-1,"allow":true}}` + "\n", "a port beyond": `{"ask":{"id":1,"host":"a","port":65536}}` + "\n",
		"too long": `{"grant":"` + strings.Repeat("a", MaxLine) + `"}` + "\n", "too long without end": strings.Repeat("a", 2*MaxLine), "too deep": strings.Repeat(`{"config":`, 20000) + "\n",
		"cut off": `{"ready":{}}`, "an empty line": "\n",
	} {
		if m, err := reading(bad, MaxLine).Receive(); err == nil || errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
}

// A line as long as the limit passes, and one more octet does not.
func TestLimit(t *testing.T) {
	whole := `{"grant":"aaaa"}` + "\n"
	if _, err := reading(whole, len(whole)).Receive(); err != nil {
		t.Error(err)
	}
	if _, err := reading(whole, len(whole)-1).Receive(); err == nil {
		t.Error("a line beyond the limit is taken")
	}
}

func FuzzReceive(f *testing.F) {
	for _, s := range []string{`{"ready":{}}`, `{"flow":{"host":"a","count":1}}`, `{"ask":{"id":1}}`, `{"config":{"allow":["a"]}}`, `{"answer":{"id":1,"allow":true}}`, "{}", "\x00", `{"grant":"\ud800"}`} {
		f.Add(s + "\n")
	}
	f.Fuzz(func(t *testing.T, s string) {
		c := reading(s, MaxLine)
		for range 100 {
			m, err := c.Receive()
			if err != nil {
				return
			}
			if m.members() != 1 {
				t.Fatalf("%q: %+v", s, m)
			}
			out := &line{}
			if err := NewConn(out, MaxLine).Send(*m); err != nil {
				t.Fatalf("%q is taken and cannot be sent: %v", s, err)
			}
		}
	})
}
