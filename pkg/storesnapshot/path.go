// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storesnapshot defines how a client gets a copy of the store from an API server:
//
//	GET /keelson.dev/storesnapshot
//
// The answer is a snapshot of etcd, as "etcdctl snapshot save" writes it: the database, followed by its
// SHA-256. It contains all objects, so only users who may get all paths, such as administrators, may get
// this one. API servers serve it only with the flag --serve-store-snapshots.
package storesnapshot

// Path is the path of the snapshot on an API server.
const Path = "/keelson.dev/storesnapshot"
