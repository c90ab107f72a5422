// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package schedule parses the schedules of CronJobs. It uses the machine's time zone database, or
// an embedded copy if the machine has no database.
package schedule

import (
	"fmt"
	_ "time/tzdata" // embeds the time zone database

	"github.com/robfig/cron/v3"
)

// Parse parses a schedule. The parser panics on some malformed time zones; Parse then returns an
// error.
func Parse(text string) (s cron.Schedule, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("invalid schedule format: %v", p)
		}
	}()
	return cron.ParseStandard(text)
}
