package container

import (
	"fmt"
	"os"
	"syscall"
)

// Start forks the helper in a mount namespace of its own. The thread that calls it must live as long as the helper. files are
// the descriptors of this package's constants, in their order. The caller owns the process and waits for it.
func Start(binary string, stderr *os.File, files ...*os.File) (*os.Process, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	p, err := os.StartProcess(binary, []string{"coworker-box"}, &os.ProcAttr{
		Dir:   "/",
		Env:   []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, // libcontainer looks its program up, though the path is whole
		Files: append([]*os.File{null, null, stderr}, files...),
		// No parent-death signal: the end of the connection tells it that the supervisor is gone, and then it cleans up. What
		// runs in the container does not wait for that: the keeper ends with its own wire, and the cell with the keeper.
		Sys: &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Setsid: true},
	})
	if err != nil {
		return nil, fmt.Errorf("start coworker-box: %w", err)
	}
	return p, nil
}
