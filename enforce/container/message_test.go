package container

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
)

func TestMessages(t *testing.T) {
	want := Setup{Group: "/coworker/a", Labels: Labels{AppArmor: "p", SELinux: "l"}, HostNet: true}
	var b bytes.Buffer
	if err := errors.Join(Send(&b, want), Send(&b, Stop{Stop: true})); err != nil {
		t.Fatal(err)
	}
	r := NewReader(&b)
	var got Setup
	var stop Stop
	if err := r.Receive(&got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := r.Receive(&stop); err != nil || !stop.Stop {
		t.Errorf("got %+v, %v", stop, err)
	}
	if err := r.Receive(&stop); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

func TestBadMessages(t *testing.T) {
	for name, text := range map[string]string{
		"cut short":     `{"pid":1}`,
		"unknown field": "{\"pid\":1,\"uid\":0}\n",
		"two in a line": "{\"pid\":1}{\"pid\":2}\n",
		"another type":  "{\"pid\":\"1\"}\n",
		"no JSON":       "\x00\n",
		"endless":       strings.Repeat(" ", 2*maxMessage),
		"too long":      "{\"error\":\"" + strings.Repeat("a", maxMessage) + "\"}\n",
	} {
		t.Run(name, func(t *testing.T) {
			var a Answer
			if err := NewReader(strings.NewReader(text)).Receive(&a); err == nil || err == io.EOF {
				t.Errorf("taken as %+v, %v", a, err)
			}
		})
	}
}

func FuzzReceive(f *testing.F) {
	f.Add([]byte("{\"pid\":1}\n{\"pid\":2,\"error\":\"a\"}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := NewReader(bytes.NewReader(data))
		for range len(data) + 1 {
			var a Answer
			if r.Receive(&a) != nil {
				return
			}
		}
		t.Fatal("more messages than bytes")
	})
}
