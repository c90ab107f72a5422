// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller is what controllers are made with: what they are given, a
// queue of keys with workers, handlers of changes, what a controller expects to
// see of its own writes, and the rules by which objects get and leave owners.
//
// A controller brings what it finds to what is asked for, from whatever state,
// one key at a time; a key is never worked on twice at once. It keeps nothing
// that a restart would lose.
package controller
