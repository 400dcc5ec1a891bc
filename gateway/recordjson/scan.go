package recordjson

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// MaxDepth is how deep arrays and objects may nest in a value.
const MaxDepth = 128

// flaw is what makes bytes no JSON. The scanner returns it with the place, and makes no text: most
// callers only want to know whether there is one.
type flaw uint8

const (
	sound flaw = iota
	flawEnd
	flawValue
	flawName
	flawColon
	flawComma
	flawControl
	flawUTF8
	flawEscape
	flawSurrogate
	flawNumber
	flawLiteral
	flawDepth
	flawTrailing
)

var flawTexts = [...]string{
	flawEnd:       "it ends too early",
	flawValue:     "a value was expected",
	flawName:      "a name in double quotes was expected",
	flawColon:     "':' was expected",
	flawComma:     "',' or the end of the array or object was expected",
	flawControl:   "a control character in a string must be escaped",
	flawUTF8:      "it is not UTF-8",
	flawEscape:    "an unknown escape",
	flawSurrogate: `half of a surrogate pair in a \u escape`,
	flawNumber:    "a malformed number",
	flawLiteral:   "true, false or null was expected",
	flawDepth:     "it is nested deeper than 128 levels",
	flawTrailing:  "something follows its end",
}

// Valid says that b is one strictly valid JSON value, with white space around it or not: UTF-8, no
// lone surrogates, at most MaxDepth deep. Names in it may be there twice.
func Valid(b []byte) bool {
	end, why := scanValue(b, skipSpace(b, 0))
	return why == sound && skipSpace(b, end) == len(b)
}

// skipSpace returns the first place from i on that is not white space.
func skipSpace(b []byte, i int) int {
	for i < len(b) {
		if c := b[i]; c > ' ' || c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			return i
		}
		i++
	}
	return i
}

// scanValue returns the end of the value that begins at b[i], or where and what its flaw is.
func scanValue(b []byte, i int) (end int, why flaw) {
	var objects [MaxDepth / 64]uint64 // for each level that is open: whether it is an object
	depth := 0
	for {
		// A value begins here.
		if i >= len(b) {
			return len(b), flawEnd
		}
		opened := false
		switch c := b[i]; c {
		case '{', '[':
			if depth == MaxDepth {
				return i, flawDepth
			}
			bit := uint64(1) << (depth % 64)
			if c == '{' {
				objects[depth/64] |= bit
			} else {
				objects[depth/64] &^= bit
			}
			depth++
			opened = true
			i++
		case '"':
			i, _, why = scanString(b, i+1)
		case 't':
			i, why = scanLiteral(b, i, "true")
		case 'f':
			i, why = scanLiteral(b, i, "false")
		case 'n':
			i, why = scanLiteral(b, i, "null")
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			i, why = scanNumber(b, i)
		default:
			return i, flawValue
		}
		if why != sound {
			return i, why
		}
		// Close what ends here, then step to the next value.
		for {
			if depth == 0 {
				return i, sound
			}
			i = skipSpace(b, i)
			if i >= len(b) {
				return len(b), flawEnd
			}
			inObject := objects[(depth-1)/64]>>((depth-1)%64)&1 != 0
			c := b[i]
			if c == ']' && !inObject || c == '}' && inObject {
				i++
				depth--
				opened = false
				continue
			}
			if !opened {
				if c != ',' {
					return i, flawComma
				}
				i = skipSpace(b, i+1)
			}
			if inObject {
				if i, why = scanName(b, i); why != sound {
					return i, why
				}
			}
			break
		}
	}
}

// scanName passes a name, its colon and the white space around, and returns where the value begins.
func scanName(b []byte, i int) (at int, why flaw) {
	if i >= len(b) {
		return len(b), flawEnd
	}
	if b[i] != '"' {
		return i, flawName
	}
	if i, _, why = scanString(b, i+1); why != sound {
		return i, why
	}
	return scanColon(b, i)
}

func scanColon(b []byte, i int) (at int, why flaw) {
	i = skipSpace(b, i)
	if i >= len(b) {
		return len(b), flawEnd
	}
	if b[i] != ':' {
		return i, flawColon
	}
	return skipSpace(b, i+1), sound
}

func scanLiteral(b []byte, i int, word string) (end int, why flaw) {
	if len(b)-i < len(word) {
		for j := range b[i:] {
			if b[i+j] != word[j] {
				return i, flawLiteral
			}
		}
		return len(b), flawEnd
	}
	if string(b[i:i+len(word)]) != word {
		return i, flawLiteral
	}
	return i + len(word), sound
}

