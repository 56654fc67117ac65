// Package plan makes the Options of a plain session for tests: one writable workspace and a private home.
//
// It may be imported below integration/life only. Deciding what a real session sees is the business of
// runtime/wallspec and must not be repeated here.
package plan

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"coworker/enforce"
	"coworker/netproxy/control"
	"coworker/runtime/session"
)

// Place is where a session works. All paths are absolute.
type Place struct {
	Workspace  string
	Home       string // of the user; the private home hides it
	State      string
	Store      string // backs the private home
	Backend    enforce.BackendName
	Level      string // minimum; "" is enforced
	ReadOnly   bool
	OneCommand bool
	Staged     bool
	Network    bool // the session has a proxy; Options leaves its program to the caller
}

// New lays a place out below dir, which belongs to the caller.
func New(dir string) (Place, error) {
	p := Place{
		Workspace: filepath.Join(dir, "work"), Home: filepath.Join(dir, "home"),
		State: filepath.Join(dir, "state"), Store: filepath.Join(dir, "store"),
	}
	for _, d := range []string{p.Workspace, p.Home, p.State} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return p, err
		}
	}
	return p, nil
}

type noRecord struct{}

func (noRecord) Attest(context.Context, []byte) (string, error)         { return "none", nil }
func (noRecord) Record(context.Context, string, ...session.Event) error { return nil }

// Options of a session at the place, with the ids of this process.
func (p Place) Options(program *os.File) (session.Options, error) {
	tree, err := Tree(p.Workspace, !p.ReadOnly)
	if err != nil {
		return session.Options{}, err
	}
	level := enforce.Enforced
	if p.Level != "" {
		if level, err = enforce.ParseLevel(p.Level); err != nil {
			return session.Options{}, err
		}
	}
	backend, err := backendOf(p.Backend)
	if err != nil {
		return session.Options{}, err
	}
	net, egress := enforce.NetNone, (*session.Egress)(nil)
	if p.Network {
		net, egress = enforce.NetAllowlist, &session.Egress{Config: control.Config{Allow: []string{"ok.test"}}}
	}
	limits := enforce.Limits{Processes: 512, OpenFiles: 4096, FileSize: 1 << 33, Tmp: 1 << 29, Memory: 1 << 31}
	if level == enforce.Hardened {
		limits.CPUs, limits.Time = 1.5, 3600
	}
	uid, gid := os.Geteuid(), os.Getegid()
	return session.Options{
		Egress: egress,
		Spec: enforce.Spec{
			Workspace: p.Workspace, Trees: []enforce.Tree{tree}, Net: net,
			Identity:  enforce.Identity{UID: uid, GID: gid, Name: "me", Home: p.Home},
			Env:       []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + p.Home, "LANG=C.UTF-8"},
			HomeStore: p.Store, HomeDirs: []string{".cache", ".local/share"},
			Limits:   limits,
			EtcAllow: []string{"ld.so.cache", "alternatives", "ssl/certs", "localtime"},
			Etc:      []enforce.File{{Path: "passwd", Data: fmt.Appendf(nil, "me:x:%d:%d::%s:/bin/sh\n", uid, gid, p.Home), Mode: 0o644}},
		},
		Backend: backend, Program: program, StateDir: p.State, MinLevel: level, OneCommand: p.OneCommand,
		Staged: p.Staged, StageStore: filepath.Join(p.State, "changes"),
		Recorder: noRecord{}, Notify: func(session.Notice) {}, Now: time.Now,
	}, nil
}

// Tree names a folder as the supervisor resolves it.
func Tree(folder string, writable bool) (enforce.Tree, error) {
	var st syscall.Stat_t
	if err := syscall.Lstat(folder, &st); err != nil {
		return enforce.Tree{}, &os.PathError{Op: "lstat", Path: folder, Err: err}
	}
	return enforce.Tree{Path: folder, Writable: writable, Device: st.Dev, Inode: st.Ino}, nil
}

func backendOf(name enforce.BackendName) (enforce.Backend, error) {
	for _, b := range session.Backends() {
		if name == "" || b.Name() == name {
			return b, nil
		}
	}
	return nil, fmt.Errorf("no backend %q in this build", name)
}
