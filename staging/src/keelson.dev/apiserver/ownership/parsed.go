// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"strings"
	"sync"
)

// parsedKept is the maximum number of texts that parsed keeps, and parsedMost their maximum length
// in bytes.
const parsedKept, parsedMost = 8, 8 << 10

// parsed caches the sets of recently parsed FieldsV1. The pods of one controller, for example, have
// the same FieldsV1.
type parsed struct {
	mu   sync.Mutex
	last []parsedText // at most parsedKept, the most recently used first
}

type parsedText struct {
	text   string
	fields set
}

// parse is like the function parse, but may return a cached set. n must be the same in all calls.
// The caller may overwrite the memory of text afterwards.
func (p *parsed) parse(text string, n *node) (set, error) {
	if fields, ok := p.find(text); ok {
		return fields, nil
	}
	text = strings.Clone(text) // copy text, because the set refers to it
	fields, err := parse(text, n)
	if err == nil && len(text) <= parsedMost {
		p.add(parsedText{text, fields})
	}
	return fields, err
}

func (p *parsed) find(text string) (set, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, known := range p.last {
		if known.text == text {
			copy(p.last[1:i+1], p.last[:i])
			p.last[0] = known
			return known.fields, true
		}
	}
	return nil, false
}

func (p *parsed) add(t parsedText) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.last) < parsedKept {
		p.last = append(p.last, parsedText{})
	}
	copy(p.last[1:], p.last)
	p.last[0] = t
}
