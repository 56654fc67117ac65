package enforce

import "time"

// Source names who saw that an attempt was refused.
type Source string

// The sources in the kernel. The proxy, its resolver and the limits are others.
const (
	SourceEBPF     Source = "ebpf"
	SourceBPFLSM   Source = "bpf-lsm"
	SourceLandlock Source = "landlock-audit"
)

// HookExec is the one hook that refuses nothing: with it a Refusal tells that a program was started, which What names.
// Its Wall is empty.
const HookExec = "exec"

// Refusal is one attempt that a kernel mechanism refused and told about.
type Refusal struct {
	Time   time.Time `json:"time"`
	Source Source    `json:"source"`
	Wall   Wall      `json:"wall"`
	Hook   string    `json:"hook"`           // connect4, file_open, …
	Pid    int       `json:"pid,omitempty"`  // on the host; 0 where the hook has no process
	Comm   string    `json:"comm,omitempty"` // name of the program, at most 15 bytes, as the program set it
	What   string    `json:"what"`           // address or path; any bytes, bounded to 4 KiB
	Needed string    `json:"needed"`         // the smallest flag that would allow it; empty if none does
}
