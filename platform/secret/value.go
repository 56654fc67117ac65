package secret

import (
	"fmt"
	"io"
	"log/slog"
)

// hidden is what every way of printing shows.
const hidden = "[secret]"

// Bounds of a value in bytes. Shorter ones would be guessed, and searching rows for them would hide ordinary text.
const (
	MinValue = 8
	MaxValue = 64 << 10
)

// Value is a secret text. The zero Value is empty. It prints as a marker, whatever the verb; its length is not shown
// either.
//
// The text is behind a pointer because fmt does not ask a Formatter everywhere: for a verb that does not fit (%s of a
// pointer to a struct, inside a slice) it prints the fields themselves, and of a pointer it prints the address.
type Value struct{ text *string }

// NewValue wraps a text; CheckValue judges it.
func NewValue(text string) Value { return Value{&text} }

// Reveal is the text itself.
func (v Value) Reveal() string {
	if v.text == nil {
		return ""
	}
	return *v.text
}

// IsZero says that there is no value.
func (v Value) IsZero() bool { return v.Reveal() == "" }

func (v Value) String() string   { return hidden }
func (v Value) GoString() string { return hidden }

// Format covers the verbs that reach past String, %x and %#v among them.
func (v Value) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hidden) }

// MarshalJSON and MarshalText show the marker: what is to be stored goes through Encode.
func (v Value) MarshalJSON() ([]byte, error) { return []byte(`"` + hidden + `"`), nil }
func (v Value) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// LogValue is for log/slog.
func (v Value) LogValue() slog.Value { return slog.StringValue(hidden) }

// CheckValue refuses what could not stand in a header field (RFC 9110 section 5.5: no CR, LF or NUL) and lengths out of
// bounds. The errors say nothing about the value but which rule it breaks.
func CheckValue(v Value) error {
	text := v.Reveal()
	if len(text) < MinValue {
		return fmt.Errorf("the value is shorter than %d bytes", MinValue)
	}
	if len(text) > MaxValue {
		return fmt.Errorf("the value is longer than %d KiB", MaxValue>>10)
	}
	for i := range len(text) {
		if c := text[i]; c == 0 || c == '\r' || c == '\n' {
			return fmt.Errorf("the value holds a NUL byte or a line break")
		}
	}
	return nil
}
