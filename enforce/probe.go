package enforce

// Outcome is what an attempt showed.
type Outcome string

// Outcomes of attempts that must fail, and of positive attempts that must succeed.
const (
	Stopped      Outcome = "stopped"      // the attempt was refused by a wall
	Swept        Outcome = "swept"        // the attempt worked and was undone before a result was returned
	Leaked       Outcome = "leaked"       // the attempt worked
	Works        Outcome = "works"        // a positive attempt succeeded
	Broken       Outcome = "broken"       // a positive attempt was refused
	Inconclusive Outcome = "inconclusive" // the attempt could not be made, or failed for an unrelated reason
)

// Probe is the result of one attempt made against one wall.
type Probe struct {
	Name   string  `json:"name"`           // unique, "wall/attempt"
	Wall   Wall    `json:"wall"`           // the wall it tests
	Want   Outcome `json:"want"`           // Stopped or Works
	Got    Outcome `json:"got"`            // what happened
	Detail string  `json:"detail"`         // errno name or what leaked, for a person
	Part   string  `json:"part,omitempty"` // part of the wall: "absent" for fs.protect, the limit's name for res
	Where  string  `json:"where"`          // "inside" or "outside" the wall
	// Alone is set for an attempt that was made with some mechanisms only, to show that each of two keeps a promise by
	// itself. Such a probe counts for Hardened, never for Enforced.
	Alone Half `json:"alone,omitempty"`
}

// OK reports whether the outcome keeps the promise. Swept counts for absent protected names only.
func (p Probe) OK() bool {
	if p.Got == p.Want {
		return true
	}
	return p.Want == Stopped && p.Got == Swept && p.Wall == FSProtect && p.Part == PartAbsent
}

// Half names the mechanisms that are on while a promise is tested with the others off.
type Half string

// The two halves.
const (
	Namespaces Half = "namespaces" // mounts and namespaces; no Landlock, no kernel programs
	Second     Half = "second"     // Landlock and kernel programs, in the host's own namespaces
)

// PartAbsent marks probes of fs.protect about protected names that do not exist yet.
const PartAbsent = "absent"
