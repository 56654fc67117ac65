package inject

import (
	"fmt"
	"log/slog"
)

// redacted is what a Value looks like to everything but the request it is put into.
const redacted = "[credential]"

// Value is what a header field is set to. No way of printing it shows it. The text is behind a pointer because fmt calls no
// method of a field that is not exported, and prints what it finds there.
type Value struct{ text *string }

func newValue(text string) Value {
	if text == "" {
		return Value{}
	}
	return Value{&text}
}

func (v Value) reveal() string {
	if v.text == nil {
		return ""
	}
	return *v.text
}

// IsZero says that there is no value.
func (v Value) IsZero() bool { return v.text == nil }

// String, GoString, Format, LogValue, MarshalText and MarshalJSON keep the text out of errors, logs and records.
func (v Value) String() string { return redacted }

// GoString is for %#v.
func (v Value) GoString() string { return redacted }

// Format is for every other verb: %x and %q of a String would otherwise be those of the struct.
func (v Value) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// LogValue is for log/slog.
func (v Value) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText is for encoders of text.
func (v Value) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalJSON is for encoding/json.
func (v Value) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }
