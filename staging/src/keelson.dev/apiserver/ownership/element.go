// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"cmp"
	"strconv"
	"strings"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// A path element is a string in the form of FieldsV1, without its quotes: "f:name" for a field,
// "k:{...}" for the list element with these keys, "v:..." for this value of a set. The package uses
// only path elements that compareElements can compare.

// plain reports whether s contains no characters that JSON escapes.
func plain(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ', c > '~', c == '"', c == '\\', c == '<', c == '>', c == '&':
			return false
		}
	}
	return true
}

// compareElements compares path elements in the order of structured-merge-diff: fields first, then
// keys, then values.
func compareElements(a, b string) int {
	if a == b {
		return 0
	}
	if a[0] != b[0] {
		return strings.Compare(a[:1], b[:1]) // f < k < v
	}
	switch a[0] {
	case 'f':
		return strings.Compare(a[2:], b[2:])
	case 'v':
		if x, y, ok := texts(a[2:], b[2:]); ok {
			return strings.Compare(x, y)
		}
	case 'k':
		if c, ok := compareKeys(a[2:], b[2:]); ok {
			return c
		}
	}
	return compareParsed(a, b)
}

// texts removes the quotes of two JSON strings without escapes. ok is false if one of them is not
// quoted.
func texts(a, b string) (x, y string, ok bool) {
	if len(a) < 2 || len(b) < 2 || a[0] != '"' || b[0] != '"' {
		return "", "", false
	}
	return a[1 : len(a)-1], b[1 : len(b)-1], true
}

// compareKeys compares two JSON objects key by key. It returns false unless they have the same
// names and their values are plain strings or integers.
func compareKeys(a, b string) (int, bool) {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] { // { or a comma
		nameA, restA, okA := strings.Cut(a[1:], ":")
		nameB, restB, okB := strings.Cut(b[1:], ":")
		if !okA || !okB || nameA != nameB {
			return 0, false
		}
		c, ok := compareScalars(&restA, &restB)
		if !ok || c != 0 {
			return c, ok
		}
		a, b = restA, restB
	}
	return 0, false
}

// compareScalars compares the values at the start of a and b, which have to be plain strings or
// integers, and removes them from a and b.
func compareScalars(a, b *string) (int, bool) {
	if len(*a) == 0 || len(*b) == 0 {
		return 0, false
	}
	if (*a)[0] == '"' && (*b)[0] == '"' {
		x, restA, okA := strings.Cut((*a)[1:], `"`)
		y, restB, okB := strings.Cut((*b)[1:], `"`)
		*a, *b = restA, restB
		return strings.Compare(x, y), okA && okB
	}
	x, okA := cutInteger(a)
	y, okB := cutInteger(b)
	return cmp.Compare(x, y), okA && okB
}

// cutInteger removes the integer at the start of s and returns it.
func cutInteger(s *string) (int64, bool) {
	end := strings.IndexAny(*s, ",}")
	if end < 1 {
		return 0, false
	}
	i, err := strconv.ParseInt((*s)[:end], 10, 64)
	*s = (*s)[end:]
	return i, err == nil
}

// compareParsed compares path elements with structured-merge-diff.
func compareParsed(a, b string) int {
	x, errX := fieldpath.DeserializePathElement(a)
	y, errY := fieldpath.DeserializePathElement(b)
	if errX != nil || errY != nil {
		return strings.Compare(a, b) // unreachable: the package does not use such forms
	}
	return x.Compare(y)
}

// simpleElement reports whether e is a path element in a form that this package uses.
func simpleElement(e string) bool {
	if len(e) < 2 || e[1] != ':' {
		return false
	}
	switch e[0] {
	case 'f':
		return true
	case 'v':
		rest, ok := simpleValue(e[2:])
		return ok && rest == ""
	case 'k':
		return simpleKeys(e[2:])
	}
	return false
}

// simpleKeys reports whether s is a JSON object with plain values and names in ascending order.
func simpleKeys(s string) bool {
	if len(s) < 2 || s[0] != '{' {
		return false
	}
	last := ""
	for s = s[1:]; ; s = s[1:] {
		name, rest, ok := simpleText(s)
		if !ok || name <= last || rest == "" || rest[0] != ':' {
			return false
		}
		last = name
		if s, ok = simpleValue(rest[1:]); !ok || s == "" {
			return false
		}
		if s == "}" {
			return true
		}
		if s[0] != ',' {
			return false
		}
	}
}

// simpleText reads a plain JSON string at the start of s.
func simpleText(s string) (text, rest string, ok bool) {
	if s == "" || s[0] != '"' {
		return "", "", false
	}
	end := strings.IndexByte(s[1:], '"') + 1
	if end < 1 || !plain(s[1:end]) {
		return "", "", false
	}
	return s[1:end], s[end+1:], true
}

// simpleValue reads a plain string, a boolean, or an integer of at most maxDigits digits at the
// start of s.
func simpleValue(s string) (rest string, ok bool) {
	if s == "" {
		return "", false
	}
	if s[0] == '"' {
		_, rest, ok = simpleText(s)
		return rest, ok
	}
	for _, word := range [...]string{"true", "false"} {
		if rest, ok := strings.CutPrefix(s, word); ok {
			return rest, true
		}
	}
	digits := strings.TrimPrefix(s, "-")
	n := 0
	for n < len(digits) && '0' <= digits[n] && digits[n] <= '9' {
		n++
	}
	if n == 0 || n > maxDigits || digits[0] == '0' && (n > 1 || len(digits) != len(s)) {
		return "", false
	}
	return digits[n:], true
}

// maxDigits is the number of digits that a float64 represents exactly.
const maxDigits = 15
