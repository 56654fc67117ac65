package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// maxAnswer bounds one typed line.
const maxAnswer = 256

// AskLine writes a prompt to a terminal and reads one line from it. What was typed before the prompt stood there is thrown
// away: it cannot have been an answer. It gives up when ctx ends. The terminal must have been opened by the caller for
// itself (O_NONBLOCK belongs to the open file description).
func AskLine(ctx context.Context, tty *os.File, prompt string) (string, error) {
	raw, err := tty.SyscallConn()
	if err != nil {
		return "", err
	}
	var flushErr error
	if err := raw.Control(func(fd uintptr) { flushErr = unix.IoctlSetInt(int(fd), unix.TCFLSH, unix.TCIFLUSH) }); err != nil {
		return "", err
	}
	if flushErr != nil {
		return "", fmt.Errorf("flush what was typed before: %w", flushErr)
	}
	if _, err := tty.WriteString(prompt); err != nil {
		return "", err
	}
	if err := tty.SetReadDeadline(time.Time{}); err != nil {
		return "", fmt.Errorf("read from the terminal with a time limit: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { tty.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var line []byte
	for len(line) < maxAnswer {
		buf := make([]byte, maxAnswer-len(line))
		n, err := tty.Read(buf)
		line = append(line, buf[:n]...)
		if end := bytes.IndexByte(line, '\n'); end >= 0 {
			return string(bytes.TrimSpace(line[:end])), nil
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return "", context.Cause(ctx)
		}
		if err != nil {
			return "", err
		}
	}
	return "", errors.New("the answer is too long")
}
