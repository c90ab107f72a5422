// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"strconv"

	"keelson.dev/apiserver/resource"
)

// revision is a resourceVersion; objects that were never stored have none.
func revision(rev int64) string {
	if rev == 0 {
		return ""
	}
	return strconv.FormatInt(rev, 10)
}

// revisionOf is the revision an object was read at.
func revisionOf(obj resource.Object) int64 {
	rev, err := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return rev
}

// parseRevision reads what a client says is a revision; none is 0. Its error is
// the one that clients are told.
func parseRevision(said string) (uint64, error) {
	if said == "" {
		return 0, nil
	}
	return strconv.ParseUint(said, 10, 64)
}
