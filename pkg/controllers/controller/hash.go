// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/binary"
	"hash/fnv"
	"io"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/dump"
)

// TemplateHash names a template of pods as Kubernetes does, in the names of
// ReplicaSets and of the revisions of DaemonSets. Into it goes how often a name
// was found taken before, if that is known.
func TemplateHash(template *v1.PodTemplateSpec, collisions *int32) string {
	h := fnv.New32a()
	_, _ = io.WriteString(h, dump.ForHash(*template)) // a hash takes everything
	if collisions != nil {
		var b [8]byte
		binary.LittleEndian.PutUint32(b[:], uint32(*collisions))
		_, _ = h.Write(b[:])
	}
	return rand.SafeEncodeString(strconv.FormatUint(uint64(h.Sum32()), 10))
}
