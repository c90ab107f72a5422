// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package machines tests installations on machines with systemd. Tests that boot machines run only if
// the environment variable KEELSON_MACHINES is set; "make machines" sets it.
package machines
