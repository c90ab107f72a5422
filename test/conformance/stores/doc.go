// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stores tests that Keelson's API server can replace kube-apiserver, and be replaced by it.
//
// One test lets kube-apiserver fill an etcd with objects of every kind that upstream has examples of,
// opens it with Keelson, changes it, and opens it with kube-apiserver again. Each server must read
// what the other one has written. A second test compares how both servers read upstream's serialized
// objects. A third one runs the same commands of upstream's kubectl against both servers, and
// compares the outputs.
//
// The script stores.sh builds the programs, and then runs these tests. Without it, they are skipped.
package stores
