// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// ExpandStatic replaces references to variables by the values in vars. A variable whose value comes
// from another object or file is replaced by "".
func ExpandStatic(list []string, vars []v1.EnvVar) []string {
	values := map[string]string{}
	for _, v := range vars {
		values[v.Name] = v.Value
	}
	out := make([]string, 0, len(list))
	for _, s := range list {
		out = append(out, expand(s, func(name string) (string, bool) {
			value, ok := values[name]
			return value, ok
		}))
	}
	return out
}

// lookup returns the value of a variable. The second result is false if the variable is unknown.
type lookup func(name string) (string, bool)

// expand replaces $(NAME) by the variable's value, and $$ by $. Everything else stays unchanged:
// references to unknown variables, references without a closing parenthesis, and single $
// characters.
func expand(s string, value lookup) string {
	at := strings.IndexByte(s, '$')
	if at < 0 {
		return s
	}
	var b strings.Builder
	for ; at >= 0 && at+1 < len(s); at = strings.IndexByte(s, '$') {
		b.WriteString(s[:at])
		s = s[at:]
		n := 1 // number of bytes at the beginning of s that are done
		switch s[1] {
		case '$':
			b.WriteByte('$')
			n = 2
		case '(':
			name, _, closed := strings.Cut(s[2:], ")")
			if !closed {
				b.WriteString("$(")
				n = 2
				break
			}
			n = len("$()") + len(name)
			if v, ok := value(name); ok {
				b.WriteString(v)
			} else {
				b.WriteString(s[:n])
			}
		default:
			b.WriteByte('$')
		}
		s = s[n:]
	}
	b.WriteString(s)
	return b.String()
}
