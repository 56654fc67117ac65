package keeper

import (
	"errors"
	"io"
	"os"
	"testing"

	"coworker/enforce/native"
	"coworker/runtime/wire"
)

// TestFirstMessage: a keeper takes nothing but its set-up first. It must refuse before it touches its
// process or its namespaces, which here are those of the test.
func TestFirstMessage(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, tt := range []struct {
		name string
		send func(c *wire.Conn, raw *os.File)
		want error
	}{
		{"end", func(c *wire.Conn, _ *os.File) { c.Close() }, io.EOF},
		{"another message", func(c *wire.Conn, _ *os.File) { c.Send(wire.TypeKeeperStart, wire.Empty{}) }, wire.ErrProtocol},
		{"a message for a cell", func(c *wire.Conn, _ *os.File) { c.Send(wire.TypeExec, wire.Exec{}) }, wire.ErrProtocol},
		{"descriptors", func(c *wire.Conn, _ *os.File) { c.Send(wire.TypeKeeperSetup, wire.KeeperSetup{}, null) }, wire.ErrProtocol},
		{"another body", func(c *wire.Conn, _ *os.File) { c.Send(wire.TypeKeeperSetup, wire.Exec{}) }, wire.ErrProtocol},
		{"no JSON", func(_ *wire.Conn, raw *os.File) { raw.WriteString("\x01\x00\x00\x00\x02\x00\x00\x00x") }, wire.ErrProtocol},
		{"garbage", func(_ *wire.Conn, raw *os.File) { raw.WriteString("GET / HTTP/1.1\r\n\r\n") }, wire.ErrProtocol},
		{"cut short", func(_ *wire.Conn, raw *os.File) { raw.WriteString("\x01\x00"); raw.Close() }, wire.ErrProtocol},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conn, peer, err := wire.Pair("test")
			if err != nil {
				t.Fatal(err)
			}
			supervisor := wire.NewConn(peer)
			defer supervisor.Close()
			tt.send(supervisor, peer)
			if err := Main(conn, -1); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func TestRepinTakesNothingElse(t *testing.T) {
	conn, peer, err := wire.Pair("test")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	defer peer.Close()
	for _, f := range []*wire.Frame{
		{Type: wire.TypeKeeperSetup, Body: []byte("{}")},
		{Type: wire.TypeRepinned, Body: []byte("{}")},
		{Type: wire.TypeRepin, Body: []byte(`{"unknown":1}`)},
		{Type: wire.TypeRepin, Body: []byte("x")},
	} {
		if err := repin(conn, &native.Root{}, f); !errors.Is(err, wire.ErrProtocol) {
			t.Errorf("%s %s: %v", f.Type, f.Body, err)
		}
	}
}

func TestFailedCarriesTheStep(t *testing.T) {
	f := failed(&native.StepError{Step: "mount", Value: "/a\xffb", Err: os.ErrPermission})
	if f.Step != "mount" || string(f.Value) != "/a\xffb" || f.Reason == "" {
		t.Errorf("%+v", f)
	}
	if f := failed(errors.New("other")); f.Step == "" || f.Reason != "other" || f.Errno != 0 {
		t.Errorf("%+v", f)
	}
}
