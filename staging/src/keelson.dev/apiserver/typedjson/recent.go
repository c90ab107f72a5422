// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package typedjson

import "hash/maphash"

// recentLength is the length in bytes of the longest text that recentTexts keeps.
const recentLength = 32

// recentTexts holds short texts that were read recently. Documents of one kind repeat most of
// their short texts (kinds, policies, names of labels), and a text that is found here is not
// allocated again. A text is stored at its hash and replaces the one that was there, so the memory
// is bounded (8 KiB of texts) and a lookup costs the same whatever documents contain.
type recentTexts struct {
	seed maphash.Seed
	slot [256]string
}

// string returns s as a string.
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
