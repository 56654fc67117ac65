package native

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"coworker/enforce"
)

// StepStage is the step in which a staged tree is attached. The supervisor tells a person by it that overlay is what is missing.
const StepStage = "mount overlay for the staged tree"

// stageOptions are fixed for every staged tree. A user namespace may keep overlay's marks in user attributes only.
// Without redirects a folder of the host's cannot be renamed (EXDEV), so a mask stays where it was put, and nothing written
// in an upper folder can name another lower one; without metacopy a copied file has its own bytes, which the apply reads;
// without an index nothing is kept about the lower folder, which may change while it is mounted.
var stageOptions = [][2]string{{"redirect_dir", "nofollow"}, {"metacopy", "off"}, {"index", "off"}, {"xino", "auto"}}

// openStage opens the two folders of a staged tree. They were written from inside, also earlier: no link on the way is followed.
func (s *source) openStage(stage string) error {
	root, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	rel := strings.TrimPrefix(stage, "/")
	if s.upper, err = openBeneath(root, rel+"/upper", unix.O_DIRECTORY); err != nil {
		return fmt.Errorf("upper folder of the stage %q: %w", stage, err)
	}
	if s.work, err = openBeneath(root, rel+"/work", unix.O_DIRECTORY); err != nil {
		return fmt.Errorf("work folder of the stage %q: %w", stage, err)
	}
	return nil
}

// attachStage puts an overlay over the person's folder on the target. It is attached by descriptor: the way to the target
// may lead through folders that others write.
func (b *builder) attachStage(s *source, target int) error {
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("fsopen: %w", err)
	}
	defer unix.Close(fs)
	options := append([][2]string{
		{"lowerdir", fmt.Sprintf("/proc/self/fd/%d", s.fd)},
		{"upperdir", fmt.Sprintf("/proc/self/fd/%d", s.upper)},
		{"workdir", fmt.Sprintf("/proc/self/fd/%d", s.work)},
	}, stageOptions...)
	for _, o := range options {
		if err := unix.FsconfigSetString(fs, o[0], o[1]); err != nil {
			return kernelSays(fs, fmt.Errorf("option %s: %w", o[0], err))
		}
	}
	if err := unix.FsconfigSetFlag(fs, "userxattr"); err != nil {
		return kernelSays(fs, fmt.Errorf("option userxattr: %w", err))
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return kernelSays(fs, err)
	}
	mnt, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return kernelSays(fs, fmt.Errorf("fsmount: %w", err))
	}
	defer unix.Close(mnt)
	if err := unix.MoveMount(mnt, "", target, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("move_mount: %w", err)
	}
	return nil
}

// kernelSays adds the kernel's own words about a file system that it does not make, if it has any (fsopen(2)).
func kernelSays(fs int, err error) error {
	var words []string
	buf := make([]byte, 1024)
	for range 8 {
		n, readErr := unix.Read(fs, buf)
		if readErr != nil || n <= 0 {
			break
		}
		// "e TEXT", "w TEXT" or "i TEXT"
		if kind, text, ok := strings.Cut(strings.TrimSpace(string(buf[:n])), " "); ok && kind != "i" {
			words = append(words, text)
		}
	}
	if len(words) == 0 {
		return err
	}
	return fmt.Errorf("%w (%s)", err, strings.Join(words, "; "))
}

// staged says whether a tree is attached as an overlay. A test build that leaves out fs.protect attaches it live, as it
// leaves out the pins of a live one.
func (b *builder) staged(t enforce.Tree) bool { return t.Stage != "" && !b.off(enforce.FSProtect) }
