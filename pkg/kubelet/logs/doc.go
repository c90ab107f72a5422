// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package logs keeps the logs of containers within bounds.
//
// The runtime appends to one file for each run of a container, below the
// directory of its pod. A file that has grown beyond its size is renamed (with
// the time as suffix) and the runtime asked to begin a new one; of the renamed
// files all but the newest are compressed, and the oldest removed. Names and
// order are those of Kubernetes, so that what collects logs from nodes finds
// them where it looks. The order of the names is that in which the files were written, also when
// the clock is set back or an hour comes twice: a name is never less than one before it.
//
// Read reads a log for a user, and follows it from file to file: it watches the directory before
// it first looks at the file, and asks at each end whether the name stands for another file. A reader that is
// slower than the log goes on in the renamed files.
//
// Below the root, logs must be regular files, and neither they nor their directories may be
// symbolic links; anything else is rejected. A pod that has /var/log as a volume could otherwise
// make the kubelet read, compress, rename or remove other files.
//
// Directories of pods that nobody knows any more are removed.
//
// Nothing is remembered: what a process that was killed left half done is
// completed or removed the next time.
package logs
