// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"testing"

	"keelson.dev/keelson/pkg/cluster"
)

func TestLocate(t *testing.T) {
	status := &cluster.Status{Supervisor: 7, Nodes: []cluster.NodeStatus{
		{Node: cluster.Node{Name: "n1"}, Pid: 8}, {Node: cluster.Node{Name: "n2"}},
	}}
	for name, c := range map[string]struct {
		address string
		pid     int
		to      string
		err     error
	}{
		"control plane":  {address: "127.0.0.1:10257", pid: 7, to: "127.0.0.1:10257"},
		"kubelet":        {address: "10.50.0.11:10250", pid: 7, to: "10.50.0.11:10250"},
		"kubelet, IPv6":  {address: "[fd50::11]:10250", pid: 7, to: "[fd50::11]:10250"},
		"node":           {address: "n1:10249", pid: 8, to: "127.0.0.1:10249"},
		"stopped node":   {address: "n2:10249", err: errDown},
		"unknown node":   {address: "n3:10249", err: errDown},
		"port of SSH":    {address: "n1:22", err: errPort},
		"port of an app": {address: "10.50.0.11:80", err: errPort},
	} {
		t.Run(name, func(t *testing.T) {
			pid, to, err := locate(status, c.address)
			if pid != c.pid || to != c.to || !errors.Is(err, c.err) {
				t.Errorf("%d %s %v, want %d %s %v", pid, to, err, c.pid, c.to, c.err)
			}
		})
	}
}
