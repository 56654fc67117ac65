package hostmatch

import (
	"errors"
	"strings"
	"unicode/utf8"
)

// Parameters of RFC 3492 section 5.
const (
	punyBase, punyTMin, punyTMax = 36, 1, 26
	punySkew, punyDamp           = 38, 700
	punyBias, punyN              = 72, 128

	maxDelta = 1 << 30 // no sum below overflows 32 bits, and no label of 63 octets needs more
)

var errPunycode = errors.New("malformed or out of range")

// decodePunycode is RFC 3492 section 6.2. Its input is at most one label long.
func decodePunycode(s string) ([]rune, error) {
	var out []rune
	if d := strings.LastIndexByte(s, '-'); d > 0 {
		out, s = []rune(s[:d]), s[d+1:]
	} else if d == 0 {
		return nil, errPunycode
	}
	if s == "" {
		return nil, errPunycode
	}
	i, n, bias := 0, punyN, punyBias
	for s != "" {
		old, w := i, 1
		for k := punyBase; ; k += punyBase {
			if s == "" {
				return nil, errPunycode
			}
			digit := punyDigit(s[0])
			s = s[1:]
			if digit < 0 || digit > (maxDelta-i)/w {
				return nil, errPunycode
			}
			i += digit * w
			t := threshold(k, bias)
			if digit < t {
				break
			}
			if w > maxDelta/(punyBase-t) {
				return nil, errPunycode
			}
			w *= punyBase - t
		}
		bias = adapt(i-old, len(out)+1, old == 0)
		n += i / (len(out) + 1)
		i %= len(out) + 1
		if n > utf8.MaxRune || !utf8.ValidRune(rune(n)) {
			return nil, errPunycode
		}
		out = append(out[:i], append([]rune{rune(n)}, out[i:]...)...)
		i++
	}
	return out, nil
}

// encodePunycode is RFC 3492 section 6.3.
func encodePunycode(runes []rune) (string, error) {
	var out []byte
	for _, r := range runes {
		if r < utf8.RuneSelf {
			out = append(out, byte(r))
		}
	}
	basic := len(out)
	if basic > 0 {
		out = append(out, '-')
	}
	delta, n, bias := 0, punyN, punyBias
	for done := basic; done < len(runes); {
		next := utf8.MaxRune + 1
		for _, r := range runes {
			if int(r) >= n && int(r) < int(next) {
				next = r
			}
		}
		delta += (int(next) - n) * (done + 1)
		n = int(next)
		for _, r := range runes {
			if int(r) < n {
				delta++
			}
			if int(r) != n {
				continue
			}
			out = appendVarint(out, delta, bias)
			bias = adapt(delta, done+1, done == basic)
			delta = 0
			done++
		}
		delta++
		n++
	}
	if len(out)+len(acePrefix) > maxLabel {
		return "", errors.New("label longer than 63 octets in the xn-- form")
	}
	return string(out), nil
}

func appendVarint(out []byte, q, bias int) []byte {
	const digits = "abcdefghijklmnopqrstuvwxyz0123456789"
	for k := punyBase; ; k += punyBase {
		t := threshold(k, bias)
		if q < t {
			return append(out, digits[q])
		}
		out = append(out, digits[t+(q-t)%(punyBase-t)])
		q = (q - t) / (punyBase - t)
	}
}

func punyDigit(c byte) int {
	switch {
	case 'a' <= c && c <= 'z':
		return int(c - 'a')
	case '0' <= c && c <= '9':
		return int(c-'0') + 26
	}
	return -1
}

func threshold(k, bias int) int { return min(max(k-bias, punyTMin), punyTMax) }

func adapt(delta, points int, first bool) int {
	if first {
		delta /= punyDamp
	} else {
		delta /= 2
	}
	delta += delta / points
	k := 0
	for delta > (punyBase-punyTMin)*punyTMax/2 {
		delta /= punyBase - punyTMin
		k += punyBase
	}
	return k + (punyBase-punyTMin+1)*delta/(delta+punySkew)
}
