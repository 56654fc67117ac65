package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"syscall"

	"coworker/enforce"
	"coworker/enforce/probe"
)

// Type names a message. Numbers are part of the protocol within one build only: the supervisor
// checks the digest of the cell binary before it starts it.
type Type uint16

// The messages, in the order of the sequence in the package documentation.
const (
	TypeFailed Type = iota + 1
	TypeKeeperSetup
	TypeKeeperPrepared
	TypeKeeperStart
	TypeKeeperStarted
	TypeRepin
	TypeRepinned
	TypeCellEnded
	TypeBegin
	TypeProved
	TypeCommit
	TypeReady
	TypeExec
	TypeStarted
	TypeExecFailed
	TypeSignal
	TypeResize
	TypeExited
	TypeDial
	TypeDialed
	TypeDialFailed
	TypeStop
	TypeStopped
	TypeContinue
	TypeContinued
	TypeKillAll
	TypeKilled
	TypeKeeperAlone
	TypeKeeperAloneDone
	TypeAloneBegin
	TypeAloneReady
	TypeAloneGo
	TypeAloneDone
	TypeLaunch
	TypeLaunched
	typeEnd
)

var typeNames = [...]string{
	TypeFailed: "Failed", TypeKeeperSetup: "KeeperSetup", TypeKeeperPrepared: "KeeperPrepared",
	TypeKeeperStart: "KeeperStart", TypeKeeperStarted: "KeeperStarted", TypeRepin: "Repin",
	TypeRepinned: "Repinned", TypeCellEnded: "CellEnded", TypeBegin: "Begin", TypeProved: "Proved",
	TypeCommit: "Commit", TypeReady: "Ready", TypeExec: "Exec", TypeStarted: "Started",
	TypeExecFailed: "ExecFailed", TypeSignal: "Signal", TypeResize: "Resize", TypeExited: "Exited",
	TypeDial: "Dial", TypeDialed: "Dialed", TypeDialFailed: "DialFailed", TypeStop: "Stop",
	TypeStopped: "Stopped", TypeContinue: "Continue", TypeContinued: "Continued",
	TypeKeeperAlone: "KeeperAlone", TypeKeeperAloneDone: "KeeperAloneDone",
	TypeAloneBegin: "AloneBegin", TypeAloneReady: "AloneReady", TypeAloneGo: "AloneGo", TypeAloneDone: "AloneDone",
	TypeKillAll: "KillAll", TypeKilled: "Killed", TypeLaunch: "Launch", TypeLaunched: "Launched",
}

// String returns the name of the message.
func (t Type) String() string {
	if t.known() {
		return typeNames[t]
	}
	return fmt.Sprintf("Type(%d)", uint16(t))
}

func (t Type) known() bool { return t > 0 && t < typeEnd }

// Failed reports that a step of the set-up did not work. The session ends.
type Failed struct {
	Step   string `json:"step"`   // what was being done, "mount /proc"
	Value  []byte `json:"value"`  // the path or number it was done to; any bytes
	Reason string `json:"reason"` // the cause in words
	Errno  int    `json:"errno"`  // 0 if the cause is not a system call
}

// Error makes Failed usable as an error on the supervisor's side.
func (f *Failed) Error() string {
	if len(f.Value) == 0 {
		return f.Step + ": " + f.Reason
	}
	return fmt.Sprintf("%s %q: %s", f.Step, f.Value, f.Reason)
}

// Unwrap gives the system's error number, if there is one.
func (f *Failed) Unwrap() error {
	if f.Errno == 0 {
		return nil
	}
	return syscall.Errno(f.Errno)
}

// Empty is the body of messages that carry nothing.
type Empty struct{}

// Launch asks the launcher in a container to fork the keeper.
type Launch struct {
	Identity enforce.Identity `json:"identity"`
	Fault    enforce.Wall     `json:"fault"`
}

// Launched tells the host pid of the keeper.
type Launched struct {
	Pid int `json:"pid"`
}

// KeeperSetup asks the keeper to build the root.
type KeeperSetup struct {
	Spec enforce.Spec `json:"spec"`
}

// KeeperPrepared tells that the root stands.
type KeeperPrepared struct {
	Notes []string `json:"notes"` // what could not be shared, for the report
	// Egress tells about the sockets that come as descriptors; nil if the Spec asks for no network.
	Egress *KeeperEgress `json:"egress,omitempty"`
}

// KeeperEgress describes the sockets for the proxy, in the order of enforce/redirect.Listen.
type KeeperEgress struct {
	IPv6        bool `json:"ipv6"`
	Transparent bool `json:"transparent"`
}

