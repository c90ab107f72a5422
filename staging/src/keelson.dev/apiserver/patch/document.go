// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"strings"

	kjson "sigs.k8s.io/json"
)

const (
	maxPlainKey    = 512 // YAML rejects longer keys
	maxPlainDigits = 15  // an integer with more digits may change when it is converted to float64
)

// Document decodes a configuration for server-side apply, which is YAML. It handles only documents
// that are also JSON with the same meaning, as programs usually write them: on one line, in ASCII,
// with integers as numbers, and without repeated members. ok is false for everything else.
func Document(data []byte) (fields map[string]any, ok bool) {
	if !plainJSON(data) {
		return nil, false
	}
	findings, err := kjson.UnmarshalStrict(data, &fields)
	return fields, err == nil && len(findings) == 0 && fields != nil
}

// plainJSON reports whether a JSON document contains nothing that YAML reads differently. It does
// not check whether the document is valid JSON.
func plainJSON(data []byte) bool {
	text := strings.TrimRight(string(data), "\n ")
	if !strings.HasPrefix(text, "{") {
		return false
	}
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '"':
			n, ok := plainString(text[i:])
			if !ok {
				return false
			}
			i += n
		case c == '-' || '0' <= c && c <= '9':
			n, ok := plainNumber(text[i:])
			if !ok {
				return false
			}
			i += n
		case c < ' ' || c > '~':
			return false
		default:
			i++
		}
	}
	return true
}

// plainString returns the length of the JSON string at the start of s. ok is false if YAML may read
// it differently.
func plainString(s string) (n int, ok bool) {
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			key := strings.HasPrefix(s[i+1:], ":")
			spaced := strings.HasPrefix(strings.TrimLeft(s[i+1:], " "), ":") && !key
			return i + 1, s[:i] != `"<<` && !spaced && !(key && i > maxPlainKey)
		case c < ' ' || c > '~':
			return 0, false
		case c == '\\':
			m := plainEscape(s[i:])
			if m == 0 {
				return 0, false
			}
			i += m - 1
		}
	}
	return 0, false
}

// plainEscape returns the length of the escape at the start of s. It returns 0 if the escape does
// not mean the same in JSON and YAML.
func plainEscape(s string) int {
	if len(s) < 2 {
		return 0
	}
	switch s[1] {
	case '"', '\\', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(s) < 6 || strings.ContainsAny(s[2:3], "dD") { // may be half of a surrogate pair
			return 0
		}
		return 6
	}
	return 0
}

// plainNumber returns the length of the integer at the start of s. ok is false if YAML may read it
// differently.
func plainNumber(s string) (n int, ok bool) {
	i := 0
	if s[0] == '-' {
		i++
	}
	start := i
	for i < len(s) && '0' <= s[i] && s[i] <= '9' {
		i++
	}
	digits := i - start
	if digits == 0 || digits > maxPlainDigits || s[start] == '0' && i > 1 {
		return 0, false
	}
	return i, i < len(s) && strings.IndexByte(",]} ", s[i]) >= 0
}
