// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduling holds what a scheduler plugin compiled outside this
// repository needs: the interfaces of the extension points, the verdicts a
// plugin gives and the view of nodes and pods it is given.
package scheduling
