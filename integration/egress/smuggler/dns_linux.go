package main

import (
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Types, classes and operations of DNS that carry data (RFC 1035, RFC 2136, RFC 6891).
const (
	typeA, typeNULL, typePTR, typeTXT, typeAAAA, typeOPT, typeHTTPS, typeANY = 1, 10, 12, 16, 28, 41, 65, 255

	classInternet, classChaos = 1, 3
	opNotify, opUpdate        = 4, 5
)

// query is a message with the parts that an attempt wants to fill.
type query struct {
	op        byte
	questions []question
	answers   []byte // records, made by record
	extra     []byte
	counts    [2]uint16 // of answers and extra
}

type question struct {
	name        string
	kind, class uint16
}

func (q query) bytes() []byte {
	b := []byte{0x51, 0x52, 1 | q.op<<3, 0}
	b = binary.BigEndian.AppendUint16(b, uint16(len(q.questions)))
	b = binary.BigEndian.AppendUint16(b, q.counts[0])
	b = append(b, 0, 0)
	b = binary.BigEndian.AppendUint16(b, q.counts[1])
	for _, one := range q.questions {
		b = binary.BigEndian.AppendUint16(append(b, wireName(one.name)...), one.kind)
		b = binary.BigEndian.AppendUint16(b, one.class)
	}
	return append(append(b, q.answers...), q.extra...)
}

func wireName(name string) []byte {
	if name == "" {
		return []byte{0}
	}
	var b []byte
	for label := range strings.SplitSeq(name, ".") {
		b = append(append(b, byte(len(label))), label...)
	}
	return append(b, 0)
}

func record(name string, kind, class uint16, data []byte) []byte {
	b := binary.BigEndian.AppendUint16(wireName(name), kind)
	b = binary.BigEndian.AppendUint16(b, class)
	b = binary.BigEndian.AppendUint16(append(b, 0, 0, 0, 0), uint16(len(data)))
	return append(b, data...)
}

func ask(name string, kind uint16) query {
	return query{questions: []question{{name, kind, classInternet}}}
}

const denied = "denied.test"

// resolvers ask the session's own resolver. A denial is an answer too: only records, or silence with a packet outside,
// would be a way out.
func resolvers() []attempt {
	asks := func(name string, make func(mark string) query) attempt {
		return attempt{"dns-" + name, func(t *target, mark string) error { return resolve(t.Names, unix.SOCK_DGRAM, make(mark).bytes()) }}
	}
	return []attempt{
		asks("label", func(m string) query { return ask(m+"."+denied, typeA) }),
		asks("label-aaaa", func(m string) query { return ask(m+"."+denied, typeAAAA) }),
		asks("label-hex", func(m string) query { return ask(hex.EncodeToString([]byte(m))+"."+denied, typeA) }),
		asks("label-base32", func(m string) query {
			return ask(strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString([]byte(m)))+"."+denied, typeA)
		}),
		asks("under-allowed", func(m string) query { return ask(m+".ok.test", typeA) }),
		asks("under-star", func(m string) query { return ask(m+".wild.test", typeA) }),
		asks("beside-allowed", func(m string) query { return ask(m+"ok.test", typeA) }),
		asks("allowed-txt", func(m string) query {
			q := ask("ok.test", typeTXT)
			q.extra, q.counts[1] = record("", typeOPT, 1232, append([]byte{0xfd, 0xe9, 0, byte(len(m))}, m...)), 1 // a private option
			return q
		}),
		asks("allowed-options", func(m string) query {
			q := ask("raw.test", typeHTTPS)
			q.extra, q.counts[1] = record("", typeOPT, 1232, append([]byte{0, 12, 0, byte(len(m))}, m...)), 1 // padding (RFC 7830)
			return q
		}),
		asks("txt", func(m string) query { return ask(m+"."+denied, typeTXT) }),
		asks("null", func(m string) query { return ask(m+"."+denied, typeNULL) }),
		asks("any", func(m string) query { return ask(m+"."+denied, typeANY) }),
		asks("reverse", func(m string) query { return ask(m+".113.0.203.in-addr.arpa", typePTR) }),
		asks("chaos", func(m string) query { return query{questions: []question{{m + "." + denied, typeTXT, classChaos}}} }),
		asks("two-questions", func(m string) query {
			return query{questions: []question{{"ok.test", typeA, classInternet}, {m + "." + denied, typeA, classInternet}}}
		}),
		asks("with-answer", func(m string) query {
			q := ask(denied, typeA)
			q.answers, q.counts[0] = record(m+"."+denied, typeTXT, classInternet, []byte(m)), 1
			return q
		}),
		asks("update", func(m string) query {
			return query{op: opUpdate, questions: []question{{denied, 6, classInternet}}, extra: record(m+"."+denied, typeTXT, classInternet, []byte(m)), counts: [2]uint16{0, 1}}
		}),
		asks("notify", func(m string) query {
			return query{op: opNotify, questions: []question{{m + "." + denied, 6, classInternet}}}
		}),
		{"dns-stream", func(t *target, mark string) error {
			return resolve(t.Names, unix.SOCK_STREAM, ask(mark+"."+denied, typeA).bytes())
		}},
		{"dns-own6", func(_ *target, mark string) error {
			return resolve("[::1]:53", unix.SOCK_DGRAM, ask(mark+"."+denied, typeAAAA).bytes())
		}},
		{"dns-garbage", func(t *target, mark string) error { return resolve(t.Names, unix.SOCK_DGRAM, []byte(mark)) }},
		{"dns-library", func(_ *target, mark string) error { return runProgram("getent", "hosts", mark+"."+denied) }},
	}
}

// foreignResolvers ask resolvers outside.
func foreignResolvers() []attempt {
	at := func(name, where string, kind int, make func(mark string) query) attempt {
		return attempt{"dns-" + name, func(t *target, mark string) error { return resolve(t.Net[where], kind, make(mark).bytes()) }}
	}
	label := func(m string) query { return ask(m+"."+denied, typeA) }
	return []attempt{
		at("public", "dns8", unix.SOCK_DGRAM, label), at("public-stream", "dns8", unix.SOCK_STREAM, label),
		at("machine", "dns-host", unix.SOCK_DGRAM, label), at("machine-stream", "dns-host", unix.SOCK_STREAM, label), at("public6", "dns6", unix.SOCK_DGRAM, label),
		at("public-options", "dns8", unix.SOCK_DGRAM, func(m string) query {
			q := ask("ok.test", typeA)
			q.extra, q.counts[1] = record("", typeOPT, 1232, append([]byte{0xfd, 0xe9, 0, byte(len(m))}, m...)), 1
			return q
		}),
	}
}

// resolve puts a message to a resolver and wants records.
func resolve(address string, kind int, message []byte) error {
	fd, to, err := open(address, kind, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, to); err != nil {
		return err
	}
	skip := 0
	if kind == unix.SOCK_STREAM {
		message = append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...)
		skip = 2
	}
	if _, err := unix.Write(fd, message); err != nil {
		return err
	}
	buf := make([]byte, 4096)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return err
	}
	if n < skip+12 {
		return errors.New("no answer")
	}
	answer := buf[skip:n]
	if count := binary.BigEndian.Uint16(answer[6:]); count == 0 {
		return fmt.Errorf("code %d and no record", answer[3]&0xf)
	}
	return nil
}
