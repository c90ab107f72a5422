// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduling holds what a scheduler plugin needs, whether it is one of
// the built-in ones or compiled outside this repository: the extension points,
// the verdicts a plugin gives, and the view of nodes and pods it is given.
//
// A plugin works in two steps. First it compiles what one pod asks for into a
// Filter or a Scorer, looking at the whole cell if it must; then that runs over
// nodes. A plugin says with Scope how far its verdict on a node reaches: one
// with NodeScope looks at the pod and that node alone, so the scheduler keeps
// its verdicts for all pods of the same class and asks again only about nodes
// that have changed.
//
// A plugin with CellScope whose verdicts can be kept up to date as pods come and
// go returns something Lasting, and is not compiled anew for every pod.
//
// A View always shows the present. What it returns is read only, and valid only
// until the call returns. Plugins do no I/O, take no locks and read no clock:
// same view, same answer.
package scheduling
