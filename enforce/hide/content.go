package hide

import (
	"bytes"
	"encoding/hex"
)

// hasPrivateKey looks for the header of a PEM private key (RFC 7468, RFC 4716 and OpenSSH use the same words), of a PGP
// private key block, of a PuTTY key and of an age identity.
func hasPrivateKey(head []byte) bool {
	if bytes.Contains(head, []byte("PuTTY-User-Key-File-")) || bytes.Contains(head, []byte("AGE-SECRET-KEY-1")) {
		return true
	}
	const begin = "-----BEGIN "
	for {
		i := bytes.Index(head, []byte(begin))
		if i < 0 {
			return false
		}
		head = head[i+len(begin):]
		label := head[:min(len(head), 80)]
		if end := bytes.Index(label, []byte("-----")); end >= 0 && bytes.Contains(label[:end], []byte("PRIVATE KEY")) {
			return true
		}
	}
}

// secretWords are parts of key names whose value is a secret.
var secretWords = [][]byte{
	[]byte("password"), []byte("passwd"), []byte("secret"), []byte("token"), []byte("_auth"), []byte("apikey"), []byte("api_key"),
	[]byte("access_key"), []byte("accesskey"), []byte("private_key"), []byte("credential"), []byte("key_base"),
}

// hasAssignment looks for a line that gives a key with a telling name a literal value. It reads what INI, YAML, JSON, TOML
// and shell files have in common: name, then "=" or ":", then the value.
func hasAssignment(head []byte) bool {
	for line := range bytes.Lines(head) {
		// JSON may stand on one line. A reference like ${NAME} falls apart here and is then no literal value.
		for part := range bytes.FieldsFuncSeq(line, func(r rune) bool { return r == ',' || r == '{' || r == '}' }) {
			if assigns(part) {
				return true
			}
		}
	}
	return false
}

func assigns(line []byte) bool {
	line = bytes.TrimLeft(line, " \t{[-")
	if len(line) == 0 || line[0] == '#' || line[0] == ';' {
		return false
	}
	sep := bytes.IndexAny(line, "=:")
	if bytes.HasPrefix(line, []byte("//")) { // .npmrc puts a registry with colons before the name
		sep = bytes.IndexByte(line, '=')
	}
	if xml := bytes.Index(line, []byte(`value="`)); xml >= 0 && bytes.HasPrefix(line, []byte("<add ")) {
		sep = xml + len(`value`)
	}
	if sep < 0 {
		return false
	}
	key := bytes.ToLower(line[:sep])
	for _, w := range secretWords {
		if bytes.Contains(key, w) {
			return literal(line[sep+1:])
		}
	}
	return false
}

// literal reports a value of six or more characters that is no reference, no template and not encrypted.
func literal(value []byte) bool {
	value = bytes.Trim(value, " \t\r\n\"'}]>/")
	if len(value) < 6 {
		return false
	}
	for _, p := range []string{"${", "$", "%", "<", "{{", "ENC[", "!vault", "!ref", "!sub", "arn:", "file:", "env:", "null", "xxxx", "changeme", "your"} {
		if len(value) >= len(p) && bytes.EqualFold(value[:len(p)], []byte(p)) {
			return false
		}
	}
	return true
}

func isHex(b []byte) bool {
	_, err := hex.DecodeString(string(b))
	return err == nil
}
