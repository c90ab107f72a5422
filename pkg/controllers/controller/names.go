// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/binary"
	"hash/fnv"
	"io"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/dump"
)

const (
	// maxName is the maximum length of an object's name.
	maxName = 253
	// maxGenerated is the maximum length of the prefix in a generated name; longer prefixes are
	// truncated. randomLetters is the number of random letters after the prefix.
	maxGenerated  = 63 - randomLetters
	randomLetters = 5
)

// generateName returns a name like those that the API server generates from metadata.generateName.
func generateName(prefix string) string {
	return prefix[:min(len(prefix), maxGenerated)] + rand.String(randomLetters)
}

// generateNamePrefix returns the metadata.generateName of the pods of an owner with the given name.
func generateNamePrefix(owner string) string {
	if len(owner) >= maxName {
		return owner
	}
	return owner + "-"
}

// JoinName returns owner-suffix. If this is longer than the maximum length of a name, JoinName
// truncates owner.
func JoinName(owner, suffix string) string {
	return TruncateName(owner, maxName-len("-")-len(suffix)) + "-" + suffix
}

// TruncateName returns the first n bytes of a name, or all if it is shorter. It removes dots from
// the end of a truncated name, because the caller appends a hyphen, which must not follow a dot.
func TruncateName(name string, n int) string {
	if len(name) <= n {
		return name
	}
	return strings.TrimRight(name[:n], ".")
}

// TemplateHash returns Kubernetes' hash of a pod template, which is a part of the names of
// ReplicaSets and of revisions of DaemonSets. collisions is the owner's status.collisionCount: how
// many times the resulting name belonged to another object already. It is hashed too, and may be
// nil.
func TemplateHash(template *v1.PodTemplateSpec, collisions *int32) string {
	h := fnv.New32a()
	_, _ = io.WriteString(h, dump.ForHash(*template)) // writing to a hash never fails
	if collisions != nil {
		var b [8]byte
		binary.LittleEndian.PutUint32(b[:], uint32(*collisions))
		_, _ = h.Write(b[:])
	}
	return rand.SafeEncodeString(strconv.FormatUint(uint64(h.Sum32()), 10))
}
