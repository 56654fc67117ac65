package enforce

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"
)

// Paths and variables on Linux are bytes, JSON strings are Unicode (RFC 8259), and encoding/json
// replaces what is not UTF-8. A string that JSON cannot carry is therefore written as rawMark and
// base64. NUL occurs in no path and no variable, so the mark cannot be confused with a value.
const rawMark = "\x00base64:"

type plainSpec Spec // without the methods, so that encoding does not recurse

// MarshalJSON writes the Spec so that every byte of every path survives.
func (s Spec) MarshalJSON() ([]byte, error) {
	p := reflect.New(reflect.TypeFor[plainSpec]()).Elem()
	if err := mapStrings(p, reflect.ValueOf(plainSpec(s)), encodeRaw); err != nil {
		return nil, err
	}
	return json.Marshal(p.Interface())
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (s *Spec) UnmarshalJSON(data []byte) error {
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.DisallowUnknownFields()
	var p plainSpec
	if err := d.Decode(&p); err != nil {
		return err
	}
	out := reflect.New(reflect.TypeFor[plainSpec]()).Elem()
	if err := mapStrings(out, reflect.ValueOf(p), decodeRaw); err != nil {
		return err
	}
	*s = Spec(out.Interface().(plainSpec))
	return nil
}

func encodeRaw(s string) (string, error) {
	if utf8.ValidString(s) && !strings.HasPrefix(s, rawMark) {
		return s, nil
	}
	return rawMark + base64.StdEncoding.EncodeToString([]byte(s)), nil
}

func decodeRaw(s string) (string, error) {
	rest, ok := strings.CutPrefix(s, rawMark)
	if !ok {
		return s, nil
	}
	b, err := base64.StdEncoding.DecodeString(rest)
	if err != nil {
		return "", fmt.Errorf("spec string %q: %w", s, err)
	}
	return string(b), nil
}

// mapStrings copies src to dst and applies f to every string in it.
func mapStrings(dst, src reflect.Value, f func(string) (string, error)) error {
	switch src.Kind() {
	case reflect.String:
		v, err := f(src.String())
		if err != nil {
			return err
		}
		dst.SetString(v)
	case reflect.Struct:
		for i := range src.NumField() {
			if err := mapStrings(dst.Field(i), src.Field(i), f); err != nil {
				return err
			}
		}
	case reflect.Slice:
		return mapSlice(dst, src, f)
	default:
		dst.Set(src)
	}
	return nil
}

func mapSlice(dst, src reflect.Value, f func(string) (string, error)) error {
	if src.IsNil() || src.Type().Elem().Kind() == reflect.Uint8 {
		dst.Set(src)
		return nil
	}
	dst.Set(reflect.MakeSlice(src.Type(), src.Len(), src.Len()))
	for i := range src.Len() {
		if err := mapStrings(dst.Index(i), src.Index(i), f); err != nil {
			return err
		}
	}
	return nil
}
