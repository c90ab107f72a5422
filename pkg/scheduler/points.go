// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"keelson.dev/scheduling"
)

// point is an extension point of Kubernetes' scheduler, in metrics. Keelson's extension points stand
// for several of them: Compile of a filter is PreFilter, and Compile of a score is PreScore. Permit
// and PostBind are missing, because no plugin can run there.
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

// codes is the number of codes of a status, with 0 for success.
const codes = scheduling.Failed + 1

// codeOf returns the code of a status; st may be nil.
func codeOf(st *scheduling.Status) scheduling.Code {
	if st == nil {
		return 0
	}
	return st.Code
}

// codeOfError returns the code of an error; err may be nil.
func codeOfError(err error) scheduling.Code {
	if err == nil {
		return 0
	}
	return scheduling.Failed
}

// codeLabel returns Kubernetes' name of a code.
func codeLabel(c scheduling.Code) string {
	return [codes]string{"Success", "Unschedulable", "UnschedulableAndUnresolvable", "Pending", "Error"}[c]
}

// times has a histogram for each extension point and code. They are created on first use, so that a
// scrape shows no empty series. A nil *times observes nothing.
type times [points][codes]func() prometheus.Observer

// newTimes returns the times whose histograms create returns.
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