// KeeperStarted tells the host pid of the cell.
type KeeperStarted struct {
	Pid int `json:"pid"`
}

// Repin asks the keeper to cover a path again after its mount fell off.
type Repin struct {
	Tree []byte            `json:"tree"` // Spec.Trees[i].Path
	Path []byte            `json:"path"` // relative to it
	Kind enforce.CoverKind `json:"kind"`
}

// CellEnded tells how the cell's PID 1 ended.
type CellEnded struct {
	Code   int `json:"code"`
	Signal int `json:"signal"`
}

// Begin tells a new cell which walls it still has to raise and what to probe.
type Begin struct {
	Backend enforce.BackendName `json:"backend"`
	Spec    enforce.Spec        `json:"spec"`
	Targets probe.Targets       `json:"targets"`
	// LogDenials says that somebody outside reads what the kernel logs of Landlock.
	LogDenials bool `json:"log_denials,omitempty"`
}

// Proved carries what the cell found out about its own walls.
type Proved struct {
	Probes      []enforce.Probe `json:"probes"`
	LandlockABI int             `json:"landlock_abi"`
	Rights      []string        `json:"rights"` // handled Landlock rights, for the attestation
	Limits      []enforce.Limit `json:"limits"` // limits that the cell itself set
	Micros      map[string]int  `json:"micros"` // duration of each phase in microseconds
}

// Exec starts a command.
type Exec struct {
	ID   uint64   `json:"id"`
	Argv [][]byte `json:"argv"`
	Env  [][]byte `json:"env"`
	Dir  []byte   `json:"dir"`
	TTY  bool     `json:"tty"`
	Rows uint16   `json:"rows"`
	Cols uint16   `json:"cols"`
}

// Started tells that a command runs.
type Started struct {
	ID  uint64 `json:"id"`
	Pid int    `json:"pid"` // inside the cell's pid namespace
}

// ExecFailed tells why a command could not be started.
type ExecFailed struct {
	ID     uint64 `json:"id"`
	Errno  int    `json:"errno"`
	Reason string `json:"reason"`
}

// Exited tells how a command ended. Processes that it left behind may still run.
type Exited struct {
	ID     uint64 `json:"id"`
	Code   int    `json:"code"`   // exit status, -1 if ended by a signal
	Signal int    `json:"signal"` // 0 if it exited
	Core   bool   `json:"core"`
	User   int64  `json:"user_us"`
	System int64  `json:"system_us"`
	MaxRSS int64  `json:"max_rss_kib"`
}

// Signal sends a signal to the process group of a command (its session with a TTY).
type Signal struct {
	ID     uint64 `json:"id"`
	Signal int    `json:"signal"`
}

// Resize sets the window size of a command's terminal.
type Resize struct {
	ID   uint64 `json:"id"`
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// Dial asks for a connection to a port that a program inside listens on.
type Dial struct {
	ID   uint64 `json:"id"`
	Port uint16 `json:"port"`
}

// Dialed carries the connected socket as its descriptor.
type Dialed struct {
	ID uint64 `json:"id"`
}

// DialFailed tells why there is no connection.
type DialFailed struct {
	ID     uint64 `json:"id"`
	Errno  int    `json:"errno"`
	Reason string `json:"reason"`
}

// Stopped tells that every process but the cell was stopped, and how many there are.
type Stopped struct {
	Processes int `json:"processes"` // -1 if there is no /proc to count them in
}

// Killed tells that every process but the cell is gone.
type Killed struct {
	Processes int `json:"processes"` // processes that were killed
}

// strictUnmarshal refuses unknown fields and trailing data, so that two readers of the same
// bytes cannot see different messages.
func strictUnmarshal(data []byte, v any) error {
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

// KeeperAlone asks the keeper to show what mounts and namespaces keep by themselves.
type KeeperAlone struct {
	Targets  enforce.AloneTargets `json:"targets"`
	Literals []string             `json:"literals"` // of the Spec
}

// AloneBegin asks for the attempts with the second half of the mechanisms.
type AloneBegin struct {
	Spec    enforce.Spec         `json:"spec"`
	Targets enforce.AloneTargets `json:"targets"`
}

// AloneReady names the attempts that do not work without walls either, with the reason.
type AloneReady struct {
	Idle map[string]string `json:"idle"`
}

// AloneDone carries the attempts of one half.
type AloneDone struct {
	Probes []enforce.Probe `json:"probes"`
}
