package vm

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"coworker/integration/vm/guest"
)

// skeleton is the root file system that every guest has: Debian's layout, root
// and one ordinary user. /dev/console comes with the kernel (usr/default_cpio_list).
func skeleton() []File {
	passwd := fmt.Sprintf("root:x:0:0:root:/root:/bin/sh\n%[1]s:x:%[2]d:%[2]d::/home/%[1]s:/bin/sh\nnobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n",
		guest.Worker, guest.WorkerUID)
	group := fmt.Sprintf("root:x:0:\ntty:x:5:\n%s:x:%d:\nnogroup:x:65534:\n", guest.Worker, guest.WorkerUID)
	shadow := "root:*:19000:0:99999:7:::\n" + guest.Worker + ":*:19000:0:99999:7:::\n"
	files := []File{
		{Path: "/etc/passwd", Mode: 0o644, Data: []byte(passwd)},
		{Path: "/etc/group", Mode: 0o644, Data: []byte(group)},
		{Path: "/etc/shadow", Mode: 0o640, Data: []byte(shadow)},
		{Path: "/etc/hosts", Mode: 0o644, Data: []byte("127.0.0.1 localhost guest\n::1 localhost\n")},
		{Path: "/etc/hostname", Mode: 0o644, Data: []byte("guest\n")},
		{Path: "/etc/nsswitch.conf", Mode: 0o644, Data: []byte("passwd: files\ngroup: files\nhosts: files dns\n")},
		{Path: "/root", Mode: fs.ModeDir | 0o700},
		{Path: "/home/" + guest.Worker, Mode: fs.ModeDir | 0o755, UID: guest.WorkerUID, GID: guest.WorkerUID},
	}
	for _, dir := range []string{"proc", "sys", "run", "tmp", "mnt", "opt", "srv", "usr/local/bin", "usr/share"} {
		files = append(files, File{Path: "/" + dir, Mode: fs.ModeDir | 0o755})
	}
	for _, dir := range usrLinks {
		files = append(files,
			File{Path: "/usr/" + dir, Mode: fs.ModeDir | 0o755},
			File{Path: "/" + dir, Link: "usr/" + dir})
	}
	return append(files,
		File{Path: "/var/lib", Mode: fs.ModeDir | 0o755},
		File{Path: "/var/cache", Mode: fs.ModeDir | 0o755},
		File{Path: "/var/tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777})
}

// writeInitramfs packs the guest into file. loaded must be in load order.
func writeInitramfs(file, init string, g Guest, loaded, rest []File) (err error) {
	plan := guest.Plan{Cases: g.Cases, Cgroups: g.Cgroups, Deadline: g.timeout()}
	for _, m := range loaded {
		plan.Modules = append(plan.Modules, m.Path)
	}
	planData, err := json.Marshal(plan)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()

	buffered := bufio.NewWriterSize(out, 1<<20)
	// The fastest level: the emulated machine inflates far slower than this one
	// deflates, and either is dwarfed by booting.
	packed, err := gzip.NewWriterLevel(buffered, gzip.BestSpeed)
	if err != nil {
		return err
	}
	archive := newCPIOWriter(packed)
	own := []File{
		{Path: "/init", Mode: 0o755, Source: init},
		{Path: guest.PlanPath, Mode: 0o644, Data: planData},
	}
	for _, files := range [][]File{skeleton(), own, loaded, rest, g.Files} {
		for _, f := range files {
			if err := archive.add(f); err != nil {
				return err
			}
		}
	}
	return errors.Join(archive.close(), packed.Close(), buffered.Flush())
}

// Tree returns the files below a folder of this machine as a tree of the guest.
func Tree(source, target string) ([]File, error) {
	var files []File
	root := os.DirFS(source)
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		f := File{Path: path.Join(target, name), Mode: info.Mode()}
		switch {
		case d.Type()&fs.ModeSymlink != 0:
			f.Link, err = os.Readlink(path.Join(source, name))
		case d.Type().IsRegular():
			f.Source = path.Join(source, name)
		case !d.IsDir():
			return fmt.Errorf("%s is neither a file, a folder nor a link", path.Join(source, name))
		}
		files = append(files, f)
		return err
	})
	return files, err
}
