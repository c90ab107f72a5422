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
	// maxGenerated is the maximum length of a prefix to which the API server appends
	// randomLetters random letters.
	maxGenerated  = 63 - randomLetters
	randomLetters = 5
)

// generateName returns a name like those that the API server generates from metadata.generateName.
func generateName(prefix string) string {
	return prefix[:min(len(prefix), maxGenerated)] + rand.String(randomLetters)
}

// generateNamePrefix returns the metadata.generateName of an owner's pods.
func generateNamePrefix(owner string) string {
	if len(owner) >= maxName {
		return owner
	}
	return owner + "-"
}

// JoinName returns owner-suffix. It truncates the owner's part if the name would be too long.
func JoinName(owner, suffix string) string {
	return TruncateName(owner, maxName-len("-")-len(suffix)) + "-" + suffix
}

// TruncateName returns at most the first n bytes of a name, without trailing dots, so that a
// hyphen may follow.
func TruncateName(name string, n int) string {
	if len(name) <= n {
		return name
	}
	return strings.TrimRight(name[:n], ".")
}

// TemplateHash returns Kubernetes' hash of a pod template, which is a part of the names of
// ReplicaSets and of revisions of DaemonSets. collisions is the number of times that the name
// was taken before; it may be nil.
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
