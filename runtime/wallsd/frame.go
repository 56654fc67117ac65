package wallsd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"time"

	"coworker/enforce"
	"coworker/runtime/ward"
)

// Version is that of the protocol. Client and server of different versions do not talk.
const Version = 1

// Bounds of what is sent. A frame is one packet, so a longer one is cut off by the kernel and noticed.
const (
	maxFrame  = 64 << 10
	maxPart   = 40 << 10 // of the trees, in one frame; base64 makes it a third longer
	maxTrees  = 16 << 20 // of all parts of one session together
	maxFreeze = 10 * time.Second
	maxWhat   = 4 << 10
)

// op is what a client asks for.
type op string

// The operations, after the methods of ward.Ward. hello comes first and open second; a client that only wants to know
// whether the helper is there sends the first alone.
const (
	opHello  op = "hello"
	opOpen   op = "open"
	opJoin   op = "join"
	opLeave  op = "leave"
	opGuard  op = "guard"
	opFreeze op = "freeze"
	opThaw   op = "thaw"
	opKill   op = "kill"
	opCounts op = "counts"
	opCheck  op = "check"
	opState  op = "state"
	opRemove op = "remove"
)

// request is one frame of a client.
type request struct {
	Seq     uint64          `json:"seq"` // from 1, rising
	Op      op              `json:"op"`
	Version int             `json:"version,omitempty"` // hello
	Name    string          `json:"name,omitempty"`    // open: of the session
	Limits  *enforce.Limits `json:"limits,omitempty"`  // open
	// open: addresses that rules consist of, and whether the programs on the network are left out
	Literals []string      `json:"literals,omitempty"`
	NoEgress bool          `json:"no_egress,omitempty"`
	Guard    bool          `json:"guard,omitempty"`
	Ticket   int           `json:"ticket,omitempty"` // leave: from the answer to join
	Part     []byte        `json:"part,omitempty"`   // guard: the next bytes of the trees
	Last     bool          `json:"last,omitempty"`   // guard: there are no more
	Limit    time.Duration `json:"limit,omitempty"`  // freeze
}

// answer is one frame of the server: the answer to a request, or with Seq 0 something that happened.
type answer struct {
	Seq       uint64          `json:"seq,omitempty"`
	Error     string          `json:"error,omitempty"`
	NotQuiet  bool            `json:"not_quiet,omitempty"` // freeze: the error is cgroup.ErrNotQuiet
	Version   int             `json:"version,omitempty"`   // hello
	Build     string          `json:"build,omitempty"`     // hello
	Limits    []enforce.Limit `json:"limits,omitempty"`    // open
	CanFreeze bool            `json:"can_freeze,omitempty"`
	Ticket    int             `json:"ticket,omitempty"`
	Counts    *ward.Counts    `json:"counts,omitempty"` // counts, remove
	State     *ward.State     `json:"state,omitempty"`

	Refusal *refusal `json:"refusal,omitempty"`
	Fallen  string   `json:"fallen,omitempty"`
}

// refusal is enforce.Refusal with its free bytes kept as they are: JSON strings would change them.
type refusal struct {
	enforce.Refusal
	Comm []byte `json:"comm,omitempty"`
	What []byte `json:"what"`
}

func packed(r enforce.Refusal) *refusal {
	out := &refusal{Refusal: r, Comm: []byte(r.Comm), What: []byte(r.What)}
	out.Refusal.Comm, out.Refusal.What = "", ""
	out.Comm, out.What = out.Comm[:min(len(out.Comm), 15)], out.What[:min(len(out.What), maxWhat)]
	return out
}

func (r *refusal) unpacked() enforce.Refusal {
	out := r.Refusal
	out.Comm, out.What = string(r.Comm), string(r.What)
	return out
}

// errProtocol marks what no client of ours sends. Whoever does is not talked to any more.
var errProtocol = errors.New("protocol violated")

