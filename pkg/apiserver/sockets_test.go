// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"os"
	"strconv"
	"testing"
)

func TestInheritedSockets(t *testing.T) {
	for name, tc := range map[string]struct {
		env  map[string]string
		fail bool
	}{
		"none":            {nil, false},
		"another process": {map[string]string{"LISTEN_FDS": "1", "LISTEN_PID": strconv.Itoa(os.Getpid() + 1)}, false},
		"not a number":    {map[string]string{"LISTEN_FDS": "x"}, true},
		"negative":        {map[string]string{"LISTEN_FDS": "-1"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := inheritedSockets(func(k string) string { return tc.env[k] })
			if (err != nil) != tc.fail || len(got) > 0 {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}
