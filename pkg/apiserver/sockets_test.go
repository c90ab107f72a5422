// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net"
	"os"
	"strconv"
	"testing"

	"keelson.dev/keelson/pkg/apiserver/config"
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

// TestSharedPort checks that two listeners can share a port if both set SO_REUSEPORT.
func TestSharedPort(t *testing.T) {
	listen := func(address string, cfg config.Serving) (net.Listener, error) {
		lc := net.ListenConfig{Control: shareSocket(&cfg)}
		return lc.Listen(t.Context(), "tcp", address)
	}
	shared := config.Serving{PermitAddressSharing: true, PermitPortSharing: true}
	first, err := listen("127.0.0.1:0", shared)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := listen(first.Addr().String(), shared)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if third, err := listen(first.Addr().String(), config.Serving{}); err == nil {
		third.Close()
		t.Error("one that does not permit it listens as well")
	}
}
