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
	// manyMissed is the number of missed starts above which an event warns that a clock may be
	// wrong.
	manyMissed = 100
	// lateness is added to the delay until the next sync, so that the sync does not come too early
	// if clocks differ.
	lateness = 100 * time.Millisecond
)

var errInterval = errors.New("time difference between two schedules is less than 1 second")

// scheduleOf parses a cron job's schedule, to be evaluated in the cron job's time zone.
func scheduleOf(c *batchv1.CronJob) (cron.Schedule, error) {
	text := c.Spec.Schedule
	if zone := c.Spec.TimeZone; zone != nil && !strings.Contains(text, "TZ") {
		if _, err := time.LoadLocation(*zone); err == nil {
			text = fmt.Sprintf("TZ=%s %s", *zone, text)
		}
	}
	return schedule.Parse(text)
}

// since returns the time after which scheduled times count as due: the last scheduled time that was
// started, or else the creation of the cron job.
func since(c *batchv1.CronJob) time.Time {
	if t := c.Status.LastScheduleTime; t != nil {
		return t.Time
	}
	return c.CreationTimestamp.Time
}

// latest returns the last scheduled time that is later than the argument from and not later than
// now, or the zero time if there is none. If there are two or more such times, it also returns
// their approximate number, otherwise 0.
func latest(s cron.Schedule, from, now time.Time) (time.Time, int64, error) {
	first := s.Next(from)
	second := s.Next(first)
	switch {
	case now.Before(first):
		return time.Time{}, 0, nil
	case now.Before(second):
		return first, 0, nil
	}
	// The schedule may have no next time, for example if it is for 30 February. Then first and
	// second are zero.
	interval := int64(second.Sub(first).Round(time.Second) / time.Second)
	if interval < 1 {
		return time.Time{}, 0, errInterval
	}
	// There may be millions of scheduled times, so do not visit all. Estimate the last time from
	// the interval between the first two. Intervals may differ, so start the search one interval
	// before the estimate. For @every schedules the search must start a whole number of intervals
	// after first.
	missed := int64(now.Sub(first)/time.Second)/interval + 1
	var last time.Time
	for t := s.Next(first.Add(time.Duration((missed-2)*interval) * time.Second)); !t.IsZero() &&
		!t.After(now); t = s.Next(t) {
		last = t
	}
	return last, missed, nil
}

// due returns the scheduled time of the start that is due now, or the zero time if none is due. It
// also reports whether more than manyMissed starts were missed.
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

// next returns the time until the first scheduled start after those that are already due, plus
// lateness.
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
