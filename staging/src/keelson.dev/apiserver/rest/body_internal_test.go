// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"fmt"
	"strings"
	"testing"
)

// TestReadLength reads bodies that have the declared length, and bodies that are shorter.
func TestReadLength(t *testing.T) {
	lengths := []int{0, 1, initialBodySize, initialBodySize + 1, 3*initialBodySize + 1}
	for i, n := range lengths {
		for _, has := range lengths[:i+1] {
			t.Run(fmt.Sprintf("%d of %d bytes", has, n), func(t *testing.T) {
				sent := strings.Repeat("x", has)
				got, err := readLength(strings.NewReader(sent), n)
				if string(got) != sent {
					t.Errorf("read %d bytes, which differ from the %d sent bytes", len(got), has)
				}
				if (err != nil) != (has < n) {
					t.Errorf("error %v, although %d bytes are missing", err, n-has)
				}
			})
		}
	}
}
