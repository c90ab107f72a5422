// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package clock_test

import (
	"fmt"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"keelson.dev/api/clock"
)

// The function expired takes a Clock, so the time in this example can be virtual.
func Example() {
	expired := func(c clock.Clock, since time.Time) bool { return c.Since(since) >= time.Hour }

	fake := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	start := fake.Now()
	fmt.Println(expired(fake, start))
	fake.Step(time.Hour)
	fmt.Println(expired(fake, start))
	// Output:
	// false
	// true
}
