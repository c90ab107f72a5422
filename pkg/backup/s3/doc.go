// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package s3 keeps files in a bucket of a server that speaks the protocol of Amazon S3. It implements
// backup.Location.
//
// Invariants:
//
//   - A file is visible when it is complete, and not before: it is uploaded in parts, and the server puts
//     them together last. A failed upload is aborted. Clean aborts uploads whose process was killed.
//   - An upload needs the memory of one part, and no disk.
//   - Requests are repeated a few times if the server is busy or the connection breaks, and an interrupted
//     download goes on where it was. A connection on which nothing moves for a minute counts as broken, so
//     no call blocks forever.
//   - Errors say what an administrator has to change. Secret keys are in no error.
//
// The settings come from the environment, under the names that the programs of Amazon use (see Config).
package s3
