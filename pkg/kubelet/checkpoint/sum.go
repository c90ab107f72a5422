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

// Checksum is the type of the checksums in the files that Kubernetes' kubelet also reads.
type Checksum uint64

// Sum returns the checksum that Kubernetes' kubelet computes for the value to which v points. The
// checksum depends on the names of types, so the value's type must have the same name as the type
// in Kubernetes' package "state".
func Sum(v any) Checksum {
	own := path.Base(reflect.TypeOf(v).Elem().PkgPath())
	text := strings.NewReplacer("checkpoint.Checksum", "checksum.Checksum", "("+own+".", "(state.",
		"(*"+own+".", "(*state.",
		"]"+own+".", "]state.", "]*"+own+".", "]*state.").Replace(dump.ForHash(v))
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, text) // writing to a hash never fails
	return Checksum(h.Sum32())
}
