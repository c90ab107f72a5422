// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package epoch defines the epoch of a cluster: a number that each restore of the cluster's store
// increases. A cluster that was never restored has the epoch 0, which is stored and sent nowhere.
//
// The store has the epoch under the key that Key returns. An API server sends it in the header Header of
// its answers to /readyz. Clients that have seen a higher epoch know that the server has the history of
// the cluster before the restore.
package epoch

import (
	"fmt"
	"net/http"
	"path"
	"strconv"
	"time"
)

// Header is the HTTP header of answers to /readyz.
const Header = "Keelson-Epoch"

// Key returns the key of the epoch in a store whose keys begin with prefix, for example registry.
// No resource is stored there.
func Key(prefix string) string { return path.Join("/", prefix, "machines.keelson.dev/epoch") }

// Format returns the stored form of an epoch, which is also its form in the header.
func Format(epoch int64) string { return strconv.FormatInt(epoch, 10) }

// Parse returns the epoch in its stored form. It returns 0 for an empty text.
func Parse(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	epoch, err := strconv.ParseInt(text, 10, 64)
	if err == nil && epoch < 0 {
		err = strconv.ErrRange
	}
	if err != nil {
		return 0, fmt.Errorf("epoch: %w", err)
	}
	return epoch, nil
}

// Of returns the epoch of the server that has sent an answer to /readyz.
func Of(h http.Header) (int64, error) { return Parse(h.Get(Header)) }

// Next returns the epoch after a restore at the time now. known has the epochs that the machine knows of.
// The result is at least the time in seconds, because a store can be restored twice from one file, on
// different machines: only the time makes the epoch of the second restore higher than that of the first.
func Next(now time.Time, known ...int64) int64 {
	next := max(now.Unix(), 1)
	for _, e := range known {
		next = max(next, e+1)
	}
	return next
}
