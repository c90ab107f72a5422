// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"

	"keelson.dev/keelson/pkg/api/batch/schedule"
)

const (
	// manyMissed is the number of missed starts that suggests a wrong clock.
	manyMissed = 100
	// lateness is added to the delay until the next sync, because clocks differ.
	lateness = 100 * time.Millisecond
)

var errInterval = errors.New("time difference between two schedules is less than 1 second")

// scheduleOf parses a cron job's schedule in its time zone.
func scheduleOf(c *batchv1.CronJob) (cron.Schedule, error) {
	text := c.Spec.Schedule
	if zone := c.Spec.TimeZone; zone != nil && !strings.Contains(text, "TZ") {
		if _, err := time.LoadLocation(*zone); err == nil {
			text = fmt.Sprintf("TZ=%s %s", *zone, text)
		}
	}
	return schedule.Parse(text)
}

// since returns the time after which starts are due: the last start, or the creation.
func since(c *batchv1.CronJob) time.Time {
	if t := c.Status.LastScheduleTime; t != nil {
		return t.Time
	}
	return c.CreationTimestamp.Time
}

// latest returns the last scheduled time after from and not after now, or zero, and the approximate
// number of such times.
func latest(s cron.Schedule, from, now time.Time) (time.Time, int64, error) {
	first := s.Next(from)
	second := s.Next(first)
	switch {
	case now.Before(first):
		return time.Time{}, 0, nil
	case now.Before(second):
		return first, 0, nil
	}
	// A schedule for a date that does not exist, like 30 February, has no next time. Then both
	// times are zero.
	interval := int64(second.Sub(first).Round(time.Second) / time.Second)
	if interval < 1 {
		return time.Time{}, 0, errInterval
	}
	// There may be millions of times. Intervals may differ, so the search starts one interval
	// early, at a time that is also correct for @every.
	missed := int64(now.Sub(first)/time.Second)/interval + 1
	var last time.Time
	for t := s.Next(first.Add(time.Duration((missed-2)*interval) * time.Second)); !t.IsZero() &&
		!t.After(now); t = s.Next(t) {
		last = t
	}
	return last, missed, nil
}

// due returns the time of the start that is due now, or zero. It reports whether too many starts
// were missed before it.
func due(c *batchv1.CronJob, s cron.Schedule, now time.Time) (time.Time, bool, error) {
	from := since(c)
	if limit := c.Spec.StartingDeadlineSeconds; limit != nil {
		if t := now.Add(-time.Duration(*limit) * time.Second); t.After(from) {
			from = t
		}
	}
	last, missed, err := latest(s, from, now)
	return last, missed > manyMissed, err
}

// next returns how long it is until the first start that is not due yet.
func next(c *batchv1.CronJob, s cron.Schedule, now time.Time) time.Duration {
	from := since(c)
	last, missed, err := latest(s, from, now)
	switch {
	case !last.IsZero():
		from = last
	case err != nil || missed > 0:
		from = now
	}
	return s.Next(from).Add(lateness).Sub(now)
}
