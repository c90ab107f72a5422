// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storageversion contains two controllers for the versions in which API servers store objects.
// One keeps the record of these versions, the StorageVersions, free of API servers that are gone. The
// other one, the migrator, rewrites objects that are stored in an earlier version.
//
// # Garbage collector
//
// The garbage collector removes the entries of API servers that do not exist any more from
// StorageVersions. An API server exists as long as it has an identity lease. A StorageVersion without
// entries is deleted. Before it removes an entry, the controller asks the API server whether the lease
// was deleted, or is not that of an API server. A cache without the lease, or a failed request, is not
// enough.
//
// # Migrator
//
// The migrator carries out StorageVersionMigrations: it rewrites all objects of a resource, so that
// they are stored in the present version and with the present encryption key.
//
// One migration of each resource runs at a time, the oldest first. The controller records the
// resource version at which a migration begins. Objects that are written after that are stored
// correctly. All older objects are rewritten with an empty apply, which changes nothing else. After
// a restart the controller continues with the objects that are still older than the recorded
// version; it records no other progress.
//
// While the objects of a CustomResourceDefinition are migrated, its status has a condition that
// says so. Afterwards the controller removes the earlier versions from status.storedVersions,
// unless the definition has changed in the meantime.
package storageversion
