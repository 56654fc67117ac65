package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zalando/go-keyring"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a keyring of the test's own.
type memory struct {
	items map[string]string
	fail  error
	mute  bool // takes everything, keeps nothing
}

func (m *memory) Set(service, user, value string) error {
	if m.fail == nil && !m.mute {
		m.items[service+"/"+user] = value
	}
	return m.fail
}

func (m *memory) Get(service, user string) (string, error) {
	value, ok := m.items[service+"/"+user]
	if m.fail == nil && !ok {
		return "", ErrNotInKeyring
	}
	return value, m.fail
}

func TestKeyInKeyring(t *testing.T) {
	dir, ring := t.TempDir(), &memory{items: map[string]string{}}
	s := New(dir, ring)
	if err := s.Put(false, entry("one")); err != nil {
		t.Fatal(err)
	}
	if key, err := s.Key(); err != nil || key != (Key{Place: InKeyring}) {
		t.Fatalf("%v, %v", key, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, keyName)); !os.IsNotExist(err) {
		t.Fatalf("there is a key file: %v", err)
	}
	if got, err := s.For("one"); err != nil || got[0].Value.Reveal() != planted+"one" {
		t.Fatalf("%v", err)
	}
	// A second home has a key of its own, and both work.
	other := New(t.TempDir(), ring)
	if err := other.Put(false, entry("two")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Entries(); err != nil || len(ring.items) != 2 {
		t.Fatalf("%d items, %v", len(ring.items), err)
	}
}

// TestKeyIsNeverSwitched: no keyring, a locked one, an empty one and one with another key are errors, and leave the store.
func TestKeyIsNeverSwitched(t *testing.T) {
	dir, ring := t.TempDir(), &memory{items: map[string]string{}}
	if err := New(dir, ring).Put(false, entry("one")); err != nil {
		t.Fatal(err)
	}
	foreign := &memory{items: map[string]string{}}
	id, err := newIdentity()
	if err != nil {
		t.Fatal(err)
	}
	for name := range ring.items {
		foreign.items[name] = id.text()
	}
	for name, now := range map[string]Keyring{
		"none": nil, "locked": &memory{fail: errors.New("locked")}, "empty": &memory{items: map[string]string{}}, "foreign": foreign,
	} {
		s := New(dir, now)
		for _, err := range []error{s.Put(true, entry("one")), s.Remove("one")} {
			var own *Error
			if !errors.As(err, &own) || own.Hint() == "" || strings.Contains(err.Error(), id.text()) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := os.Lstat(filepath.Join(dir, keyName)); !os.IsNotExist(err) {
			t.Errorf("%s: there is a key file: %v", name, err)
		}
	}
	if _, err := New(dir, ring).For("one"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	// A store with a key file stays with it when a keyring comes.
	s, dir2 := made(t)
	s = New(s.dir, ring)
	if err := s.Put(true, entry("one")); err != nil {
		t.Fatal(err)
	}
	if key, err := s.Key(); err != nil || key.Place != InFile || key.File != filepath.Join(dir2, keyName) {
		t.Errorf("%v, %v", key, err)
	}
}

func TestFileWhereKeyringFails(t *testing.T) {
	for name, ring := range map[string]Keyring{
		"no service": &memory{fail: errors.New("org.freedesktop.secrets was not provided")}, "mute": &memory{mute: true},
		"wordy": &memory{fail: errors.New(strings.Repeat("\x00é", maxHeader))},
	} {
		s := New(t.TempDir(), ring)
		if err := s.Put(false, entry("one")); err != nil {
			t.Fatal(err)
		}
		if key, err := s.Key(); err != nil || key.Place != InFile || key.NoKeyring == "" {
			t.Errorf("%s: %v, %v", name, key, err)
		}
		if _, err := s.For("one"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// stuck answers when the test lets it.
type stuck struct {
	release chan struct{}
	calls   chan struct{}
}

func (k *stuck) Set(string, string, string) error {
	k.calls <- struct{}{}
	<-k.release
	return nil
}

func (k *stuck) Get(string, string) (string, error) { return "", k.Set("", "", "") }

func TestHangingKeyring(t *testing.T) {
	ring := &stuck{release: make(chan struct{}), calls: make(chan struct{}, 10)}
	defer close(ring.release)
	s := New(t.TempDir(), newBounded(ring, 1))
	if err := s.Put(false, entry("one")); err != nil {
		t.Fatal(err)
	}
	if key, err := s.Key(); err != nil || key.Place != InFile || !strings.Contains(key.NoKeyring, "did not answer") {
		t.Errorf("%v, %v", key, err)
	}
	if _, err := s.keyring.Get("a", "b"); err == nil {
		t.Error("a keyring that hung was asked again")
	}
	<-ring.calls
	if len(ring.calls) != 0 {
		t.Errorf("%d more calls", len(ring.calls))
	}
}

func TestSystemKeyring(t *testing.T) {
	keyring.MockInit()
	with := func(env map[string]string) Keyring {
		return SystemKeyring(func(name string) string { return env[name] })
	}
	ring := with(map[string]string{"DBUS_SESSION_BUS_ADDRESS": "unix:path=/nowhere"})
	if _, err := ring.Get(service, "x"); !errors.Is(err, ErrNotInKeyring) {
		t.Errorf("%v", err)
	}
	s := New(t.TempDir(), ring)
	if err := s.Put(false, entry("one")); err != nil {
		t.Fatal(err)
	}
	if key, err := s.Key(); err != nil || key.Place != InKeyring {
		t.Errorf("%v, %v", key, err)
	}
	if hasSessionBus(func(name string) string {
		return map[string]string{"XDG_RUNTIME_DIR": t.TempDir()}[name]
	}) {
		t.Error("a session bus in an empty folder")
	}
	if hasSessionBus(func(string) string { return "autolaunch:" }) {
		t.Error("the library may start a bus")
	}
}