// decodeFrame reads exactly one JSON object with known keys.
func decodeFrame[T any](data []byte, v *T) error {
	if len(data) > maxFrame {
		return fmt.Errorf("%w: a frame of more than %d bytes", errProtocol, maxFrame)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("%w: %w", errProtocol, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: bytes after the frame", errProtocol)
	}
	return nil
}

func encodeFrame(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(data) > maxFrame {
		return nil, fmt.Errorf("a frame of %d bytes, %d are the most", len(data), maxFrame)
	}
	return data, nil
}

// decodeRequest reads a frame of a client and checks every value in it. It is pure.
func decodeRequest(data []byte) (*request, error) {
	r := &request{}
	if err := decodeFrame(data, r); err != nil {
		return nil, err
	}
	if r.Seq == 0 {
		return nil, fmt.Errorf("%w: a request without a number", errProtocol)
	}
	if extra := r.beyond(); extra != "" {
		return nil, fmt.Errorf("%w: %q with %s", errProtocol, r.Op, extra)
	}
	var err error
	switch r.Op {
	case opOpen:
		err = checkOpen(r)
	case opFreeze:
		if r.Limit <= 0 || r.Limit > maxFreeze {
			err = fmt.Errorf("%w: freeze within %v, at most %v", errProtocol, r.Limit, maxFreeze)
		}
	case opGuard:
		if len(r.Part) > maxPart {
			err = fmt.Errorf("%w: a part of %d bytes", errProtocol, len(r.Part))
		}
	case opHello, opJoin, opLeave, opThaw, opKill, opCounts, opCheck, opState, opRemove:
	default:
		err = fmt.Errorf("%w: there is no operation %.40q", errProtocol, r.Op)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// beyond names a value that does not belong to the operation.
func (r *request) beyond() string {
	for _, v := range []struct {
		name string
		set  bool
		of   op
	}{
		{"version", r.Version != 0, opHello}, {"name", r.Name != "", opOpen}, {"limits", r.Limits != nil, opOpen},
		{"literals", r.Literals != nil, opOpen}, {"no_egress", r.NoEgress, opOpen}, {"guard", r.Guard, opOpen},
		{"ticket", r.Ticket != 0, opLeave}, {"part", r.Part != nil, opGuard}, {"last", r.Last, opGuard}, {"limit", r.Limit != 0, opFreeze},
	} {
		if v.set && v.of != r.Op {
			return v.name
		}
	}
	return ""
}

// sessionName is what a session may be called; it becomes part of the name of a folder.
var sessionName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)

func checkOpen(r *request) error {
	if !sessionName.MatchString(r.Name) {
		return fmt.Errorf("%w: the name %.80q", errProtocol, r.Name)
	}
	l := r.Limits
	if l == nil || l.Processes < 0 || l.Memory < 0 || !(l.CPUs >= 0 && l.CPUs <= math.MaxInt32) || len(l.Named) > 16 {
		return fmt.Errorf("%w: limits %.200v", errProtocol, l)
	}
	return nil
}

// GroupName is the name of the group that the helper makes for a session of a user.
func GroupName(uid int, session string) string { return fmt.Sprintf("u%d-%s", uid, session) }

// decodeTrees reads what the parts of guard make together.
func decodeTrees(data []byte) ([]enforce.Tree, error) {
	var s enforce.Spec // its encoding keeps every byte of a path
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("%w: trees: %w", errProtocol, err)
	}
	return s.Trees, nil
}

func encodeTrees(trees []enforce.Tree) ([]byte, error) {
	data, err := json.Marshal(enforce.Spec{Trees: trees})
	if err == nil && len(data) > maxTrees {
		err = fmt.Errorf("the list of protected and hidden files has %d bytes, the helper takes %d", len(data), maxTrees)
	}
	return data, err
}

// bounded takes what a session asks for down to what one may have.
func bounded(ask, most enforce.Limits) enforce.Limits {
	if most.Processes > 0 && (ask.Processes == 0 || ask.Processes > most.Processes) {
		ask.Processes = most.Processes
	}
	if most.Memory > 0 && (ask.Memory == 0 || ask.Memory > most.Memory) {
		ask.Memory = most.Memory
	}
	if most.CPUs > 0 && (ask.CPUs == 0 || ask.CPUs > most.CPUs) {
		ask.CPUs = most.CPUs
	}
	return ask
}
