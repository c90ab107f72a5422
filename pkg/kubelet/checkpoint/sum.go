// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"fmt"
	"hash/fnv"
	"path"
	"reflect"
	"strings"

	"k8s.io/utils/dump"
)

// Checksum is what Kubernetes adds to some of its files.
type Checksum uint64

// Sum is the checksum that Kubernetes' kubelet finds for what v points to. It is made of the names
// of types too: v's are to be named as there, where they are in package "state".
func Sum(v any) Checksum {
	own := path.Base(reflect.TypeOf(v).Elem().PkgPath())
	text := strings.NewReplacer("checkpoint.Checksum", "checksum.Checksum", "("+own+".", "(state.", "(*"+own+".", "(*state.",
		"]"+own+".", "]state.", "]*"+own+".", "]*state.").Replace(dump.ForHash(v))
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, text) // a hash takes all
	return Checksum(h.Sum32())
}
