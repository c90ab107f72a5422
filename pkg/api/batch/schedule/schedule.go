// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package schedule parses the schedules of CronJobs. It uses the machine's time zone database, or
// an embedded one if the machine has none.
package schedule

import (
	"fmt"
	_ "time/tzdata" // embeds the time zones

	"github.com/robfig/cron/v3"
)

// Parse parses a schedule. If the parser panics, as it does for some malformed time zones, Parse
// returns an error.
func Parse(text string) (s cron.Schedule, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("invalid schedule format: %v", p)
		}
	}()
	return cron.ParseStandard(text)
}
