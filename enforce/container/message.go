package container

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// The helper's descriptors. The last three go on to the container's process as 3, 4 and 5.
const (
	ControlDescriptor    = 3 // the socket for the messages below
	KeeperWireDescriptor = 4
	ProgramDescriptor    = 5 // the cell's program, verified
	LaunchWireDescriptor = 6
)

// Setup asks the helper for a container. It is the first and only request; a Stop may follow, and the end of the connection
// ends the container in any case.
type Setup struct {
	Group   string `json:"group"`    // path of the session's control group below each mount; its last element names the container
	Labels  Labels `json:"labels"`   // for the container's processes
	HostNet bool   `json:"host_net"` // no network namespace around the keeper's; only builds that leave out walls ask for it
}

// Labels name what mandatory access control the host has for the container's processes. Empty leaves it as it is.
type Labels struct {
	AppArmor string `json:"apparmor,omitempty"` // a loaded profile
	SELinux  string `json:"selinux,omitempty"`  // a process label
}

// Answer tells that the container runs, or why not.
type Answer struct {
	Pid   int    `json:"pid"` // of the container's process, as the host sees it
	Error string `json:"error,omitempty"`
}

// Stop says that the supervisor ends the session itself and removes the control group. Without it the helper does.
type Stop struct {
	Stop bool `json:"stop"`
}

// maxMessage bounds a message: a name, a dozen paths, an error text.
const maxMessage = 64 << 10

// Send writes one message.
func Send(w io.Writer, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(data, '\n'))
	return err
}

// Reader reads messages. NewReader makes one for each connection, because it reads ahead.
type Reader struct{ r *bufio.Reader }

// NewReader returns a Reader for one connection.
func NewReader(r io.Reader) *Reader { return &Reader{bufio.NewReaderSize(r, maxMessage)} }

// Receive reads one message into v; io.EOF means that the other side is gone.
func (r *Reader) Receive(v any) error {
	line, err := r.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return fmt.Errorf("message of more than %d bytes", maxMessage)
	}
	if err != nil {
		if err == io.EOF && len(line) > 0 {
			return io.ErrUnexpectedEOF
		}
		return err
	}
	if err := strict(line, v); err != nil {
		return fmt.Errorf("read message: %w", err)
	}
	return nil
}

// strict refuses unknown fields and trailing data: the two programs are of one build.
func strict(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("trailing data")
	}
	return nil
}
