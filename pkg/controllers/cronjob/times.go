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
	// manyMissed starts are so many that a clock may be wrong.
	manyMissed = 100
	// lateness is how much after the time a sync is asked for: clocks differ.
	lateness = 100 * time.Millisecond
)

var errInterval = errors.New("time difference between two schedules is less than 1 second")

// scheduleOf reads a cron job's schedule in its time zone.
func scheduleOf(c *batchv1.CronJob) (cron.Schedule, error) {
	text := c.Spec.Schedule
	if zone := c.Spec.TimeZone; zone != nil && !strings.Contains(text, "TZ") {
		if _, err := time.LoadLocation(*zone); err == nil {
			text = fmt.Sprintf("TZ=%s %s", *zone, text)
		}
	}
	return schedule.Parse(text)
}

// since is the time after which starts are looked for: the last start there was,
// or the creation.
func since(c *batchv1.CronJob) time.Time {
	if t := c.Status.LastScheduleTime; t != nil {
		return t.Time
	}
	return c.CreationTimestamp.Time
}

// latest is the last time between from and now, now included, at which a job was
// to start, or zero, and about how many such times there were.
func latest(s cron.Schedule, from, now time.Time) (time.Time, int64, error) {
	first := s.Next(from)
	second := s.Next(first)
	switch {
	case now.Before(first):
		return time.Time{}, 0, nil
	case now.Before(second):
		return first, 0, nil
	}
	// A day that never comes has no next time: both are zero.
	interval := int64(second.Sub(first).Round(time.Second) / time.Second)
	if interval < 1 {
		return time.Time{}, 0, errInterval
	}
	// There may be millions of them. Intervals of the schedule need not be equal,
	// so the search starts one early, at a time that those of @every fall on too.
	missed := int64(now.Sub(first)/time.Second)/interval + 1
	var last time.Time
	for t := s.Next(first.Add(time.Duration((missed-2)*interval) * time.Second)); !t.IsZero() && !t.After(now); t = s.Next(t) {
		last = t
	}
	return last, missed, nil
}

// due is the time of the start that is to be made now, or zero, and whether too
// many starts were missed before it.
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

// next is how long it is until the start after the ones that are due.
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
