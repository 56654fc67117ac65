package auditlog

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Types of audit records (linux/audit.h).
const (
	typeSyscall        = 1300
	typeLandlockAccess = 1423
	typeLandlockDomain = 1424
)

// Bounds of one record. The kernel's own is MAX_AUDIT_MESSAGE_LENGTH, 8970 bytes.
const (
	maxText   = 8970
	maxFields = 64
	maxBlocks = 32
	maxName   = 32
)

// errRecord is wrapped by what says why a record is not one.
var errRecord = errors.New("audit record")

// stamp names an event: records with the same one belong together.
type stamp struct {
	time   time.Time
	serial uint64
}

// record is one audit record, as far as it is of interest here.
type record struct {
	stamp
	kind     uint16
	domain   uint64
	blockers []string // of an access
	fields   []field
	// Of a domain: made says that it tells who made it, gone that the domain is no more.
	made, gone bool
	pid        int // of a domain's maker, or of a system call
}

type field struct{ name, value string }

// get finds a field by name; every name is there once.
func (r *record) get(name string) (string, bool) {
	i := slices.IndexFunc(r.fields, func(f field) bool { return f.name == name })
	if i < 0 {
		return "", false
	}
	return r.fields[i].value, true
}

// parse reads the text of a record of one of the three types.
func parse(kind uint16, text string) (*record, error) {
	r, err := read(kind, text)
	if err != nil {
		return nil, fmt.Errorf("%w of type %d: %w", errRecord, kind, err)
	}
	return r, nil
}

func read(kind uint16, text string) (*record, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("%d bytes, more than %d", len(text), maxText)
	}
	r := &record{kind: kind}
	rest, err := r.stamp.cut(text)
	if err != nil {
		return nil, err
	}
	if r.fields, err = split(rest); err != nil {
		return nil, err
	}
	if kind == typeSyscall {
		return r, r.setPid()
	}
	domain, _ := r.get("domain")
	if r.domain, err = strconv.ParseUint(domain, 16, 64); err != nil || r.domain == 0 {
		return nil, fmt.Errorf("domain %q", domain)
	}
	switch kind {
	case typeLandlockAccess:
		return r, r.setBlockers()
	case typeLandlockDomain:
		return r, r.setStatus()
	}
	return nil, errors.New("not one that is read here")
}

// cut reads "audit(SECONDS.MILLISECONDS:SERIAL): ".
func (s *stamp) cut(text string) (string, error) {
	const most = 64
	head, rest, ok := strings.Cut(text[:min(len(text), most)], "): ")
	inner, begins := strings.CutPrefix(head, "audit(")
	if !ok || !begins {
		return "", errors.New("does not begin with a time and a serial number")
	}
	when, serial, _ := strings.Cut(inner, ":")
	seconds, millis, _ := strings.Cut(when, ".")
	sec, err1 := strconv.ParseUint(seconds, 10, 40)
	ms, err2 := strconv.ParseUint(millis, 10, 16)
	n, err3 := strconv.ParseUint(serial, 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil || ms > 999 {
		return "", fmt.Errorf("time and serial number %q", inner)
	}
	s.time, s.serial = time.Unix(int64(sec), int64(ms)*int64(time.Millisecond)), n
	return rest + text[min(len(text), most):], nil
}

// split takes NAME=VALUE apart. A value is quoted, or has neither space nor quote; what the kernel does not trust to be
// either is hexadecimal, which untrusted reads.
func split(text string) ([]field, error) {
	var out []field
	for text = strings.TrimRight(text, " \x00\n"); text != ""; {
		name, rest, ok := strings.Cut(text, "=")
		if !ok || !plainName(name) {
			return nil, fmt.Errorf("field name %.40q", name)
		}
		if slices.ContainsFunc(out, func(f field) bool { return f.name == name }) {
			return nil, fmt.Errorf("two fields %s", name)
		}
		if len(out) == maxFields {
			return nil, fmt.Errorf("more than %d fields", maxFields)
		}
		end := strings.IndexByte(rest, ' ')
		if strings.HasPrefix(rest, `"`) {
			end = strings.IndexByte(rest[1:], '"')
			if end < 0 {
				return nil, fmt.Errorf("field %s: no closing quote", name)
			}
			end += 2
		}
		if end < 0 {
			end = len(rest)
		}
		out = append(out, field{name, rest[:end]})
		next := rest[end:]
		if text = strings.TrimLeft(next, " "); text != "" && text == next {
			return nil, fmt.Errorf("field %s: something stands right behind its value", name)
		}
	}
	return out, nil
}

func plainName(s string) bool {
	return s != "" && len(s) <= maxName && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
}

// untrusted reads a string that the kernel wrote in quotes, or in hexadecimal because it holds a space, a quote, or a byte
// outside of printable ASCII.
func untrusted(value string) (string, error) {
	if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
		inner := value[1 : len(value)-1]
		if strings.ContainsFunc(inner, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' }) {
			return "", fmt.Errorf("%.40q is quoted and holds what should not be", inner)
		}
		return inner, nil
	}
	b, err := hex.DecodeString(value)
	if err != nil || len(b) == 0 {
		return "", fmt.Errorf("%.40q is neither quoted nor hexadecimal", value)
	}
	return string(b), nil
}

func (r *record) setPid() error {
	text, _ := r.get("pid")
	pid, err := strconv.ParseUint(text, 10, 31)
	if err != nil || pid == 0 {
		return fmt.Errorf("pid %q", text)
	}
	r.pid = int(pid)
	return nil
}

func (r *record) setBlockers() error {
	text, _ := r.get("blockers")
	r.blockers = strings.Split(text, ",")
	if len(r.blockers) > maxBlocks {
		return fmt.Errorf("more than %d blockers", maxBlocks)
	}
	for _, b := range r.blockers {
		if b == "" || len(b) > maxName || strings.Trim(b, "abcdefghijklmnopqrstuvwxyz_.0123456789") != "" {
			return fmt.Errorf("blocker %.40q", b)
		}
	}
	return nil
}

func (r *record) setStatus() error {
	switch status, _ := r.get("status"); status {
	case "allocated":
		r.made = true
		return r.setPid()
	case "deallocated":
		r.gone = true
		return nil
	default:
		return fmt.Errorf("status %.40q", status)
	}
}
