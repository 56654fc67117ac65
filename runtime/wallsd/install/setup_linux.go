package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// plan collects steps.
type plan struct {
	Machine
	steps []Step
}

func (p *plan) add(text string, do func(context.Context) error) {
	p.steps = append(p.steps, Step{Text: text, do: do})
}

func (p *plan) run(name string, args ...string) {
	p.add("run "+name+" "+strings.Join(args, " "), func(ctx context.Context) error { return p.Run(ctx, name, args...) })
}

// installProgram says whether the program is not there yet, or another.
func (p *plan) installProgram() (changed bool, err error) {
	dir := filepath.Dir(Program)
	if err := trusted(p.at(filepath.Dir(dir))); err != nil {
		return false, err
	}
	switch err := trusted(p.at(dir)); {
	case errors.Is(err, fs.ErrNotExist):
		p.add("make the folder "+dir, func(context.Context) error { return makeFolder(p.at(dir)) })
	case err != nil:
		return false, err
	}
	have, err := readRegular(p.at(Program))
	if err != nil || bytes.Equal(have, p.Helper) && executable(p.at(Program)) {
		return false, err
	}
	p.add(fmt.Sprintf("write the helper %s, %d bytes, owned by root", Program, len(p.Helper)), func(context.Context) error {
		return place(p.at(Program), p.Helper, 0o755)
	})
	return true, nil
}

// text plans one of our text files, and says whether it changes.
func (p *plan) text(path, content, what string) (changed bool, err error) {
	have, err := readRegular(p.at(path))
	if err != nil || string(have) == content {
		return false, err
	}
	if have != nil && !strings.HasPrefix(string(have), mark) {
		return false, fmt.Errorf("%s is %w: move it away", path, ErrForeign)
	}
	p.add("write "+what+" "+path, func(context.Context) error { return place(p.at(path), []byte(content), 0o644) })
	return true, nil
}

func (p *plan) installUnits(ctx context.Context, program bool) error {
	if !p.Systemd {
		return nil
	}
	socketChanged, err := p.text(unitSocket, socketText, "the systemd unit of the socket")
	if err != nil {
		return err
	}
	serviceChanged, err := p.text(unitHelper, serviceText, "the systemd unit of the helper, in a control group of its own that is delegated to it")
	if err != nil {
		return err
	}
	if socketChanged || serviceChanged {
		p.run("systemctl", "daemon-reload")
	}
	if program || serviceChanged {
		// One of an older build. The socket starts the new one. What runs through the old one ends.
		p.run("systemctl", "stop", "coworker-wallsd.service")
	}
	active := p.Run(ctx, "systemctl", "--quiet", "is-enabled", "coworker-wallsd.socket") == nil && p.Run(ctx, "systemctl", "--quiet", "is-active", "coworker-wallsd.socket") == nil
	if socketChanged || !active {
		p.run("systemctl", "enable", "--now", "coworker-wallsd.socket")
	}
	return nil
}

func (p *plan) installProfile() error {
	if !p.AppArmor {
		return nil
	}
	content, err := p.profileText()
	if err != nil {
		return err
	}
	changed, err := p.text(profile, content, "the AppArmor profile that lets "+p.Coworker+" make user namespaces,")
	if changed {
		p.run("apparmor_parser", "-r", p.at(profile))
	}
	return err
}

// trusted says that a folder is root's, and nobody else may replace what is in it.
func trusted(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	uid, err := owner(info)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is no folder", dir)
	case uid != 0 || info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s can be changed by others than root (owner %d, mode %04o): a program that root runs must not lie there; chown root and chmod go-w", dir, uid, info.Mode().Perm())
	}
	return nil
}

// maxProgram bounds what is read for a comparison.
const maxProgram = 64 << 20

// readRegular reads a file, following no link; nil if there is none.
func readRegular(path string) ([]byte, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > maxProgram:
		return nil, fmt.Errorf("%s is %w: it is a %v of %d bytes", path, ErrForeign, info.Mode().Type(), info.Size())
	}
	return os.ReadFile(path)
}

func executable(path string) bool {
	info, err := os.Lstat(path)
	if err != nil {
		return false
	}
	uid, err := owner(info)
	return err == nil && uid == 0 && info.Mode().Perm() == 0o755
}

func makeFolder(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return os.Chmod(dir, 0o755) // the umask may have taken bits away
}

// place writes a file so that there is the old one or the new one, whole, at any time.
func place(path string, data []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".coworker-*.tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Chown(0, 0), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
