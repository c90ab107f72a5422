// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package protection contains the controllers that delay the deletion of objects in use. Each of
// them manages one finalizer on the objects of one kind. An object that is being deleted keeps the
// finalizer, and so stays, as long as it is used:
//
//   - a PersistentVolumeClaim, while a pod with a node uses it;
//   - a PersistentVolume, while it is bound to a claim;
//   - a VolumeAttributesClass, while a volume or a claim names it;
//   - a PodGroup, while one of its pods has not ended.
//
// The controllers add the finalizers, except that of PodGroups: the API server adds it to each new
// PodGroup (admission plugin PodGroupProtection).
//
// A finalizer that is removed too early may cost data, so a controller trusts its caches only if they
// show a user of the object. If they show none, it also asks the API server, because the caches may
// lag. Volumes are an exception: their own status says whether they are bound, and a write based on
// an old version of the volume fails.
//
// The controller of claims also sets the condition Unused of bound claims: True from the time when
// the last pod that refers to the claim has ended, and False while there is such a pod.
package protection
