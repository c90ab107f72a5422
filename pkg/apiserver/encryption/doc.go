// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package encryption encrypts values in the key-value store as an EncryptionConfiguration says. It
// is a kv.Store over another one. The format and the providers are those of Kubernetes' library, so
// a Kubernetes API server can read values that this one has written, and vice versa. The key of a
// value is authenticated with it, so that a value cannot be moved to another key.
//
// A value that cannot be decrypted causes an error only for its readers. Watches continue and
// report it.
//
// Without a configuration, the package is not used.
package encryption
