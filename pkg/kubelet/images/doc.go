// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package images gets the images of containers onto the node, as their pull
// policies say, with the credentials of their pods.
//
// An image that cannot be pulled is tried again after a growing delay; until
// then asking for it fails at once. One image is pulled by one caller at a
// time; the others find it there.
package images
