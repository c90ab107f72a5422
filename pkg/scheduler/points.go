// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"keelson.dev/scheduling"
)

// point is an extension point of Kubernetes' scheduler, as the metrics name it. The Compile of a
// Keelson filter is reported as PreFilter, and the Compile of a scorer as PreScore. Permit and
// PostBind are missing, because Keelson's plugins cannot run there.
type point int8

const (
	preEnqueue point = iota
	preFilter
	filter
	postFilter
	preScore
	score
	reserve
	preBind
	bindPoint
	points // number of points
)

func (p point) String() string {
	return [points]string{"PreEnqueue", "PreFilter", "Filter", "PostFilter", "PreScore", "Score", "Reserve", "PreBind",
		"Bind"}[p]
}

// codes is the number of status codes, including 0 for success.
const codes = scheduling.Failed + 1

// codeOf returns the code of a status, or 0 (success) if st is nil.
func codeOf(st *scheduling.Status) scheduling.Code {
	if st == nil {
		return 0
	}
	return st.Code
}

// codeOfError returns the code for an error, or 0 (success) if err is nil.
func codeOfError(err error) scheduling.Code {
	if err == nil {
		return 0
	}
	return scheduling.Failed
}

// codeLabel returns Kubernetes' name of a code, for metrics.
func codeLabel(c scheduling.Code) string {
	return [codes]string{"Success", "Unschedulable", "UnschedulableAndUnresolvable", "Pending", "Error"}[c]
}

// times has a histogram for each extension point and status code. Each is created on first use, so
// that a scrape shows no empty series. A nil *times observes nothing.
type times [points][codes]func() prometheus.Observer

// newTimes returns histograms that are created by the function create when they are first used.
func newTimes(create func(point, code string) prometheus.Observer) *times {
	var out times
	for p := range points {
		for c := range codes {
			out[p][c] = sync.OnceValue(func() prometheus.Observer { return create(p.String(), codeLabel(c)) })
		}
	}
	return &out
}

func (t *times) observe(p point, c scheduling.Code, took time.Duration) {
	if t != nil {
		t[p][c]().Observe(took.Seconds())
	}
}
