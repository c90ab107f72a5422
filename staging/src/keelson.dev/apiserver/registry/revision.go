// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"strconv"

	"keelson.dev/apiserver/resource"
)

// revision formats a resourceVersion. It returns "" for 0, the revision of objects that were not
// stored.
func revision(rev int64) string {
	if rev == 0 {
		return ""
	}
	return strconv.FormatInt(rev, 10)
}

// revisionOf returns the revision that an object was read at.
func revisionOf(obj resource.Object) int64 {
	rev, err := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return rev
}

// parseRevision parses a resourceVersion from a client. It returns 0 for an empty one. Clients
// receive the error.
func parseRevision(said string) (uint64, error) {
	if said == "" {
		return 0, nil
	}
	return strconv.ParseUint(said, 10, 64)
}