// scanNumber returns the end of the number that begins at b[i].
func scanNumber(b []byte, i int) (end int, why flaw) {
	if b[i] == '-' {
		i++
	}
	switch {
	case i >= len(b):
		return len(b), flawEnd
	case b[i] == '0':
		i++
		if i < len(b) && isDigit(b[i]) {
			return i, flawNumber
		}
	default:
		if i, why = scanDigits(b, i); why != sound {
			return i, why
		}
	}
	if i < len(b) && b[i] == '.' {
		if i, why = scanDigits(b, i+1); why != sound {
			return i, why
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if i, why = scanDigits(b, i); why != sound {
			return i, why
		}
	}
	return i, sound
}

// scanDigits passes one digit or more.
func scanDigits(b []byte, i int) (end int, why flaw) {
	if i >= len(b) {
		return len(b), flawEnd
	}
	if !isDigit(b[i]) {
		return i, flawNumber
	}
	for i++; i < len(b) && isDigit(b[i]); i++ {
	}
	return i, sound
}

func isDigit(c byte) bool { return c-'0' <= 9 }

// Eight bytes at a time: a mark in the top bit of each byte that a string does not simply go on with.
const (
	ones = 0x0101010101010101
	tops = 0x8080808080808080
)

// special marks control characters, quotes and backslashes. The lowest mark is right; above it there
// may be wrong ones, and none in bytes from 0x80 on.
func special(w uint64) uint64 {
	quotes := w ^ ones*'"'
	slashes := w ^ ones*'\\'
	return ((w - ones*0x20) | (quotes - ones) | (slashes - ones)) &^ w & tops
}

// scanString returns the place behind the closing quote of the string whose content begins at b[i],
// and whether there are escapes in it.
func scanString(b []byte, i int) (end int, escaped bool, why flaw) {
	for {
		for len(b)-i >= 8 {
			w := binary.LittleEndian.Uint64(b[i:])
			if marks := special(w) | w&tops; marks != 0 {
				i += bits.TrailingZeros64(marks) / 8
				break
			}
			i += 8
		}
		if i >= len(b) {
			return len(b), escaped, flawEnd
		}
		switch c := b[i]; {
		case c == '"':
			return i + 1, escaped, sound
		case c == '\\':
			escaped = true
			if i, why = scanEscape(b, i); why != sound {
				return i, escaped, why
			}
		case c < 0x20:
			return i, escaped, flawControl
		case c < utf8.RuneSelf:
			i++
		default:
			if i, why = scanRunes(b, i); why != sound {
				return i, escaped, why
			}
		}
	}
}

// scanRunes passes what is not ASCII.
func scanRunes(b []byte, i int) (end int, why flaw) {
	for i < len(b) && b[i] >= utf8.RuneSelf {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			if !utf8.FullRune(b[i:]) {
				return len(b), flawEnd
			}
			return i, flawUTF8
		}
		i += n
	}
	return i, sound
}

// scanEscape passes the escape that begins at b[i], for a surrogate the pair of them.
func scanEscape(b []byte, i int) (end int, why flaw) {
	if i+1 >= len(b) {
		return len(b), flawEnd
	}
	switch b[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2, sound
	case 'u':
	default:
		return i, flawEscape
	}
	unit, why := hex4(b, i+2)
	switch {
	case why == flawEnd:
		return len(b), why
	case why != sound:
		return i, why
	case unit < 0xd800 || unit > 0xdfff:
		return i + 6, sound
	}
	if unit >= 0xdc00 {
		return i, flawSurrogate
	}
	for j, c := range []byte(`\u`) {
		if i+6+j >= len(b) {
			return len(b), flawEnd
		}
		if b[i+6+j] != c {
			return i, flawSurrogate
		}
	}
	low, why := hex4(b, i+8)
	switch {
	case why == flawEnd:
		return len(b), why
	case why != sound:
		return i, why
	case low < 0xdc00 || low > 0xdfff:
		return i, flawSurrogate
	}
	return i + 12, sound
}

// hex4 reads the four digits at b[i:].
func hex4(b []byte, i int) (unit rune, why flaw) {
	for j := i; j < i+4; j++ {
		if j >= len(b) {
			return 0, flawEnd
		}
		switch c := b[j]; {
		case isDigit(c):
			unit = unit<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			unit = unit<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, flawEscape
		}
	}
	return unit, sound
}

// appendUnescaped appends the meaning of the content of a string that was scanned.
func appendUnescaped(dst, content []byte) []byte {
	for i := 0; i < len(content); {
		c := content[i]
		if c != '\\' {
			start := i
			for i < len(content) && content[i] != '\\' {
				i++
			}
			dst = append(dst, content[start:i]...)
			continue
		}
		c = content[i+1]
		i += 2
		switch c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			unit, _ := hex4(content, i)
			i += 4
			if unit >= 0xd800 && unit <= 0xdfff {
				low, _ := hex4(content, i+2)
				i += 6
				unit = 0x10000 + (unit-0xd800)<<10 + (low - 0xdc00)
			}
			dst = utf8.AppendRune(dst, unit)
		default: // a quote, a slash, a backslash
			dst = append(dst, c)
		}
	}
	return dst
}
