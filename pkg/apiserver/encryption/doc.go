// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package encryption encrypts values in the key-value store as an EncryptionConfiguration says. It
// is a kv.Store over another one. The format is Kubernetes' (the providers are its library's), so
// each can read what the other has written. The key of a value is authenticated with it, so that a
// value cannot be moved to another key.
//
// A value that cannot be decrypted causes an error only for its readers. Watches continue and
// report it.
//
// Without a configuration, the package is not used.
package encryption
