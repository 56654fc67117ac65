package config

import (
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Level is the name of an enforcement level; "" is not set.
type Level string

// Levels are the valid names, weakest first.
func Levels() []Level { return []Level{"direct", "partial", "enforced", "hardened"} }

// Backend is the name of a builder of walls; "" lets the machine decide.
type Backend string

// Backends are the valid names.
func Backends() []Backend { return []Backend{"auto", "native", "container", "bare"} }

// Size is a number of bytes, at least 1 where it is set.
type Size int64

// Count is a whole number, at least 1 where it is set.
type Count int64

// Cores is a number of processors; 1.5 is one and a half.
type Cores float64

// Duration is a span of time, above zero where it is set.
type Duration time.Duration

// Path is a path as it was written: absolute, or "~/" and what follows. Only in a project file it is
// relative to the project.
type Path string

// Name is the name of an environment variable.
type Name string

// Label names a profile or label of mandatory access control.
type Label string

// checker is a value that can be wrong although its TOML type is right. The TOML library asks UnmarshalText only
// where the types differ (a string for an int64), so every value is checked again after decoding.
type checker interface{ check() error }

func (l Level) check() error {
	if !slices.Contains(Levels(), l) {
		return fmt.Errorf("level %q is none of direct, partial, enforced, hardened", string(l))
	}
	return nil
}

func (b Backend) check() error {
	if !slices.Contains(Backends(), b) {
		return fmt.Errorf("backend %q is none of auto, native, container, bare", string(b))
	}
	return nil
}

func (l Label) check() error {
	if len(l) > 255 || strings.ContainsFunc(string(l), func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("label %.40q is longer than 255 bytes, or not of printable ASCII without spaces", string(l))
	}
	return nil
}

func (s Size) check() error {
	if s < 1 || s > maxSize {
		return fmt.Errorf("size %d is not between 1 byte and 1 EiB", int64(s))
	}
	return nil
}

func (c Count) check() error {
	if c < 1 || c > maxCount {
		return fmt.Errorf("%d is not a whole number above zero", int64(c))
	}
	return nil
}

func (c Cores) check() error {
	// The kernel's smallest quota is 1 ms in 100 ms (cgroup v2, cpu.max), and no machine has 65536 processors.
	if !(c >= 0.01 && c <= 1<<16) { // false for NaN
		return fmt.Errorf("%v is not a number of processors from 0.01 to 65536", float64(c))
	}
	return nil
}

// A number without a unit would be nanoseconds, which nobody means.
func (d Duration) check() error {
	if t := time.Duration(d); t < time.Millisecond || t > maxDuration {
		return fmt.Errorf("duration %v is not between 1ms and ten years; write it with a unit, like \"90s\"", t)
	}
	return nil
}

func (p Path) check() error {
	s := string(p)
	switch {
	case s == "":
		return errors.New("the path is empty")
	case !utf8.ValidString(s) || strings.ContainsRune(s, 0):
		return fmt.Errorf("path %q holds a NUL byte or is not UTF-8", s)
	case len(s) > 4096:
		return fmt.Errorf("path %.40q… is longer than 4096 bytes", s)
	}
	return nil
}

func (n Name) check() error {
	if !ValidName(string(n)) {
		return fmt.Errorf("%q is not the name of a variable: letters, digits and _, no digit first", string(n))
	}
	return nil
}

// The suffixes of sizes. A bare letter is binary, as docker, systemd and ulimit read it; only the spelling with
// B alone is decimal (IEC 80000-13).
var sizeUnits = map[string]float64{
	"": 1, "b": 1,
	"k": 1 << 10, "kib": 1 << 10, "kb": 1e3,
	"m": 1 << 20, "mib": 1 << 20, "mb": 1e6,
	"g": 1 << 30, "gib": 1 << 30, "gb": 1e9,
	"t": 1 << 40, "tib": 1 << 40, "tb": 1e12,
}

// maxCount is above every limit of the kernel.
const maxCount = 1 << 40

// maxSize keeps sums of a few sizes within an int64.
const maxSize = 1 << 60

// ParseSize reads "2GiB", "512M", "1.5 GB" or a number of bytes.
func ParseSize(text string) (Size, error) {
	s := strings.ReplaceAll(strings.TrimSpace(text), "_", "")
	end := strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if end < 0 {
		end = len(s)
	}
	unit, ok := sizeUnits[strings.ToLower(strings.TrimSpace(s[end:]))]
	n, err := strconv.ParseFloat(s[:end], 64)
	if !ok || err != nil {
		return 0, fmt.Errorf("size %q is not a number with B, KiB, MiB, GiB or TiB", text)
	}
	if v := n * unit; v >= 1 && v <= maxSize {
		return Size(v), nil
	}
	return 0, fmt.Errorf("size %q is not between 1 byte and 1 EiB", text)
}

// UnmarshalText reads a size.
func (s *Size) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSize(string(text))
	return err
}

