package session

import (
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"coworker/enforce"
	"coworker/enforce/container"
	"coworker/runtime/wire"
)

// fakeBox is the other side of a handshake.
type fakeBox struct {
	control net.Conn
	reader  *container.Reader
	launch  *wire.Conn
}

func newHandshake(t *testing.T) (*boxLink, *fakeBox) {
	t.Helper()
	control, peer, err := boxPair()
	if err != nil {
		t.Fatal(err)
	}
	other, err := net.FileConn(peer)
	if err != nil {
		t.Fatal(err)
	}
	peer.Close()
	launch, launchPeer, err := wire.Pair("launch-wire")
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeBox{control: other, reader: container.NewReader(other), launch: wire.NewConn(launchPeer)}
	t.Cleanup(func() {
		for _, c := range []io.Closer{control, launch, f.control, f.launch} {
			c.Close() // some were closed by the test
		}
	})
	return &boxLink{control: control, launch: launch}, f
}

// TestHandshake wants nothing of a helper or a launcher that breaks the rules.
func TestHandshake(t *testing.T) {
	child := exec.Command("sleep", "100")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		child.Process.Kill()
		child.Wait() // killed
	}()
	answer := func(v any) func(*fakeBox) { return func(f *fakeBox) { container.Send(f.control, v) } }
	good := answer(container.Answer{Pid: os.Getpid()})
	launched := func(pid int) func(*fakeBox) {
		return func(f *fakeBox) { good(f); f.launch.Send(wire.TypeLaunched, wire.Launched{Pid: pid}) }
	}
	for _, tt := range []struct {
		name string
		play func(*fakeBox)
		want string // part of the error, empty for success
	}{
		{"honest", launched(child.Process.Pid), ""},
		{"helper dies", func(f *fakeBox) { f.control.Close() }, "coworker-box gave no answer"},
		{"helper fails", answer(container.Answer{Error: "no such group"}), "coworker-box: no such group"},
		{"unknown field", answer(map[string]any{"pid": 1, "root": true}), "unknown field"},
		{"endless answer", func(f *fakeBox) { f.control.Write([]byte(strings.Repeat("x", 1<<20))) }, "more than"},
		{"launcher dies", func(f *fakeBox) { good(f); f.launch.Close() }, "the launcher in the container gave no answer"},
		{"launcher fails", func(f *fakeBox) {
			good(f)
			f.launch.Send(wire.TypeFailed, wire.Failed{Step: "clone", Reason: "not permitted"})
		}, "clone: not permitted"},
		{"another message", func(f *fakeBox) { good(f); f.launch.Send(wire.TypeKeeperStarted, wire.KeeperStarted{Pid: 1}) }, "KeeperStarted"},
		{"a descriptor", func(f *fakeBox) {
			good(f)
			f.launch.Send(wire.TypeLaunched, wire.Launched{Pid: child.Process.Pid}, os.Stderr)
		}, "1 descriptors"},
		{"pid of somebody else", launched(1), "no child of the launcher"},
		{"pid of nobody", launched(-1), "no child of the launcher"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, f := newHandshake(t)
			played := make(chan error, 1)
			go func() {
				var setup container.Setup
				err := f.reader.Receive(&setup)
				tt.play(f)
				played <- err
			}()
			k := &keeperLink{}
			err := k.handshake(b, container.Setup{Group: "/coworker/a"}, wire.Launch{Identity: enforce.Identity{UID: 1}})
			b.control.Close() // the endless answer ends
			if setupErr := <-played; setupErr != nil {
				t.Error(setupErr)
			}
			if tt.want == "" {
				if err != nil || k.pid != child.Process.Pid || k.launcher != os.Getpid() {
					t.Errorf("keeper %d, launcher %d, %v", k.pid, k.launcher, err)
				}
			} else if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// TestLabels wants no label that nobody sets.
func TestLabels(t *testing.T) {
	if b, err := WithLabels(nativeBackend{}, container.Labels{}); err != nil || b.Name() != enforce.Native {
		t.Errorf("%v, %v", b, err)
	}
	if _, err := WithLabels(nativeBackend{}, container.Labels{AppArmor: "a"}); err == nil {
		t.Error("native takes labels")
	}
	ok, got, err := container.Labels{AppArmor: "coworker"}.Held(os.Getpid())
	if ok {
		t.Errorf("this process has the label %q, %v", got, err)
	}
}
