package session

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"coworker/enforce"
	"coworker/platform/filelock"
	"coworker/platform/workfs"
)

// prepareHome makes the folders of the private home's store that the keeper attaches. What lies
// in the store was written from inside earlier sessions, so no link in it is followed.
func (s *Session) prepareHome() error {
	spec := &s.options.Spec
	if err := makeStore(spec.HomeStore, spec.Identity); err != nil {
		return fmt.Errorf("make the private home: %w", err)
	}
	root, err := workfs.OpenRoot(spec.HomeStore)
	if err != nil {
		return fmt.Errorf("open the private home: %w", err)
	}
	defer root.Close()
	var folders []string
	for _, d := range spec.HomeDirs {
		folders = append(folders, path.Join("home", d))
	}
	slot, err := s.cacheSlot()
	if err != nil {
		return fmt.Errorf("private caches in %q: %w", spec.HomeStore, err)
	}
	for _, c := range spec.Caches {
		folders = append(folders, path.Join(slot, c.Dir, "upper"), path.Join(slot, c.Dir, "work"))
		if dir, ok := persistent(c.Dir, spec.HomeDirs); ok {
			folders = append(folders, path.Join("home", dir))
		}
	}
	for _, t := range spec.Toolchains {
		if rel, ok := strings.CutPrefix(t, spec.Identity.Home+"/"); ok {
			if dir, ok := persistent(rel, spec.HomeDirs); ok {
				folders = append(folders, path.Join("home", dir))
			}
		}
	}
	for _, f := range folders {
		if err := makeFolders(root, f, spec.Identity); err != nil {
			return fmt.Errorf("private home %q: %w (`coworker cache reset` makes it anew)", spec.HomeStore, err)
		}
	}
	if s.options.Backend.Name() == enforce.Bare {
		if err := s.fillHome(root); err != nil {
			return fmt.Errorf("private home %q: %w (`coworker cache reset` makes it anew)", spec.HomeStore, err)
		}
	}
	return nil
}

// maxSlots bounds the sessions that use the private caches of one workspace at the same time.
const maxSlots = 256

// cacheSlot takes a set of cache layers for this session alone. Two overlays on one upper folder
// are undefined (Documentation/filesystems/overlayfs.rst, "Sharing and copying layers"). The next
// session gets the first free set, which for one session at a time is always the same.
func (s *Session) cacheSlot() (string, error) {
	spec := &s.options.Spec
	if len(spec.Caches) == 0 {
		return "", nil
	}
	for n := range maxSlots {
		name := filepath.Join(spec.HomeStore, fmt.Sprintf("slot-%d", n))
		lock, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
		if err != nil {
			return "", err
		}
		if !filelock.Try(lock) {
			lock.Close()
			continue
		}
		s.undo(lock.Close)
		slot := fmt.Sprintf("cache/%d", n)
		spec.CacheStore = filepath.Join(spec.HomeStore, slot)
		return slot, nil
	}
	return "", fmt.Errorf("%d sessions use them at once", maxSlots)
}

// persistent reports whether a path below the home lies in a folder that persists.
func persistent(rel string, homeDirs []string) (string, bool) {
	for _, d := range homeDirs {
		if rel == d || strings.HasPrefix(rel, d+"/") {
			return rel, true
		}
	}
	return "", false
}

func makeFolders(root *workfs.Root, rel string, id enforce.Identity) error {
	at := ""
	for _, name := range strings.Split(rel, "/") {
		at = path.Join(at, name)
		err := root.Mkdir(at, 0o700)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return err
		}
		if os.Geteuid() == 0 && id.UID != 0 {
			if err := root.Chown(at, id.UID, id.GID); err != nil {
				return err
			}
		}
	}
	info, err := root.Lstat(rel)
	if err == nil && info.Kind != workfs.Directory {
		err = fmt.Errorf("%q is a %s, not a folder", rel, info.Kind)
	}
	return err
}

// sharedStore is where private homes lie that root keeps for other users. Each user's folder
// below belongs to that user, because the keeper walks through it with that user's ids.
const sharedStore = "/var/cache/coworker"

// makeStore makes the folder of a private home. Below sharedStore the owner can change what is
// there, so root follows no link on the way.
func makeStore(store string, id enforce.Identity) error {
	if os.Geteuid() != 0 || id.UID == 0 {
		return os.MkdirAll(store, 0o700)
	}
	rel, ok := relativeTo(sharedStore, store)
	if !ok {
		return fmt.Errorf("%q is not below %s, where the homes of other users lie", store, sharedStore)
	}
	if err := os.MkdirAll(sharedStore, 0o755); err != nil {
		return err
	}
	root, err := workfs.OpenRoot(sharedStore)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.Chmod(".", 0o755); err != nil { // umask, or an older version
		return err
	}
	if err := makeFolders(root, rel, id); err != nil {
		return err
	}
	for at := rel; at != "."; at = path.Dir(at) { // folders that root made for itself before
		if err := root.Chown(at, id.UID, id.GID); err != nil {
			return err
		}
	}
	return nil
}