// String writes the size with the largest binary unit that divides it.
func (s Size) String() string {
	for i, unit := range []string{"TiB", "GiB", "MiB", "KiB"} {
		if n := int64(1) << (40 - 10*i); s != 0 && int64(s)%n == 0 {
			return strconv.FormatInt(int64(s)/n, 10) + unit
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

// ParseCount reads a whole number above zero.
func ParseCount(text string) (Count, error) {
	n, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a whole number above zero", text)
	}
	return Count(n), Count(n).check()
}

// UnmarshalText reads a count.
func (c *Count) UnmarshalText(text []byte) (err error) {
	*c, err = ParseCount(string(text))
	return err
}

// ParseCores reads a number of processors.
func ParseCores(text string) (Cores, error) {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number of processors from 0.01 to 65536", text)
	}
	return Cores(n), Cores(n).check()
}

// UnmarshalText reads a number of processors.
func (c *Cores) UnmarshalText(text []byte) (err error) {
	*c, err = ParseCores(string(text))
	return err
}

// maxDuration is longer than any run and far from overflow.
const maxDuration = 10 * 365 * 24 * time.Hour

// ParseDuration reads "90s", "1h30m" or, in days, "30d".
func ParseDuration(text string) (Duration, error) {
	var d time.Duration
	days, isDays := strings.CutSuffix(text, "d")
	if isDays {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return 0, fmt.Errorf("duration %q is not a whole number of days", text)
		}
		d = time.Duration(n) * 24 * time.Hour
	} else {
		var err error
		if d, err = time.ParseDuration(text); err != nil {
			return 0, fmt.Errorf("duration %q is not like 90s, 15m, 1h30m or 30d", text)
		}
	}
	return Duration(d), Duration(d).check()
}

// UnmarshalText reads a duration.
func (d *Duration) UnmarshalText(text []byte) (err error) {
	*d, err = ParseDuration(string(text))
	return err
}

// String writes the duration so that ParseDuration reads it.
func (d Duration) String() string {
	const day = 24 * time.Hour
	if t := time.Duration(d); t > 0 && t%day == 0 && t/day <= math.MaxUint16 {
		return strconv.FormatInt(int64(t/day), 10) + "d"
	}
	return time.Duration(d).String()
}

// Expand gives the absolute path, with "~/" replaced by the home folder.
func (p Path) Expand(home string) string {
	if rest, ok := strings.CutPrefix(string(p), "~/"); ok {
		return path.Join(home, rest)
	}
	if p == "~" {
		return path.Clean(home)
	}
	return path.Clean(string(p))
}

func (p Path) rooted() bool {
	return strings.HasPrefix(string(p), "/") || p == "~" || strings.HasPrefix(string(p), "~/")
}

// ValidName reports whether s can name an environment variable that every shell can handle (IEEE Std 1003.1,
// 8.1, and lower case).
func ValidName(s string) bool {
	for i, r := range s {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '_'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != "" && len(s) <= 256
}

func (r Rule) check() error {
	s := string(r)
	if s == "" || len(s) > 1024 || strings.IndexFunc(s, func(c rune) bool { return c < ' ' || c > '~' }) >= 0 {
		return fmt.Errorf("rule %.60q is not one line of 1 to 1024 printable ASCII characters", s)
	}
	return nil
}
