// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

func clockAt(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestDueAndNext(t *testing.T) {
	type want struct {
		due     string // "" for none
		tooMany bool
		next    time.Duration
		err     bool
	}
	for name, tc := range map[string]struct {
		schedule, zone     string
		created, last, now string
		deadline           *int64
		want               want
	}{
		"not yet": {"0 * * * *", "", "2026-01-01T10:10:00Z", "", "2026-01-01T10:50:00Z", nil,
			want{"", false, 10 * time.Minute, false}},
		"on time": {"0 * * * *", "", "2026-01-01T10:10:00Z", "", "2026-01-01T11:00:00Z", nil,
			want{"2026-01-01T11:00:00Z", false, time.Hour, false}},
		"since the last": {"0 * * * *", "", "2026-01-01T10:10:00Z", "2026-01-01T11:00:00Z",
			"2026-01-01T11:30:00Z", nil, want{"", false, 30 * time.Minute, false}},
		"only the latest": {"0 * * * *", "", "2026-01-01T10:10:00Z", "", "2026-01-01T14:30:00Z", nil,
			want{"2026-01-01T14:00:00Z", false, 30 * time.Minute, false}},
		"a hundred": {"* * * * *", "", "2026-01-01T10:00:00Z", "", "2026-01-01T11:40:30Z", nil,
			want{"2026-01-01T11:40:00Z", false, 30 * time.Second, false}},
		"too many": {"* * * * *", "", "2026-01-01T10:00:00Z", "", "2026-01-01T11:41:30Z", nil,
			want{"2026-01-01T11:41:00Z", true, 30 * time.Second, false}},
		"deadline hides many": {"* * * * *", "", "2026-01-01T10:00:00Z", "", "2026-01-02T10:00:30Z",
			ptr.To[int64](300), want{"2026-01-02T10:00:00Z", false, 30 * time.Second, false}},
		"deadline hides all": {"0 * * * *", "", "2026-01-01T10:10:00Z", "", "2026-01-01T11:10:00Z",
			ptr.To[int64](60), want{"", false, 50 * time.Minute, false}},
		"every": {"@every 90m", "", "2026-01-01T10:10:00Z", "", "2026-01-01T15:00:00Z", nil,
			want{"2026-01-01T14:40:00Z", false, 70 * time.Minute, false}},
		"uneven intervals": {"30 6-16/4 * * 1-5", "", "2026-01-02T14:31:00Z", "", "2026-01-05T07:00:00Z",
			nil, want{"2026-01-05T06:30:00Z", false, 210 * time.Minute, false}},
		"zone": {"0 12 * * *", "Asia/Tokyo", "2026-01-01T00:00:00Z", "", "2026-01-01T03:30:00Z",
			nil, want{"2026-01-01T03:00:00Z", false, 23*time.Hour + 30*time.Minute, false}},
		"summer time begins": {"30 1 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "",
			"2026-03-29T00:40:00Z", nil, want{"2026-03-29T00:30:00Z", false, 22*time.Hour + 50*time.Minute, false}},
		"never": {"59 23 31 2 *", "", "2026-01-01T00:00:00Z", "", "2026-01-02T00:00:00Z", nil, want{err: true}},
	} {
		t.Run(name, func(t *testing.T) {
			c := &batchv1.CronJob{Spec: batchv1.CronJobSpec{Schedule: tc.schedule, StartingDeadlineSeconds: tc.deadline}}
			c.CreationTimestamp = metav1.NewTime(clockAt(t, tc.created))
			if tc.zone != "" {
				c.Spec.TimeZone = &tc.zone
			}
			if tc.last != "" {
				c.Status.LastScheduleTime = &metav1.Time{Time: clockAt(t, tc.last)}
			}
			s, err := scheduleOf(c)
			if err != nil {
				t.Fatal(err)
			}
			now := clockAt(t, tc.now)
			at, tooMany, err := due(c, s, now)
			got := want{tooMany: tooMany, err: err != nil}
			if !at.IsZero() {
				got.due = at.UTC().Format(time.RFC3339)
			}
			if err == nil {
				got.next = next(c, s, now) - lateness
			}
			if got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

// TestLatest compares the result of latest, which estimates the last time if many starts were
// missed, with a search through all scheduled times.
func TestLatest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{"* * * * *", "*/7 * * * *", "15 */5 * * *", "30 6-16/4 * * 1-5",
			"0 0 1 * *", "@every 53s", "@every 1h1m", "@daily", "0 3 29 2 *"}).Draw(t, "schedule")
		s, err := scheduleOf(&batchv1.CronJob{Spec: batchv1.CronJobSpec{Schedule: text}})
		if err != nil {
			t.Fatal(err)
		}
		from := time.Unix(1_700_000_000+rapid.Int64Range(0, 100_000_000).Draw(t, "from"), 0).UTC()
		now := from.Add(time.Duration(rapid.Int64Range(0, 3_000_000).Draw(t, "elapsed")) * time.Second)
		var want time.Time
		n := int64(0)
		for at := s.Next(from); !at.After(now); at = s.Next(at) {
			want = at
			n++
		}
		got, missed, err := latest(s, from, now)
		if err != nil {
			t.Fatal(err)
		}
		// The result must be a scheduled time, or zero if no scheduled time is before now.
		if got.After(now) || !got.IsZero() && n == 0 || !got.IsZero() &&
			!s.Next(got.Add(-time.Second)).Equal(got) && text[0] != '@' {
			t.Fatalf("latest %v of %v missed", got, missed)
		}
		if even := text[0] == '@' || text[0] == '*'; even && text != "*/7 * * * *" && !got.Equal(want) {
			t.Fatalf("latest %v, want %v", got, want)
		}
	})
}
