// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package memlimit sets the two limits that the Go runtime has for the memory of a process: GOGC,
// the garbage that may gather before the heap is collected, and GOMEMLIMIT.
//
// GOGC comes from a profile that the process chooses, and GOMEMLIMIT is 90 % of the memory limit of
// the process's cgroup, if there is one. If one of them is set as an environment variable, that
// value takes precedence. The metrics go_gc_gogc_percent and go_gc_gomemlimit_bytes show the values
// in use.
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
	// Node is for the agents and control loops, which have small heaps and are idle most of the
	// time.
	Node Profile = 50
	// Server is for the API server, whose requests create much garbage.
	Server Profile = 150
)

// Set applies a profile to the process. The first statement of main calls it.
func Set(p Profile) {
	gcPercent, memoryLimit := p.settings(os.LookupEnv, memlimit.FromCgroup)
	if gcPercent != unset {
		debug.SetGCPercent(gcPercent)
	}
	if memoryLimit != unset {
		debug.SetMemoryLimit(memoryLimit)
	}
}

// unset means that a setting is not changed: the Go runtime has read it from the environment.
const unset = -1

// settings returns the values to set, given the environment and the limit of the cgroup. An error
// of cgroupLimit means that there is no limit.
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
		// The last tenth is for memory that the Go runtime does not manage, such as the page cache.
		memoryLimit = int64(min(limit, math.MaxInt64) / 10 * 9)
	}
	return gcPercent, memoryLimit
}
