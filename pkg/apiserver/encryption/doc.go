// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package encryption keeps values encrypted in the key-value store, as an
// EncryptionConfiguration says: a kv.Store over another one. The bytes are those
// that Kubernetes writes (the providers are its library's), so that either reads
// what the other has written; the key of a value is part of what is
// authenticated, so that a value is worth nothing in another's place.
//
// A value that cannot be decrypted is an error of who reads it. It holds up
// nothing else: the watch goes on, and tells of it.
//
// Without a configuration nothing of this stands between the server and its store.
package encryption
