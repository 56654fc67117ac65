package check

import (
	"encoding/binary"
	"strings"
)

// hello describes a ClientHello. It is built by hand, because crypto/tls would not send the names that rows are about.
type hello struct {
	names  []string // none: no server_name extension
	named  bool     // SNI= was given, even if empty
	alpn   []string
	ech    bool
	split  bool
	second string // put into the second record, after the first part of the name
}

// setName reads what follows SNI=.
func (h *hello) setName(text string) {
	h.named = true
	if name, second, ok := strings.Cut(text, " split over "); ok {
		h.split, text = true, name
		if _, part, ok := strings.Cut(second, "second part "); ok {
			h.second = part
		}
	}
	if name, extra, ok := strings.Cut(text, " "); ok && (strings.Contains(extra, "ECH") || strings.Contains(extra, "ESNI")) {
		h.ech, text = true, name
	}
	switch strings.Trim(text, "()<>") {
	case "", "absent", "none", "missing", "-":
		return
	}
	h.names = strings.Split(text, ",")
}

// bytes is the hello in one record, or in two.
func (h *hello) bytes() []byte {
	body := binary.BigEndian.AppendUint16(nil, 0x0303)
	body = append(body, make([]byte, 32)...)     // random
	body = append(body, 0)                       // session id
	body = append(body, 0, 2, 0x13, 0x01)        // TLS_AES_128_GCM_SHA256
	body = append(body, 1, 0)                    // no compression
	ext, cut := h.extensions()                   // cut: where the second record begins
	cut += 4 + len(body) + 2                     // from the start of the message
	body = append(body, vector(2, ext)...)       //
	msg := append([]byte{1}, vector(3, body)...) // client_hello
	if !h.split {
		return record(msg)
	}
	return append(record(msg[:cut]), record(msg[cut:])...)
}

// extensions begins with server_name, so that a split can be put into the name.
func (h *hello) extensions() (ext []byte, cut int) {
	cut = 2
	if len(h.names) > 0 {
		var list []byte
		for _, n := range h.names {
			list = append(append(list, 0), vector(2, []byte(n+h.second))...)
		}
		ext = extension(ext, 0, vector(2, list))
		cut = 4 + 2 + 3 + len(h.names[0])
		if h.second == "" {
			cut -= (len(h.names[0]) + 1) / 2
		}
	}
	if len(h.alpn) > 0 {
		var list []byte
		for _, p := range h.alpn {
			list = append(list, vector(1, []byte(p))...)
		}
		ext = extension(ext, 16, vector(2, list))
	}
	if h.ech {
		ext = extension(ext, 0xfe0d, []byte{0})
	}
	return extension(ext, 43, []byte{2, 3, 4}), cut // supported_versions: TLS 1.3
}

func extension(b []byte, kind uint16, data []byte) []byte {
	return append(binary.BigEndian.AppendUint16(b, kind), vector(2, data)...)
}

// vector puts a length of size octets before data.
func vector(size int, data []byte) []byte {
	n := binary.BigEndian.AppendUint32(nil, uint32(len(data)))
	return append(n[4-size:], data...)
}

func record(fragment []byte) []byte {
	return append([]byte{22, 3, 1}, vector(2, fragment)...)
}
