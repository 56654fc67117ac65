package session

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// CellDigest is the SHA-256 of the coworker-cell binary that belongs to this build, in hex. The
// Makefile sets it at link time. Without it no cell is started.
var CellDigest string

// ProxyDigest is the same for coworker-proxy.
var ProxyDigest string

// BoxDigest is the same for coworker-box. A build without that helper has none.
var BoxDigest string

// WallsdDigest is the same for coworker-wallsd.
var WallsdDigest string

// maxProgram bounds how much is read as a cell binary.
const maxProgram = 64 << 20

// OpenProgram finds the cell's binary beside this executable, checks its digest and returns a
// sealed copy: what was checked is what runs, also if the file is replaced meanwhile. (The
// pattern is runc's answer to CVE-2019-5736.) The caller closes it.
func OpenProgram() (*os.File, error) { return openHelper("coworker-cell", CellDigest) }

// OpenProxy does the same for coworker-proxy.
func OpenProxy() (*os.File, error) { return openHelper("coworker-proxy", ProxyDigest) }

// OpenBox does the same for coworker-box.
func OpenBox() (*os.File, error) { return openHelper("coworker-box", BoxDigest) }

// OpenWallsd does the same for coworker-wallsd, which is not started but installed.
func OpenWallsd() (*os.File, error) { return openHelper("coworker-wallsd", WallsdDigest) }

func openHelper(name, digest string) (*os.File, error) {
	self, err := os.Executable()
	if errors.Is(err, fs.ErrNotExist) { // the link /proc/self/exe
		return nil, &RefusedError{Cause: errors.New("/proc is not mounted"), Remedy: "as root: mount -t proc proc /proc"}
	}
	if err != nil {
		return nil, fmt.Errorf("find this executable: %w", err)
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return nil, fmt.Errorf("find this executable: %w", err)
	}
	return openProgram(filepath.Join(filepath.Dir(self), name), digest)
}

func openProgram(path, digest string) (*os.File, error) {
	if digest == "" {
		return nil, &ProgramError{Path: path, Reason: "this build carries no digest of " + filepath.Base(path)}
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, &ProgramError{Path: path, Reason: err.Error()}
	}
	defer file.Close()
	fd, err := unix.MemfdCreate(filepath.Base(path), unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // MFD_EXEC is new in Linux 6.3
		fd, err = unix.MemfdCreate(filepath.Base(path), unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if errors.Is(err, unix.EACCES) { // vm.memfd_noexec=2 forbids programs in memory
		return verifiedFile(path, digest)
	}
	if err != nil {
		return nil, &ProgramError{Path: path, Reason: "memfd_create: " + err.Error()}
	}
	mem := os.NewFile(uintptr(fd), filepath.Base(path))
	if err := sealedCopy(mem, file, digest); err != nil {
		mem.Close()
		return nil, &ProgramError{Path: path, Reason: err.Error()}
	}
	return mem, nil
}

// sealedCopy copies the file into memory without a detour through this process, seals it, and then
// checks the bytes that can no longer change.
func sealedCopy(mem, file *os.File, digest string) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() == 0 || info.Size() > maxProgram {
		return fmt.Errorf("it is no program: mode %v, %d bytes", info.Mode(), info.Size())
	}
	for left := int(info.Size()); left > 0; {
		n, err := unix.Sendfile(int(mem.Fd()), int(file.Fd()), nil, left)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return fmt.Errorf("copy into memory: %d of %d bytes are missing: %w", left, info.Size(), errors.Join(err, io.ErrUnexpectedEOF))
		}
		left -= n
	}
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(mem.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return fmt.Errorf("seal: %w", err)
	}
	data, err := unix.Mmap(int(mem.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_POPULATE)
	if err != nil {
		return fmt.Errorf("map the copy: %w", err)
	}
	sum := sha256.Sum256(data)
	if got := hex.EncodeToString(sum[:]); got != digest {
		err = fmt.Errorf("its SHA-256 is %s, this build expects %s", got, digest)
	}
	return errors.Join(err, unix.Munmap(data))
}

// verifiedFile is for hosts that forbid programs in memory: the descriptor that was read is the
// one that is executed. The file must not be writable by anybody but root or this user.
func verifiedFile(path, digest string) (*os.File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, &ProgramError{Path: path, Reason: err.Error()}
	}
	info, err := file.Stat()
	if err == nil && info.Mode().Perm()&0o022 != 0 {
		err = fmt.Errorf("mode %v: others can write it", info.Mode().Perm())
	}
	hash := sha256.New()
	if err == nil {
		_, err = io.Copy(hash, io.LimitReader(file, maxProgram))
	}
	if got := hex.EncodeToString(hash.Sum(nil)); err == nil && got != digest {
		err = fmt.Errorf("its SHA-256 is %s, this build expects %s", got, digest)
	}
	if err != nil {
		file.Close()
		return nil, &ProgramError{Path: path, Reason: err.Error()}
	}
	return file, nil
}

// ProgramError is a program of coworker's that cannot be trusted. No session starts.
type ProgramError struct{ Path, Reason string }

func (e *ProgramError) Error() string {
	return fmt.Sprintf("program %q: %s", e.Path, e.Reason)
}

// Hint is the next step for a person.
func (e *ProgramError) Hint() string {
	return "build both binaries together with `make build`, and keep coworker-cell beside coworker"
}
