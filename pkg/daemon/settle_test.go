// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"slices"
	"strings"
	"testing"
)

func TestReadOnly(t *testing.T) {
	const maps = `00400000-02897000 r-xp 00000000 fe:00 10944561                           /opt/with space/apiserver
02897000-054c1000 r--p 02497000 fe:00 10944561                           /opt/with space/apiserver
054c1000-05601000 rw-p 050c1000 fe:00 10944561                           /opt/with space/apiserver
c000000000-c001000000 rw-p 00000000 00:00 0
7f0000000000-7f0000001000 r--p 00000000 fe:00 99                         /usr/lib/locale/C.utf8
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]
`
	got, err := readOnly(strings.NewReader(maps), "/opt/with space/apiserver")
	want := []addresses{{0x400000, 0x2897000}, {0x2897000, 0x54c1000}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if got, err := readOnly(strings.NewReader("nonsense r--p 0 0 0 /x\n"), "/x"); err == nil {
		t.Errorf("nonsense is %v", got)
	}
}

// The program goes on after its pages were dropped: this very code is read again.
func TestDropProgram(t *testing.T) {
	if err := dropProgram(); err != nil {
		t.Fatal(err)
	}
}
