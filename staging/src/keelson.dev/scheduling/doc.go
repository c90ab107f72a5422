// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduling is the API for scheduler plugins. Keelson's built-in plugins use it too. The
// scheduler's picture of all nodes and the pods on them is called the cell. Pods with the same
// scheduling requirements form a class (see NodeScope).
//
// A plugin is a value of type Plugin, which lists the extension points that it implements. At the
// extension points Filter and Score a plugin works in two steps. First, the scheduler calls Compile
// with one pod and a view of the whole cell. Compile returns functions, which the scheduler then
// calls to evaluate one node each. These functions are closures, so they can use whatever Compile
// has computed, in the plugin's own types.
//
// A plugin states with Scope how much of the cell it looks at. With NodeScope, the scheduler keeps
// its results for all pods of the same class and evaluates only nodes that have changed. With
// CellScope, the scheduler calls Compile for each pod; use Keep for counts that are expensive to
// compute.
//
// # Concurrency
//
// The scheduler makes one scheduling attempt at a time. It calls Compile and the functions that
// Compile returns from one goroutine at a time, under its own lock, so they need no lock. It calls
// Gate and Less from other goroutines; they must not share state that changes.
//
// A View is valid until the call that received it returns, except that the functions returned by
// Compile may keep it. It always shows the current state. Everything that it returns is read-only.
//
// # Errors
//
// A plugin does no I/O and reads no clock, so that the same view always gives the same result. If a
// plugin rejects a node or a pod, it returns a Status. If it cannot decide, it returns a Status
// with the code Failed. The scheduler does not recover from a panic of a plugin.
package scheduling
