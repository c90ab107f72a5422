// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"strings"
	"testing"
)

// TestNodeIP checks which values of --node-ip the kubelet accepts: one address, or one of each
// family, as Kubernetes does. All other values must end the process at its start.
func TestNodeIP(t *testing.T) {
	const pair = "must contain either a single IP or a dual-stack pair of IPs"
	for text, c := range map[string]struct{ want, err string }{
		"10.0.0.1":                   {want: "10.0.0.1"},
		"fd00::1":                    {want: "fd00::1"},
		"10.0.0.1,fd00::1":           {want: "10.0.0.1 fd00::1"},
		"fd00::1, 10.0.0.1":          {want: "fd00::1 10.0.0.1"},
		"::ffff:10.0.0.1":            {want: "10.0.0.1"},
		"":                           {err: "is required"},
		"10.0.0.1,10.0.0.2":          {err: pair},
		"fd00::1,fd00::2":            {err: pair},
		"10.0.0.1,10.0.0.1":          {err: pair},
		"10.0.0.1,::ffff:10.0.0.2":   {err: pair},
		"10.0.0.1,fd00::1,10.0.0.2":  {err: pair},
		"10.0.0.1,":                  {err: "could not parse"},
		"node":                       {err: "could not parse"},
		"fd00::1%eth0":               {err: "could not parse"},
		"127.0.0.1":                  {err: "can't be loopback address"},
		"::1":                        {err: "can't be loopback address"},
		"224.0.0.1":                  {err: "can't be a multicast address"},
		"169.254.0.1":                {err: "can't be a link-local unicast address"},
		"0.0.0.0":                    {err: "can't be an all zeros address"},
		"10.0.0.1,::":                {err: "dual-stack node IP cannot include '0.0.0.0' or '::'"},
		"::ffff:127.0.0.1,fd00::1":   {err: "can't be loopback address"},
		"10.0.0.1,fe80::1":           {err: "can't be a link-local unicast address"},
		"10.0.0.1,ff02::1":           {err: "can't be a multicast address"},
		"10.0.0.1 ,2001:db8:0:0::10": {want: "10.0.0.1 2001:db8::10"},
	} {
		got, err := addresses(text)
		if c.err == "" {
			if strings.Join(got, " ") != c.want || err != nil {
				t.Errorf("%q: got %q, %v; want %q", text, got, err, c.want)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), "--node-ip") {
			t.Errorf("%q: got %q, %v; want an error about --node-ip with %q", text, got, err, c.err)
		}
	}
	// The error must come before the kubelet reads or writes anything, such as its --root-dir.
	args := []string{"--node-ip=10.0.0.1,10.0.0.2", "--root-dir=/dev/null/x"}
	if err := Run(context.Background(), args, t.Output()); err == nil || !strings.Contains(err.Error(), pair) {
		t.Errorf("got %v, want an error with %q", err, pair)
	}
}
