package enforce

import "fmt"

// Level orders how strong the verified walls of a session are. It is computed from probes, never
// from settings.
type Level int

// The levels, weakest first.
const (
	Direct   Level = iota // no walls
	Partial               // a required wall is missing or inconclusive
	Enforced              // every required wall verified; the default minimum
	Hardened              // enforced, with two mechanisms for each critical promise
)

var levelNames = [...]string{"direct", "partial", "enforced", "hardened"}

// String returns the name used on the command line and in every row.
func (l Level) String() string {
	if l < Direct || l > Hardened {
		return fmt.Sprintf("level(%d)", int(l))
	}
	return levelNames[l]
}

// ParseLevel reads a level by name.
func ParseLevel(name string) (Level, error) {
	for i, n := range levelNames {
		if n == name {
			return Level(i), nil
		}
	}
	return Direct, fmt.Errorf("level %q: want direct, partial, enforced or hardened", name)
}

// MarshalText writes the name, so that JSON carries words.
func (l Level) MarshalText() ([]byte, error) {
	if l < Direct || l > Hardened {
		return nil, fmt.Errorf("level %d is out of range", int(l))
	}
	return []byte(l.String()), nil
}

// UnmarshalText reads a name written by MarshalText.
func (l *Level) UnmarshalText(text []byte) error {
	v, err := ParseLevel(string(text))
	if err != nil {
		return err
	}
	*l = v
	return nil
}
