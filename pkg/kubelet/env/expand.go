// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// ExpandStatic replaces references to a container's variables by the values in its spec. A variable
// whose value comes from another object or file is replaced by "".
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

// lookup returns the value of a variable.
type lookup func(name string) (string, bool)

// expand replaces $(NAME) by its value, and $$ by $. Everything else stays as it is: a reference to
// an unknown variable, a reference that is not closed, a single $.
func expand(s string, value lookup) string {
	at := strings.IndexByte(s, '$')
	if at < 0 {
		return s
	}
	var b strings.Builder
	for ; at >= 0 && at+1 < len(s); at = strings.IndexByte(s, '$') {
		b.WriteString(s[:at])
		s = s[at:]
		n := 1 // number of bytes of s that have been processed
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
