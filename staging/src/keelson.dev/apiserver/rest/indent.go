// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

// indentStep is the number of bytes of a text that are indented at a time.
const indentStep = 32 << 10

// indenter indents a JSON document, which arrives in pieces, by two spaces. The result is the same
// as that of json.Indent for the whole document. It does not check the JSON.
type indenter struct {
	depth int
	// The last byte was in a string (text), was a backslash in a string (escaped), or was an
	// opening bracket (opened).
	text, escaped, opened bool

	scratch []byte
}

// append indents b, the next piece of the document, and appends the result to dst.
func (in *indenter) append(dst, b []byte) []byte {
	for i := 0; i < len(b); i++ {
		if in.text {
			from := i
			for ; i < len(b) && in.text; i++ {
				in.step(b[i])
			}
			dst = append(dst, b[from:i]...)
			i--
			continue
		}
		dst = in.token(dst, b[i])
	}
	return dst
}

// step processes a byte of a JSON string.
func (in *indenter) step(c byte) {
	switch {
	case in.escaped:
		in.escaped = false
	case c == '\\':
		in.escaped = true
	case c == '"':
		in.text = false
	}
}

// token appends a byte outside of strings, with the white space that belongs around it.
func (in *indenter) token(dst []byte, c byte) []byte {
	if c == ' ' || c == '\t' || c == '\r' || c == '\n' {
		return dst
	}
	closing := c == '}' || c == ']'
	if in.opened && !closing {
		in.depth++
		dst = in.newline(dst)
	}
	switch {
	case closing && !in.opened:
		in.depth--
		dst = in.newline(dst)
	case c == '"':
		in.text = true
	}
	in.opened = c == '{' || c == '['
	dst = append(dst, c)
	switch c {
	case ',':
		dst = in.newline(dst)
	case ':':
		dst = append(dst, ' ')
	}
	return dst
}

func (in *indenter) newline(dst []byte) []byte {
	dst = append(dst, '\n')
	for range in.depth {
		dst = append(dst, ' ', ' ')
	}
	return dst
}
