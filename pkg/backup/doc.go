// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package backup reads and writes backups of clusters on machines. A backup is one file, which contains
// everything that a machine needs to become the control plane of the cluster again:
//
//	age(zstd(tar(manifest.json, store.db, etc/keelson/…, etc/kubernetes/…)))
//
// So the programs age, zstd and tar can open it in an emergency. store.db is a snapshot of etcd. The
// manifest comes first, and has the size and hash of all other files, in their order.
//
// Invariants:
//
//   - A backup can be read only with its passphrase, or with the identity of one of its recipients.
//   - A reader never uses more memory or disk space than the manifest announces, and limits that.
//   - Files that were cut off or changed, and files of a later format, are recognized. Contents whose
//     hash is wrong are an error, so callers must not use what they have read before that error.
//   - A file with the final name is complete and durable.
//
// A backup is in a Location: a directory, or a bucket (package backup/s3). Listing and removing backups is
// the same for both.
//
// The package does not know which files of a machine belong into a backup, and where they belong when it
// is restored: package machine does. Package backup/offline changes stores.
package backup
