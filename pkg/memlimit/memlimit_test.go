// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package memlimit

import (
	"errors"
	"math"
	"testing"
)

func TestSettings(t *testing.T) {
	const mb = 1 << 20
	for name, test := range map[string]struct {
		environment map[string]string
		cgroup      uint64 // memory limit of the cgroup in bytes; 0 means no limit
		gcPercent   int
		memoryLimit int64
	}{
		"nothing set":       {nil, 0, 50, unset},
		"cgroup limit":      {nil, 100 * mb, 50, 90 * mb},
		"GOGC set":          {map[string]string{"GOGC": "100"}, 100 * mb, unset, 90 * mb},
		"GOGC set to empty": {map[string]string{"GOGC": ""}, 0, unset, unset},
		"GOMEMLIMIT set":    {map[string]string{"GOMEMLIMIT": "1GiB"}, 100 * mb, 50, unset},
		"both set":          {map[string]string{"GOGC": "off", "GOMEMLIMIT": "1GiB"}, 100 * mb, unset, unset},
		"huge cgroup limit": {nil, 1 << 63, 50, math.MaxInt64 / 10 * 9},
	} {
		t.Run(name, func(t *testing.T) {
			lookupEnv := func(key string) (string, bool) {
				value, set := test.environment[key]
				return value, set
			}
			cgroupLimit := func() (uint64, error) {
				if test.cgroup == 0 {
					return 0, errors.New("no limit")
				}
				return test.cgroup, nil
			}
			gcPercent, memoryLimit := Profile(50).settings(lookupEnv, cgroupLimit)
			if gcPercent != test.gcPercent || memoryLimit != test.memoryLimit {
				t.Errorf("got GOGC %d and limit %d; want %d and %d", gcPercent, memoryLimit, test.gcPercent, test.memoryLimit)
			}
		})
	}
}
