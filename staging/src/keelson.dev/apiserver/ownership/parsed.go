// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"strings"
	"sync"
)

// parsedKept is how many texts are remembered, and parsedMost how long one may be.
const parsedKept, parsedMost = 8, 8 << 10

// parsed remembers the sets of the FieldsV1 read last. Objects that were made alike have
// the same: a controller's pods, and who writes their statuses.
type parsed struct {
	mu   sync.Mutex
	last []parsedText // the latest first
}

type parsedText struct {
	text   string
	fields set
}

// parse is the function of that name for n, always the same one. What text is made of
// may change afterwards.
func (p *parsed) parse(text string, n *node) (set, error) {
	if fields, ok := p.find(text); ok {
		return fields, nil
	}
	text = strings.Clone(text) // the set is made of it
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
