package probe

import (
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

// hide lists the attempts on masked files of the person's trees; hiddenAttacks are those that
// destroy, in the scratch repository.
func hide(s Setup) []attempt {
	var all []attempt
	if !s.noScratch() {
		all = append(all, attempt{name: "scratch-read", wall: enforce.FSHide, run: readScratchSecret})
	}
	if files := sample(s.Spec.Trees, func(t enforce.Tree) []string { return t.Masks }); len(files) > 0 {
		all = append(all, attempt{name: "files", wall: enforce.FSHide, run: func(b *battery) result {
			return b.eachPath(files, (*battery).readMasked)
		}})
	}
	if dirs := sample(s.Spec.Trees, func(t enforce.Tree) []string { return t.MaskDirs }); len(dirs) > 0 {
		all = append(all, attempt{name: "folders", wall: enforce.FSHide, run: func(b *battery) result {
			return b.eachPath(dirs, (*battery).readMasked)
		}})
	}
	return all
}

// readMasked opens a mask. EACCES alone is a mask: an empty file would look like an honest one,
// and ENXIO is a socket of the host that is still there.
func (b *battery) readMasked(p string) result {
	err := openClose(p, unix.O_RDONLY)
	return judge(err, errnos{unix.EACCES}, errnos{unix.ENXIO}).at(p)
}

func readScratchSecret(b *battery) result {
	if b.Targets.Scratch == "" {
		return unclear(errNoScratch.Error())
	}
	p := path.Join(b.Targets.Scratch, scratchEnv)
	fd, err := unix.Open(p, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return judge(err, errnos{unix.EACCES}, nil).at(p)
	}
	defer unix.Close(fd)
	buf := make([]byte, 4096)
	n, err := unix.Read(fd, buf)
	switch {
	case err != nil:
		return unclear(p + ": opened, but " + errnoName(err))
	case b.Targets.Secret != "" && strings.Contains(string(buf[:n]), b.Targets.Secret):
		return leaked("the secret was read").at(p)
	default:
		return unclear(p + ": opened, but it does not hold the secret")
	}
}

func hiddenAttacks() []attack {
	hide := enforce.FSHide
	away, back := moveAway(scratchEnv)
	awayConf, backConf := moveAway(scratchConf)
	return []attack{
		{name: "reopen", wall: hide, try: reopenSecret},
		{name: "link", wall: hide, try: func(d scratch) error { return unix.Link(d.path(scratchEnv), d.path("hardlink")) }},
		{name: "move-away", wall: hide, try: away, undo: back},
		{name: "exchange", wall: hide, try: exchange(scratchEnv, false)},
		{name: "move-parent", wall: hide, try: awayConf, undo: backConf},
		{name: "exchange-parent", wall: hide, try: exchange(scratchConf, true)},
		{name: "write", wall: hide, try: func(d scratch) error { return openClose(d.path(scratchEnv), unix.O_WRONLY) }},
		// A writable mask is no wall: bound without MS_RDONLY, chmod works on the mask itself.
		{name: "chmod", wall: hide, try: func(d scratch) error { return unix.Chmod(d.path(scratchEnv), 0o644) },
			undo: func(d scratch) { unix.Chmod(d.path(scratchEnv), 0o600) }},
		{name: "chown", wall: hide, try: func(d scratch) error { return unix.Lchown(d.path(scratchEnv), -1, -1) }},
	}
}

func reopenSecret(d scratch) error {
	fd, err := unix.Open(d.path(scratchEnv), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return &preparation{err}
	}
	defer unix.Close(fd)
	return openClose("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY)
}
