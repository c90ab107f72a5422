// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package memlimit sets the two limits that the Go runtime has for the memory of a process: GOGC,
// which is how much garbage may accumulate before a collection, and GOMEMLIMIT.
//
// The process chooses GOGC by a Profile. GOMEMLIMIT is 90 % of the memory limit of the process's
// cgroup, if the cgroup has one. If one of the two is set as an environment variable, that value is
// used instead. The metrics go_gc_gogc_percent and go_gc_gomemlimit_bytes show the values in use.
package memlimit

import (
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// Profile is a value for GOGC: the garbage that may accumulate before a collection, in percent of
// the live heap.
type Profile int

const (
	// Node is for all programs except the API server. Their heaps are small, and they are idle most
	// of the time.
	Node Profile = 50
	// Server is for the API server. Its requests create much garbage.
	Server Profile = 150
)

// Set sets GOGC and GOMEMLIMIT of the process. Programs call it at the start of main.
func Set(p Profile) {
	gcPercent, memoryLimit := p.settings(os.LookupEnv, memlimit.FromCgroup)
	if gcPercent != unset {
		debug.SetGCPercent(gcPercent)
	}
	if memoryLimit != unset {
		debug.SetMemoryLimit(memoryLimit)
	}
}

// unset is the result of settings for a limit that Set must not change.
const unset = -1

// settings returns the values for GOGC and GOMEMLIMIT. A value is unset if the limit is set in the
// environment; for GOMEMLIMIT, also if the cgroup has no memory limit. cgroupLimit returns this
// limit, or an error if there is none.
func (p Profile) settings(lookupEnv func(string) (string, bool), cgroupLimit func() (uint64, error)) (
	gcPercent int, memoryLimit int64) {
	gcPercent, memoryLimit = int(p), unset
	if _, set := lookupEnv("GOGC"); set {
		gcPercent = unset
	}
	if _, set := lookupEnv("GOMEMLIMIT"); set {
		return gcPercent, unset
	}
	if limit, err := cgroupLimit(); err == nil {
		// Leave a tenth for memory that the Go runtime does not manage, such as the page cache.
		memoryLimit = int64(min(limit, math.MaxInt64) / 10 * 9)
	}
	return gcPercent, memoryLimit
}
