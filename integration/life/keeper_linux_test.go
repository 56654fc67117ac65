package life

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"coworker/integration/life/plan"
	"coworker/runtime/session"
	"coworker/runtime/wire"
)

// misbehaviour is chosen by a variable of the Spec, which a keeper gets with its first message.
const misbehaviour = "FAKE_KEEPER="

// keeperActs are keepers that do not keep to the sequence.
var keeperActs = []struct {
	name, want string
	act        func(c *wire.Conn)
}{
	{"ends", "no answer", func(c *wire.Conn) {}},
	{"closes its wire and stays", "no answer", func(c *wire.Conn) { c.Close(); pause() }},
	{"is silent", "no answer", func(c *wire.Conn) { pause() }},
	{"says it failed", "mount \"/x\": because", func(c *wire.Conn) {
		c.Send(wire.TypeFailed, wire.Failed{Step: "mount", Value: []byte("/x"), Reason: "because"})
	}},
	{"answers something else", "violation", func(c *wire.Conn) { c.Send(wire.TypeRepinned, wire.Empty{}); pause() }},
	{"answers twice", "", func(c *wire.Conn) {
		c.Send(wire.TypeKeeperPrepared, wire.KeeperPrepared{})
		c.Send(wire.TypeKeeperPrepared, wire.KeeperPrepared{})
		c.Send(wire.TypeKeeperPrepared, wire.KeeperPrepared{})
		pause()
	}},
	{"sends descriptors", "violation", func(c *wire.Conn) { c.Send(wire.TypeKeeperPrepared, wire.KeeperPrepared{}, os.Stderr); pause() }},
	{"names a process that is not its child", "no child", func(c *wire.Conn) {
		c.Send(wire.TypeKeeperPrepared, wire.KeeperPrepared{})
		c.Receive()
		c.Send(wire.TypeKeeperStarted, wire.KeeperStarted{Pid: 1})
		pause()
	}},
	{"names itself", "no child", func(c *wire.Conn) {
		c.Send(wire.TypeKeeperPrepared, wire.KeeperPrepared{})
		c.Receive()
		c.Send(wire.TypeKeeperStarted, wire.KeeperStarted{Pid: os.Getpid()})
		pause()
	}},
	{"sends garbage", "violation", func(c *wire.Conn) { os.NewFile(3, "wire").WriteString("HTTP/1.1 200 OK\r\n\r\n"); pause() }},
	{"crashes", "no answer", func(c *wire.Conn) { panic("on purpose") }},
}

func pause() { syscall.Pause() }

// fakeKeeper is what this test binary does when a session starts it as its keeper.
func fakeKeeper() {
	c, err := wire.Inherited(3, "wire")
	if err != nil {
		return
	}
	frame, err := c.Receive()
	if err != nil {
		return
	}
	var setup wire.KeeperSetup
	if frame.Decode(&setup) != nil {
		return
	}
	for _, v := range setup.Spec.Env {
		for _, a := range keeperActs {
			if v == misbehaviour+a.name {
				a.act(c)
			}
		}
	}
	fmt.Fprintln(os.Stderr, "the fake keeper is done")
}

// TestHostileKeeper: a keeper that breaks the rules gets no session, in bounded time, and leaves nothing.
func TestHostileKeeper(t *testing.T) {
	everyUser(t, func(t *testing.T) {
		program, err := os.Open(filepath.Join(bin, "life.test"))
		if err != nil {
			t.Fatal(err)
		}
		defer program.Close()
		for _, tt := range keeperActs {
			t.Run(tt.name, func(t *testing.T) {
				leaks, before := goleak.IgnoreCurrent(), descriptors(t)
				p := newPlace(t)
				done := make(chan error, 1)
				go func() { done <- openWith(p, program, tt.name) }()
				select {
				case err := <-done:
					var refused *session.RefusedError
					if !errors.As(err, &refused) || !strings.Contains(err.Error(), tt.want) {
						t.Errorf("got %v, want %q", err, tt.want)
					}
				case <-time.After(30 * time.Second):
					t.Fatal("Open hangs")
				}
				goleak.VerifyNone(t, leaks)
				if after := descriptors(t); after > before {
					t.Errorf("%d descriptors before, %d after", before, after)
				}
				wantClean(t, p)
			})
		}
	})
}

func openWith(p plan.Place, program *os.File, act string) error {
	o, err := p.Options(program)
	if err != nil {
		return err
	}
	o.Spec.Env = append(o.Spec.Env, misbehaviour+act)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	s, err := session.Open(ctx, o)
	if err == nil {
		err = errors.Join(errors.New("it opened"), s.Close())
	}
	return err
}
