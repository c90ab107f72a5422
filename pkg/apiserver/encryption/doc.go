// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package encryption encrypts values in the key-value store as an EncryptionConfiguration
// specifies. It implements kv.Store on top of another kv.Store. The format and the providers are
// those of Kubernetes' library, so a Kubernetes API server can read the values that this server
// writes, and vice versa. The providers aesgcm and kms also authenticate the key of a value, so
// that a value copied to another key cannot be decrypted.
//
// A value that cannot be decrypted is missing in the results of reads and in events, and the item has
// an error instead. The other values of the same read are not affected.
//
// Without an EncryptionConfiguration, the package is not used.
package encryption
