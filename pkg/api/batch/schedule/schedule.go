// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package schedule reads the schedules of CronJobs. Time zones are those of the
// machine, or where it has none, those that this package brings along.
package schedule

import (
	"fmt"
	_ "time/tzdata" // time zones, see above

	"github.com/robfig/cron/v3"
)

// Parse reads a schedule. The parser's panics on some malformed zones are errors.
func Parse(text string) (s cron.Schedule, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("invalid schedule format: %v", p)
		}
	}()
	return cron.ParseStandard(text)
}
