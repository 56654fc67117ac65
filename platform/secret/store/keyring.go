package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/zalando/go-keyring"
)

// Keyring keeps small secrets for the person who is logged in.
type Keyring interface {
	Set(service, user, value string) error
	// Get's error matches ErrNotInKeyring if the keyring works and has no such item.
	Get(service, user string) (string, error)
}

// ErrNotInKeyring is a working keyring's answer.
var ErrNotInKeyring = errors.New("not in the keyring")

// askWait is how long a keyring may take. It may ask a person to unlock it, and nobody may be there.
const askWait = 20 * time.Second

// SystemKeyring is the keyring of the person's session: Secret Service, Keychain or Credential Manager. It is nil on a
// Linux machine without a session bus: the D-Bus library would start one (dbus-launch), which then stays, empty.
func SystemKeyring(getenv func(string) string) Keyring {
	if runtime.GOOS == "linux" && !hasSessionBus(getenv) {
		return nil
	}
	return newBounded(library{}, askWait)
}

func hasSessionBus(getenv func(string) string) bool {
	if address := getenv("DBUS_SESSION_BUS_ADDRESS"); address != "" {
		return address != "autolaunch:"
	}
	dir := getenv("XDG_RUNTIME_DIR")
	if dir == "" {
		dir = filepath.Join("/run/user", strconv.Itoa(os.Getuid()))
	}
	info, err := os.Stat(filepath.Join(dir, "bus"))
	return err == nil && info.Mode()&os.ModeSocket != 0
}

// library is go-keyring.
type library struct{}

func (library) Set(service, user, value string) error { return keyring.Set(service, user, value) }

func (library) Get(service, user string) (string, error) {
	value, err := keyring.Get(service, user)
	if errors.Is(err, keyring.ErrNotFound) {
		return "", ErrNotInKeyring
	}
	return value, err
}

// bounded gives up on a keyring that does not answer. The library cannot be interrupted, so a call that hangs keeps its
// goroutine until the process ends; after one, no further call is made, so there is at most one.
type bounded struct {
	next  Keyring
	limit time.Duration
	hung  atomic.Bool
}

func newBounded(next Keyring, limit time.Duration) *bounded {
	return &bounded{next: next, limit: limit}
}

func (b *bounded) Set(service, user, value string) error {
	_, err := b.within(func() (string, error) { return "", b.next.Set(service, user, value) })
	return err
}

func (b *bounded) Get(service, user string) (string, error) {
	return b.within(func() (string, error) { return b.next.Get(service, user) })
}

func (b *bounded) within(call func() (string, error)) (string, error) {
	slow := fmt.Errorf("the keyring did not answer within %v", b.limit)
	if b.hung.Load() {
		return "", slow
	}
	type answer struct {
		text string
		err  error
	}
	done := make(chan answer, 1) // buffered: a late answer is dropped
	go func() {
		text, err := call()
		done <- answer{text, err}
	}()
	timer := time.NewTimer(b.limit)
	defer timer.Stop()
	select {
	case a := <-done:
		return a.text, a.err
	case <-timer.C:
		b.hung.Store(true)
		return "", slow
	}
}
