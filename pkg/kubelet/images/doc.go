// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package images pulls the images of containers, according to their pull policies and with the
// credentials of their pods, and removes unused images.
//
// After a failed pull, the image is retried after a growing delay. Until then every request of the
// pod for the image fails at once. If several callers need the same image, they pull it one after
// the other, so that only the first one has to download it.
package images
