// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"strconv"

	"keelson.dev/apiserver/resource"
)

// revision formats a resourceVersion. Objects that were never stored have none.
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

// parseRevision parses the resourceVersion that a client sends. An empty one is 0. Clients see its
// error.
func parseRevision(said string) (uint64, error) {
	if said == "" {
		return 0, nil
	}
	return strconv.ParseUint(said, 10, 64)
}
