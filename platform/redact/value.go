package redact

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Bounds of a value. What is beyond them is replaced, never passed on.
const (
	maxDepth = 64
	maxNodes = 100_000
)

// walker carries the budget of one value.
type walker struct {
	r     *Redactor
	nodes int
}

// Value returns a redacted copy of a JSON-like value. Anything that is not
// made of the types of encoding/json is converted by json.Marshal first; what
// that cannot convert becomes a marker.
func (r *Redactor) Value(v any) any {
	w := walker{r: r}
	return w.value(v, 0)
}

// JSON redacts an encoded document and returns it compact, with sorted keys.
// Numbers keep their digits.
func (r *Redactor) JSON(raw []byte) (json.RawMessage, error) {
	v, err := decode(raw)
	if err != nil {
		return nil, err
	}
	return encode(r.Value(v))
}

func decode(raw []byte) (v any, err error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("JSON value: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("JSON value: more text after its end")
	}
	return v, nil
}

func encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func (w *walker) value(v any, depth int) any {
	if w.nodes++; w.nodes > maxNodes || depth > maxDepth {
		return mark("too-large")
	}
	switch v := v.(type) {
	case nil, bool:
		return v
	case string:
		return w.r.String(v)
	case []byte:
		return w.r.String(string(v)) // json.Marshal would hide it in base64
	case json.Number:
		return w.number(v)
	case float64, float32, int, int64, int32, uint, uint64, uint32:
		return w.number(json.Number(fmt.Sprint(v)))
	case []string:
		return w.r.Args(v)
	case []any:
		return w.list(v, depth)
	case map[string]any:
		return w.object(v, depth)
	}
	return w.converted(v, depth)
}

// number lets a number pass unless it is a known secret written without
// quotes.
func (w *walker) number(n json.Number) any {
	if s := w.r.String(n.String()); s != n.String() {
		return s
	}
	return n
}

func (w *walker) converted(v any, depth int) any {
	raw, err := json.Marshal(v)
	if err != nil {
		return mark("not-json")
	}
	generic, err := decode(raw)
	if err != nil {
		return mark("not-json")
	}
	return w.value(generic, depth+1)
}

func (w *walker) object(m map[string]any, depth int) any {
	out := make(map[string]any, len(m))
	label, named := pairName(m)
	for _, k := range slices.Sorted(maps.Keys(m)) {
		v := m[k]
		switch {
		case Key(k) && holdsSecret(k, v):
			v = keep(v, labelOf(strings.ToLower(clip(k))))
		case named && valueName(k) && holdsSecret(k, v):
			v = keep(v, label)
		default:
			v = w.value(v, depth+1)
		}
		out[w.r.String(k)] = v
	}
	return out
}

// keep returns the marker, or v where it is a marker already.
func keep(v any, label string) any {
	if s, ok := v.(string); ok && isMarker(s) {
		return s
	}
	return mark(label)
}

// holdsSecret is false for values that cannot be one, such as a number of
// tokens.
func holdsSecret(k string, v any) bool {
	switch v := v.(type) {
	case nil, bool:
		return false
	case json.Number, float64, int, int64:
		return !strings.HasSuffix(fold(k), "tokens")
	case string:
		return v != ""
	}
	return true
}

// pairName recognises {"name": "API_KEY", "value": "…"}, the form of
// environment lists and header lists.
func pairName(m map[string]any) (label string, ok bool) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		name, isText := m[k].(string)
		if isText && nameName(k) && Key(name) {
			return labelOf(strings.ToLower(clip(name))), true
		}
	}
	return "", false
}

func nameName(k string) bool {
	switch fold(k) {
	case "name", "key", "header", "field", "variable", "env", "id":
		return true
	}
	return false
}

func valueName(k string) bool {
	switch fold(k) {
	case "value", "values", "val", "text", "default", "content":
		return true
	}
	return false
}

func (w *walker) list(list []any, depth int) any {
	out := make([]any, len(list))
	texts := make([]string, len(list)) // "" where it is none
	for i, v := range list {
		s, isText := v.(string)
		before := ""
		if i > 0 {
			before, _ = list[i-1].(string)
		}
		if isText && before != "" {
			texts[i] = s
			out[i] = w.r.arg(texts[:i+1], i)
			w.nodes++
			continue
		}
		texts[i], _ = v.(string)
		out[i] = w.value(v, depth+1)
	}
	return out
}

// Args returns a redacted copy of an argument vector: each argument as text,
// and the argument after a flag or word that announces a secret.
func (r *Redactor) Args(args []string) []string {
	out := make([]string, len(args))
	for i := range args {
		out[i] = r.arg(args, i)
	}
	return out
}

// arg redacts one argument in the light of those before it.
func (r *Redactor) arg(args []string, i int) string {
	arg, before := args[i], ""
	if i > 0 {
		before = args[i-1]
	}
	clean := r.String(arg)
	if short, ok := shortArg(args, i); ok {
		return short
	}
	switch {
	case before == "" || arg == "" || isMarker(arg):
		return clean
	case strings.EqualFold(before, "bearer"), strings.EqualFold(before, "basic"):
		return mark("credentials")
	case len(before) > maxKey || strings.ContainsAny(before, " =:"):
		return announced(before, arg, clean)
	case loginFlag(before):
		if sp, ok := flagValue(arg, 0, len(arg), before); ok {
			return mark(sp.label)
		}
	case takesSecret(before):
		return mark(labelOf(strings.ToLower(strings.TrimLeft(clip(before), "-"))))
	}
	return clean
}

// announced handles a header or assignment that was split at the space:
// ["Authorization:", "x"].
func announced(before, arg, clean string) string {
	name, ok := strings.CutSuffix(before, ":")
	if !ok {
		name, ok = strings.CutSuffix(before, "=")
	}
	if ok && len(name) <= maxKey && !strings.ContainsAny(name, " =") && Key(name) && !isMarker(arg) {
		return mark(labelOf(strings.ToLower(clip(name))))
	}
	return clean
}
