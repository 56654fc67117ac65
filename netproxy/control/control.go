// Package control is the line between the supervisor and its proxy process: JSON objects, one a line, over an inherited
// stream socket. The supervisor sends a Config first; the proxy answers Ready when it accepts connections.
//
//	supervisor          proxy
//	config         →            once, first
//	               ←    ready   once
//	settle         →            the walls are proved: the probe's name is no longer answered
//	grant          →            one more allow rule
//	               ←    flow    an attempt that has ended
//	               ←    ask     a connection waits for an answer
//	answer         →            to an ask
//
// Either side ends the session by closing the socket. The proxy parses hostile bytes, so what it says is bounded and
// checked like anything else from there; it can name no secret and raise no right.
//
// netproxy (the proxy's side) and runtime/session (the supervisor's side) may import it.
package control

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"coworker/netproxy/flow"
)

// Descriptors that the proxy process is started with, after the standard ones. Those of IPv6 are absent (closed, reported
// with Config.IPv6 false) on a kernel without it.
const (
	FDControl = 3 + iota // stream socket of this protocol
	FDProxy4             // TCP listener 127.0.0.1:ProxyPort in the cell's network namespace
	FDTransparent4
	FDNameUDP4 // UDP socket 127.0.0.53:53
	FDNameTCP4 // TCP listener 127.0.0.53:53
	FDProxy6   // the same on ::1
	FDTransparent6
	FDNameUDP6
	FDNameTCP6
)

// How many sockets there are, without and with those of IPv6.
const (
	SocketsIPv4 = FDProxy6 - FDProxy4
	Sockets     = FDNameTCP6 - FDProxy4 + 1
)

// Bounds of a line in each direction.
const (
	MaxConfig = 8 << 20
	MaxLine   = 64 << 10
)

// Config is everything that a proxy knows about its session.
type Config struct {
	Allow []string `json:"allow"` // rules in the grammar of hostmatch
	Deny  []string `json:"deny"`
	Open  bool     `json:"open"`
	IPv6  bool     `json:"ipv6"` // the IPv6 descriptors are there
	// Ask holds a refused connection for at most this long while a person is asked; 0: never.
	Ask time.Duration `json:"ask_ns"`

	// Probe is a name of this session only. Until settle, a connection to it on port 443 is answered by the proxy itself:
	// after "HTTP/1.1 200" (CONNECT), the SOCKS reply or the redirected accept, it writes Token and closes.
	Probe Probe `json:"probe"`

	Upstream *Upstream  `json:"upstream,omitempty"`
	Hosts    []HostRule `json:"hosts,omitempty"` // hosts whose TLS is opened
	CA       *CA        `json:"ca,omitempty"`    // present if Hosts is not empty
	Limits   Limits     `json:"limits"`
}

// Probe is what the battery inside reaches, and nothing else.
type Probe struct {
	Name  string `json:"name"`
	Token string `json:"token"`
}

// Upstream is the proxy of the company's network.
type Upstream struct {
	URL      string   `json:"url"` // http://HOST:PORT, without user information
	User     string   `json:"user,omitempty"`
	Password string   `json:"password,omitempty"`
	NoProxy  []string `json:"no_proxy,omitempty"` // hosts, .suffixes and networks that are reached directly
}

// HostRule opens the TLS of one host: what may be asked there, and what is added. Several rules for one host are
// alternatives; the longest matching path decides.
type HostRule struct {
	Host    string   `json:"host"` // a name, exactly
	Port    uint16   `json:"port"`
	Methods []string `json:"methods,omitempty"` // empty: all
	Path    string   `json:"path,omitempty"`    // prefix that ends at a segment; empty: all
	Secret  string   `json:"secret,omitempty"`  // name of the credential, for records
	Header  string   `json:"header,omitempty"`  // field that is set; what the client sent in it is dropped
	Value   string   `json:"value,omitempty"`   // its value
}

// CA signs the certificates that the proxy shows for HostRules.
type CA struct {
	Certificate []byte `json:"certificate"` // PEM
	Key         []byte `json:"key"`         // PEM, PKCS #8
	// Roots verify the real hosts, in PEM; empty: those of the system. The proxy may not be able to read the person's files.
	Roots []byte `json:"roots,omitempty"`
}

// Limits bound what one session may hold open. Zero means the default.
type Limits struct {
	Connections int           `json:"connections"`
	Idle        time.Duration `json:"idle_ns"`  // a tunnel without a byte in either direction
	Total       time.Duration `json:"total_ns"` // a tunnel as a whole
}

// Ask is a connection that waits.
type Ask struct {
	ID     uint64      `json:"id"`
	Host   string      `json:"host"`
	Port   uint16      `json:"port"`
	Source flow.Source `json:"source"`
	Reason string      `json:"reason"`
	Needed string      `json:"needed"` // the rule that a yes adds
}

// Answer ends the wait. A yes allows Ask.Needed for the rest of the session.
type Answer struct {
	ID    uint64 `json:"id"`
	Allow bool   `json:"allow"`
}

// Message is one line; exactly one member is set.
type Message struct {
	Config *Config      `json:"config,omitempty"`
	Ready  *struct{}    `json:"ready,omitempty"`
	Settle *struct{}    `json:"settle,omitempty"`
	Grant  *string      `json:"grant,omitempty"`
	Flow   *flow.Record `json:"flow,omitempty"`
	Ask    *Ask         `json:"ask,omitempty"`
	Answer *Answer      `json:"answer,omitempty"`
}

func (m *Message) members() int {
	n := 0
	for _, set := range []bool{m.Config != nil, m.Ready != nil, m.Settle != nil, m.Grant != nil, m.Flow != nil, m.Ask != nil, m.Answer != nil} {
		if set {
			n++
		}
	}
	return n
}

// Conn is one end. Send may be called from several goroutines, Receive from one.
type Conn struct {
	rw     io.ReadWriteCloser
	in     *bufio.Reader
	max    int
	sendMu sync.Mutex
}

// NewConn takes ownership of a stream socket. max bounds the lines that are read.
func NewConn(rw io.ReadWriteCloser, max int) *Conn {
	return &Conn{rw: rw, in: bufio.NewReaderSize(rw, 64<<10), max: max}
}

// Close ends the connection; a blocked Receive returns.
func (c *Conn) Close() error { return c.rw.Close() }

// Send writes one line.
func (c *Conn) Send(m Message) error {
	line, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode a control message: %w", err)
	}
	c.sendMu.Lock()
	defer c.sendMu.Unlock()
	if _, err := c.rw.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("send a control message: %w", err)
	}
	return nil
}

// SendAll writes several lines at once.
func (c *Conn) SendAll(list []Message) error {
	var lines []byte
	for _, m := range list {
		line, err := json.Marshal(m)
		if err != nil {
			return fmt.Errorf("encode a control message: %w", err)
		}
		lines = append(append(lines, line...), '\n')
	}
	c.sendMu.Lock()
	defer c.sendMu.Unlock()
	if _, err := c.rw.Write(lines); err != nil {
		return fmt.Errorf("send control messages: %w", err)
	}
	return nil
}

// Receive reads one line. io.EOF means that the other end closed between lines.
func (c *Conn) Receive() (*Message, error) {
	line, err := c.line()
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	m := &Message{}
	if err := d.Decode(m); err != nil {
		return nil, fmt.Errorf("control message: %v", err) // not %w: an empty line would pass for the end of the line
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) || m.members() != 1 {
		return nil, fmt.Errorf("control message with %d members or trailing data", m.members())
	}
	return m, nil
}

func (c *Conn) line() ([]byte, error) {
	var line []byte
	for {
		part, err := c.in.ReadSlice('\n')
		if len(line)+len(part) > c.max {
			return nil, fmt.Errorf("control message of more than %d bytes", c.max)
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return nil, io.ErrUnexpectedEOF
		default:
			return nil, err
		}
	}
}
