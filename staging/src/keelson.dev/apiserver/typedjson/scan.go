// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package typedjson

import (
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// space skips white space.
func (r *reader) space() {
	for r.at < len(r.data) {
		switch r.data[r.at] {
		case ' ', '\t', '\r', '\n':
			r.at++
		default:
			return
		}
	}
}

// next reports whether the next byte is c.
func (r *reader) next(c byte) bool { return r.at < len(r.data) && r.data[r.at] == c }

// word reads the literal w (true, false or null). It does not check the byte after it.
func (r *reader) word(w string) bool {
	if len(r.data)-r.at < len(w) || string(r.data[r.at:r.at+len(w)]) != w {
		return false
	}
	r.at += len(w)
	return true
}

// open reads the start of an object or an array, and the white space after it.
func (r *reader) open(c byte) bool {
	if !r.next(c) || r.depth >= maxDepth {
		return false
	}
	r.depth++
	r.at++
	r.space()
	return true
}

// close reads the end of an object or an array.
func (r *reader) close() bool {
	r.depth--
	r.at++
	return true
}

// more reads the comma between two elements, or the end of the object or array. The result more
// reports whether another element follows.
func (r *reader) more(end byte) (more, ok bool) {
	r.space()
	switch {
	case r.next(','):
		r.at++
		r.space()
		return true, true
	case r.next(end):
		return false, r.close()
	}
	return false, false
}

// colon reads the colon between a name and its value.
func (r *reader) colon() bool {
	r.space()
	if !r.next(':') {
		return false
	}
	r.at++
	r.space()
	return true
}

// ordinary has true for the ASCII bytes that a JSON string may contain unescaped. It is never
// modified.
var ordinary = func() (is [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		is[c] = c != '"' && c != '\\'
	}
	return is
}()

// literal reads a JSON string that has only ordinary bytes. The result is a part of r.data.
func (r *reader) literal() ([]byte, bool) {
	if !r.next('"') {
		return nil, false
	}
	start := r.at + 1
	i := start
	for i < len(r.data) && ordinary[r.data[i]] {
		i++
	}
	if i == len(r.data) || r.data[i] != '"' {
		return nil, false
	}
	r.at = i + 1
	return r.data[start:i], true
}

// text reads a JSON string.
func (r *reader) text() (string, bool) {
	if s, ok := r.literal(); ok {
		return r.recent.string(s), true
	}
	if !r.next('"') {
		return "", false
	}
	s := r.plain[:0]
	for i := r.at + 1; i < len(r.data); {
		switch c := r.data[i]; {
		case c == '"':
			r.at, r.plain = i+1, s
			return string(s), utf8.Valid(s)
		case c == '\\':
			char, size, ok := escape(r.data[i:])
			if !ok {
				return "", false
			}
			s = utf8.AppendRune(s, char)
			i += size
		case c < ' ':
			return "", false
		default:
			s = append(s, c)
			i++
		}
	}
	return "", false
}

// escapes maps the letter of a short escape such as \n to its character. It is never modified.
var escapes = [256]rune{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escape decodes the escape at the start of s. It rejects a single half of a surrogate pair.
func escape(s []byte) (char rune, size int, ok bool) {
	if len(s) < 2 {
		return 0, 0, false
	}
	if char = escapes[s[1]]; char != 0 {
		return char, 2, true
	}
	if char, ok = unit(s); !ok || !utf16.IsSurrogate(char) {
		return char, 6, ok
	}
	low, ok := unit(s[6:])
	char = utf16.DecodeRune(char, low)
	return char, 12, ok && char != utf8.RuneError
}

// unit decodes the escape \uXXXX at the start of s, which is one UTF-16 unit.
func unit(s []byte) (rune, bool) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	var n rune
	for _, c := range s[2:6] {
		switch {
		case '0' <= c && c <= '9':
			n = n<<4 + rune(c-'0')
		case 'a' <= c && c <= 'f':
			n = n<<4 + rune(c-'a') + 10
		case 'A' <= c && c <= 'F':
			n = n<<4 + rune(c-'A') + 10
		default:
			return 0, false
		}
	}
	return n, true
}

// digits reads a number with its sign, fraction and exponent. It does not compute the value.
func (r *reader) digits() bool {
	if r.next('-') {
		r.at++
	}
	if r.next('0') {
		r.at++
	} else if !r.run() {
		return false
	}
	if r.next('.') {
		r.at++
		if !r.run() {
			return false
		}
	}
	if r.next('e') || r.next('E') {
		r.at++
		if r.next('+') || r.next('-') {
			r.at++
		}
		return r.run()
	}
	return true
}

// run reads one or more digits.
func (r *reader) run() bool {
	start := r.at
	for r.at < len(r.data) && '0' <= r.data[r.at] && r.data[r.at] <= '9' {
		r.at++
	}
	return r.at > start
}

// integer returns the value of a number without fraction and exponent.
func integer(s []byte) (n int64, ok bool) {
	if len(s) > 18 {
		n, err := strconv.ParseInt(string(s), 10, 64)
		return n, err == nil
	}
	digits := s
	if s[0] == '-' {
		digits = s[1:]
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false // s has a fraction or an exponent
		}
		n = n*10 + int64(c-'0')
	}
	if len(digits) < len(s) {
		n = -n
	}
	return n, true
}

// skip reads any value and ignores it.
func (r *reader) skip() bool {
	if r.at >= len(r.data) {
		return false
	}
	switch r.data[r.at] {
	case '{':
		return r.skipAll('{', '}')
	case '[':
		return r.skipAll('[', ']')
	case '"':
		return r.skipText()
	case 't':
		return r.word("true")
	case 'f':
		return r.word("false")
	case 'n':
		return r.word("null")
	}
	return r.digits()
}

func (r *reader) skipAll(start, end byte) bool {
	if !r.open(start) {
		return false
	}
	if r.next(end) {
		return r.close()
	}
	for {
		if start == '{' && (!r.skipText() || !r.colon()) || !r.skip() {
			return false
		}
		if more, ok := r.more(end); !more {
			return ok
		}
	}
}

func (r *reader) skipText() bool {
	if _, ok := r.literal(); ok {
		return true
	}
	_, ok := r.text()
	return ok
}
