// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduling is the API for scheduler plugins. Keelson's built-in plugins use it too.
//
// A plugin is a value of type Plugin that lists the extension points it implements. The scheduler
// never looks for further methods. At the extension points Filter and Score a plugin works in two
// steps: Compile reads one pod, and may look at the whole cell; it returns functions that then
// evaluate one node each. What Compile found out is passed on in those functions' own variables, so
// it has the plugin's own types.
//
// A plugin states with Scope how much of the cell it looks at. With NodeScope the scheduler keeps
// its results for all pods of the same class and evaluates only nodes that have changed. With
// CellScope it is compiled for each pod; use Keep for counts that are expensive to compute.
//
// # Concurrency
//
// The scheduler runs one attempt at a time. Compile and the functions that it returns are called by
// one goroutine at a time, under the scheduler's lock, so they need no lock of their own. Gate and
// Less are called by other goroutines; they must not share state that changes.
//
// A View is valid until the call that received it returns, except that the functions returned by
// Compile may keep it. It always shows the current state. Everything that it returns is read-only.
//
// # Errors
//
// A plugin does no I/O and reads no clock, so that the same view gives the same answer. An
// objection is a Status; a plugin that cannot find out returns a Status with Failed. The scheduler
// does not recover from a panic of a plugin.
package scheduling
