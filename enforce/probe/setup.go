package probe

import "coworker/enforce"

// Setup says what the battery runs against.
type Setup struct {
	Backend enforce.BackendName
	Spec    enforce.Spec
	Targets Targets
	// LandlockABI is what the kernel said, 0 if Landlock is off: in the backend bare a refusal
	// counts only if this ABI can have given it.
	LandlockABI int
	// Limits are the limits that the cell set: they tell which of them an rlimit keeps.
	Limits []enforce.Limit
}

// where is the place of every probe of this battery.
const where = "inside"
