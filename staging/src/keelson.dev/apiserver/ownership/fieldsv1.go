// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"errors"
	"strings"
)

// errUnusual means that apimachinery has to handle the managedFields.
var errUnusual = errors.New("unusual managed fields")

// maxDepth bounds the nesting of FieldsV1.
const maxDepth = 100

// parse parses FieldsV1. n describes the objects. It accepts only the form that appendFields
// writes. It returns errUnusual for everything else: another order, white space, escapes, and sets
// that do not fit the schema any more (for example, if a manager owns a part of a list that is now
// owned as a whole).
func parse(text string, n *node) (set, error) {
	p := parser{text: text}
	s, _, err := p.object(n, 0)
	if err == nil && p.text != "" {
		err = errUnusual
	}
	return s, err
}

type parser struct {
	text string // the part of the text that has not been read yet
	made builder
}

// take reads the byte c if it is the next byte, and reports whether it did.
func (p *parser) take(c byte) bool {
	if p.text == "" || p.text[0] != c {
		return false
	}
	p.text = p.text[1:]
	return true
}

// object reads the entries below a path element. self reports whether "." is one of them, which
// means that the element itself is owned.
func (p *parser) object(n *node, depth int) (s set, self bool, err error) {
	if !p.take('{') || depth > maxDepth {
		return nil, false, errUnusual
	}
	if p.take('}') {
		return nil, false, nil
	}
	start, last := p.made.begin(), ""
	for first := true; ; first = false {
		element, ok := p.element()
		switch {
		case !ok:
			return nil, false, errUnusual
		case element == ".":
			if !first || depth == 0 || !p.take('{') || !p.take('}') {
				return nil, false, errUnusual
			}
			self = true
		default:
			e, err := p.entry(element, n.at(element), depth)
			if err != nil || last != "" && compareElements(last, element) >= 0 {
				return nil, false, errUnusual
			}
			p.made.open, last = append(p.made.open, e), element
		}
		if p.take('}') {
			break
		}
		if !p.take(',') {
			return nil, false, errUnusual
		}
	}
	if s = p.made.end(start); len(s) == 0 {
		return nil, false, errUnusual // an element without children: its object contains only "."
	}
	return s, self, nil
}

// entry reads one path element and the paths below it.
func (p *parser) entry(element string, n *node, depth int) (entry, error) {
	below, self, err := p.object(n, depth+1)
	if err != nil {
		return entry{}, err
	}
	e := entry{element, self || len(below) == 0, below}
	if n != nil && n.whole && len(below) > 0 {
		return entry{}, errUnusual
	}
	return e, nil
}

// element reads a path element and the colon after it.
func (p *parser) element() (string, bool) {
	if !p.take('"') {
		return "", false
	}
	end, escaped := 0, false
	for ; ; end++ {
		if end >= len(p.text) {
			return "", false
		}
		c := p.text[end]
		if c == '"' {
			break
		}
		if c < ' ' || c > '~' {
			return "", false
		}
		if c == '\\' {
			escaped = true
			if end++; end >= len(p.text) || p.text[end] != '"' && p.text[end] != '\\' {
				return "", false
			}
		}
	}
	e := p.text[:end]
	p.text = p.text[end+1:]
	if escaped {
		e = unescape(e)
	}
	return e, p.take(':') && (e == "." || simpleElement(e))
}

func unescape(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// appendFields appends the FieldsV1 of s.
func appendFields(dst []byte, s set) []byte {
	return appendBelow(dst, s, false)
}

func appendBelow(dst []byte, s set, self bool) []byte {
	dst = append(dst, '{')
	if self && len(s) > 0 {
		dst = append(dst, `".":{}`...)
	}
	for i := range s {
		if i > 0 || self {
			dst = append(dst, ',')
		}
		dst = append(dst, '"')
		for j := range len(s[i].element) {
			c := s[i].element[j]
			if c == '"' || c == '\\' {
				dst = append(dst, '\\')
			}
			dst = append(dst, c)
		}
		dst = append(dst, '"', ':')
		dst = appendBelow(dst, s[i].below, s[i].member)
	}
	return append(dst, '}')
}
