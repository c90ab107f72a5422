// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package typedjson

import "hash/maphash"

// recentLength is the length in bytes of the longest text that recentTexts keeps.
const recentLength = 32

// recentTexts holds short texts that were read recently. Documents of one kind repeat most of their
// short texts (kinds, policies, names of labels), and a text that is found here is not allocated
// again. A text is stored at the index given by its hash and replaces the text that was there. So
// the memory is bounded (8 KiB of texts) and the cost of a lookup does not depend on the documents.
type recentTexts struct {
	seed maphash.Seed
	slot [256]string
}

// string returns s as a string, if possible one that was read before.
func (t *recentTexts) string(s []byte) string {
	if len(s) == 0 || len(s) > recentLength {
		return string(s)
	}
	slot := &t.slot[maphash.Bytes(t.seed, s)%uint64(len(t.slot))]
	if *slot != string(s) {
		*slot = string(s)
	}
	return *slot
}
