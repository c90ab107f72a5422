// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package logs rotates the logs of containers, removes old ones and reads them for users.
//
// The runtime appends to one file per run of a container, below the directory of its pod. A file
// that exceeds the size limit is renamed, with the time as suffix, and the runtime opens a new one.
// All renamed files except the newest are compressed, and the oldest are removed. Names and order
// are Kubernetes', so that log collectors find the files. Names sort in the order in which the
// files were written, even if the clock is set back: a new name is never less than an earlier one.
//
// Read reads a log and follows it from file to file. It watches the directory before it opens the
// file, and checks at the end of each file whether the name refers to another file. A reader that
// is slower than the log continues in the renamed files.
//
// Below the root, logs must be regular files, and neither they nor their directories may be
// symbolic links; anything else is rejected. A pod that has /var/log as a volume could otherwise
// make the kubelet read, compress, rename or remove other files.
//
// Directories of unknown pods are removed.
//
// The package keeps no state: the next run completes or removes what a killed process left
// unfinished.
package logs
