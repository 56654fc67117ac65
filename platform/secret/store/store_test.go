package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"coworker/platform/secret"
)

const planted = "pl4nted-Value-77"

func entry(name string) secret.Entry {
	return secret.Entry{Name: name, Value: secret.NewValue(planted + name), Source: secret.FromSet, Created: time.Unix(1e9, 0).UTC(),
		Binding: secret.Binding{Host: "api.example.com", Port: 443, Header: "Authorization", Scheme: secret.Bearer}}
}

// made is a store with one entry and its key in a file.
func made(t *testing.T) (*Store, string) {
	t.Helper()
	dir := t.TempDir()
	s := New(dir, nil)
	if err := s.Put(false, entry("one")); err != nil {
		t.Fatal(err)
	}
	return s, dir
}

func TestNoStoreIsMadeByReading(t *testing.T) {
	dir := t.TempDir()
	s := New(dir, nil)
	if list, err := s.List(); err != nil || len(list) != 0 {
		t.Fatalf("%v, %v", list, err)
	}
	if key, err := s.Key(); err != nil || key != (Key{}) {
		t.Fatalf("%v, %v", key, err)
	}
	if err := s.Remove("one"); !errors.Is(err, ErrNoEntry) {
		t.Fatalf("%v", err)
	}
	if err := s.Put(false, secret.Entry{Name: "bad"}); err == nil {
		t.Fatal("an entry without a value was stored")
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 0 {
		t.Fatalf("left %v, %v", names, err)
	}
}

func TestPutForRemove(t *testing.T) {
	s, _ := made(t)
	if err := s.Put(false, entry("two"), entry("one")); !errors.Is(err, ErrExists) {
		t.Fatalf("a name is taken: %v", err)
	}
	if _, err := s.For("two"); !errors.Is(err, ErrNoEntry) {
		t.Fatalf("half of a refused Put is there: %v", err)
	}
	changed := entry("one")
	changed.Value = secret.NewValue("another value")
	if err := s.Put(true, changed, entry("two")); err != nil {
		t.Fatal(err)
	}
	got, err := s.For("two", "one")
	if err != nil || !reflect.DeepEqual(got, []secret.Entry{entry("two"), changed}) {
		t.Fatalf("%v, %v", got, err)
	}
	if err := s.Remove("two", "three"); !errors.Is(err, ErrNoEntry) {
		t.Fatalf("%v", err)
	}
	if err := s.Remove("two", "one"); err != nil {
		t.Fatal(err)
	}
	if list, err := s.List(); err != nil || len(list) != 0 {
		t.Fatalf("%v, %v", list, err)
	}
	if err := s.Remove("ghp_" + planted); !errors.Is(err, ErrNoEntry) || strings.Contains(err.Error(), planted) {
		t.Fatalf("%v", err)
	}
}

func TestRoundTripOfAnyBytes(t *testing.T) {
	s, _ := made(t)
	rapid.Check(t, func(t *rapid.T) {
		e := entry("one")
		b := rapid.SliceOfN(rapid.Byte().Filter(func(b byte) bool { return b != 0 && b != '\r' && b != '\n' }), secret.MinValue, 300).Draw(t, "value")
		e.Value = secret.NewValue(string(b))
		if err := s.Put(true, e); err != nil {
			t.Fatal(err)
		}
		if got, err := s.For("one"); err != nil || got[0].Value.Reveal() != string(b) {
			t.Fatalf("other bytes come back: %v", err)
		}
	})
}

// TestTamper changes each byte, cuts at each length, and appends: there is no file but the one written that opens.
func TestTamper(t *testing.T) {
	s, dir := made(t)
	file := filepath.Join(dir, sealedName)
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, data []byte) {
		t.Helper()
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := s.Entries()
		var own *Error
		if !errors.As(err, &own) || own.File != file || own.Hint() == "" || len(got) != 0 {
			t.Errorf("%s: %d entries, %v", what, len(got), err)
		}
	}
	for i := range good {
		bad := slices.Clone(good)
		bad[i] ^= 1 << (i % 8)
		check(fmt.Sprintf("byte %d", i), bad)
	}
	for n := range good {
		if n%7 == 0 || n > len(good)-20 {
			check(fmt.Sprintf("cut at %d", n), good[:n])
		}
	}
	check("appended", append(slices.Clone(good), 0))
	check("twice", append(slices.Clone(good), good...))
	check("too large", make([]byte, maxSealed+1))

	// Sealed with the right key, but no store.
	id, err := parseIdentity(string(must(os.ReadFile(filepath.Join(dir, keyName)))))
	if err != nil {
		t.Fatal(err)
	}
	check("other content", must(id.seal([]byte(planted))))
	other, err := newIdentity()
	if err != nil {
		t.Fatal(err)
	}
	check("other key", must(other.seal(must(secret.Encode([]secret.Entry{entry("one")})))))

	if err := os.WriteFile(file, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Entries(); err != nil || len(got) != 1 {
		t.Fatalf("the written file: %v, %v", got, err)
	}
}

func must(data []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return data
}

// TestBrokenStores leaves something out or puts something wrong: each is an error with advice, and none is a new store.
func TestBrokenStores(t *testing.T) {
	type breaking struct {
		name string
		do   func(dir string) error
		file string // that the error names
	}
	other := func(dir string) error {
		id, err := newIdentity()
		return errors.Join(err, os.WriteFile(filepath.Join(dir, keyName), []byte(id.text()), 0o600))
	}
	list := []breaking{
		{"no key", func(d string) error { return os.Remove(filepath.Join(d, keyName)) }, keyName},
		{"no header", func(d string) error { return os.Remove(filepath.Join(d, headerName)) }, headerName},
		{"no entries", func(d string) error { return os.Remove(filepath.Join(d, sealedName)) }, sealedName},
		{"another key", other, keyName},
		{"no text in the key", func(d string) error { return os.WriteFile(filepath.Join(d, keyName), nil, 0o600) }, keyName},
		{"header cut off", func(d string) error { return os.Truncate(filepath.Join(d, headerName), 20) }, headerName},
		{"newer header", func(d string) error {
			return os.WriteFile(filepath.Join(d, headerName), []byte(`{"version":2,"key":"vault"}`), 0o600)
		}, headerName},
	}
	if runtime.GOOS != "windows" {
		list = append(list,
			breaking{"wide key", func(d string) error { return os.Chmod(filepath.Join(d, keyName), 0o640) }, keyName},
			breaking{"wide entries", func(d string) error { return os.Chmod(filepath.Join(d, sealedName), 0o604) }, sealedName},
			breaking{"linked key", func(d string) error {
				return errors.Join(os.Rename(filepath.Join(d, keyName), filepath.Join(d, "x")), os.Symlink("x", filepath.Join(d, keyName)))
			}, keyName},
			breaking{"hard link", func(d string) error { return os.Link(filepath.Join(d, keyName), filepath.Join(d, "x")) }, keyName},
			breaking{"folder", func(d string) error {
				return errors.Join(os.Remove(filepath.Join(d, keyName)), os.Mkdir(filepath.Join(d, keyName), 0o700))
			}, keyName},
		)
		if os.Geteuid() == 0 {
			list = append(list, breaking{"foreign key", func(d string) error { return os.Chown(filepath.Join(d, keyName), 4242, -1) }, keyName})
		}
	}
	for _, b := range list {
		s, dir := made(t)
		if err := b.do(dir); err != nil {
			t.Fatal(err)
		}
		for what, call := range map[string]func() error{
			"Entries": func() error { _, err := s.Entries(); return err },
			"Put":     func() error { return s.Put(true, entry("one")) },
			"Remove":  func() error { return s.Remove("one") },
		} {
			var own *Error
			err := call()
			if !errors.As(err, &own) || own.Hint() == "" || own.File != filepath.Join(dir, b.file) || strings.Contains(err.Error(), planted) {
				t.Errorf("%s: %s: %v", b.name, what, err)
			}
		}
	}
}

// TestKeyFileIsKept: a store that was moved away still needs its key.
func TestKeyFileIsKept(t *testing.T) {
	_, dir := made(t)
	before := must(os.ReadFile(filepath.Join(dir, keyName)))
	for _, name := range []string{headerName, sealedName} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := New(dir, nil).Put(false, entry("two")); err != nil {
		t.Fatal(err)
	}
	if after := must(os.ReadFile(filepath.Join(dir, keyName))); !bytes.Equal(before, after) {
		t.Error("the key was replaced")
	}
}

func TestNothingIsInTheClear(t *testing.T) {
	s, dir := made(t)
	if err := s.Put(true, entry("one"), entry("two")); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if data := must(os.ReadFile(path)); bytes.Contains(data, []byte(planted)) || bytes.Contains(data, []byte("api.example.com")) {
			t.Errorf("%s shows the content", path)
		}
		if info, err := d.Info(); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", path, info.Mode(), err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestProcesses lets several processes make one store and add to it.
func TestProcesses(t *testing.T) {
	const processes, each = 4, 5
	if dir := os.Getenv("STORE_TEST_DIR"); dir != "" {
		for i := range each {
			if err := New(dir, nil).Put(false, entry(fmt.Sprintf("p%s-%d", os.Getenv("STORE_TEST_NUMBER"), i))); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	dir := t.TempDir()
	var running []*exec.Cmd
	for n := range processes {
		cmd := exec.Command(os.Args[0], "-test.run=^TestProcesses$")
		cmd.Env = append(os.Environ(), "STORE_TEST_DIR="+dir, fmt.Sprintf("STORE_TEST_NUMBER=%d", n))
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running = append(running, cmd)
	}
	for _, cmd := range running {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	if list, err := New(dir, nil).List(); err != nil || len(list) != processes*each {
		t.Errorf("%d entries, want %d: %v", len(list), processes*each, err)
	}
}

func TestLockedStoreIsNotWaitedForForEver(t *testing.T) {
	s, dir := made(t)
	unlock, err := s.lock()
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	second := New(dir, nil)
	second.wait = 0
	var own *Error
	if _, err := second.Entries(); !errors.As(err, &own) {
		t.Errorf("%v", err)
	}
}
