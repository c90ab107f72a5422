// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package logs rotates the logs of containers, removes old logs and reads logs for users.
//
// The runtime appends the output of each run of a container to a file in the log directory of the
// pod. If the file exceeds the size limit, the Keeper renames it, with the time as a suffix, and the
// runtime creates a new file. All renamed files except the newest are compressed, and the oldest are
// removed. The names are the same as in Kubernetes, so that log collectors find the files. Names sort
// in the order in which the files were written, even if the clock is set back: each new name sorts
// after the existing ones.
//
// Read reads a log and follows it from file to file. It watches the directory before it opens the
// file. At the end of a file it checks whether the log's name refers to another file. A reader that is
// slower than the container continues in the renamed files.
//
// Pods that mount /var/log could otherwise make the kubelet read, compress, rename or remove other
// files. So below the root directory of logs, logs must be regular files, and neither they nor their
// directories may be symbolic links. Other files are rejected.
//
// Sweep removes log directories of pods that no longer exist.
//
// The package stores no state: the next run completes or removes what a killed process has left
// unfinished.
package logs
