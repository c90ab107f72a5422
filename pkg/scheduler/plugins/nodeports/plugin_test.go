// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeports_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/scheduler/plugins/nodeports"
	"keelson.dev/keelson/pkg/scheduler/plugins/plugintest"
)

func port(ip string, protocol v1.Protocol, number int32) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, v1.ContainerPort{
			HostIP: ip, Protocol: protocol, HostPort: number, ContainerPort: 80,
		})
	}
}

func TestFilter(t *testing.T) {
	const taken = "~[node(s) didn't have free ports for the requested pod ports]"
	for name, tc := range map[string]struct {
		there, pod func(*v1.Pod)
		want       string
	}{
		"same port":                       {port("", v1.ProtocolTCP, 80), port("", v1.ProtocolTCP, 80), taken},
		"other port":                      {port("", v1.ProtocolTCP, 80), port("", v1.ProtocolTCP, 81), ""},
		"other protocol":                  {port("", v1.ProtocolUDP, 80), port("", v1.ProtocolTCP, 80), ""},
		"protocol defaults to TCP":        {port("", "", 80), port("", v1.ProtocolTCP, 80), taken},
		"same address":                    {port("192.0.2.1", "", 80), port("192.0.2.1", "", 80), taken},
		"other address":                   {port("192.0.2.1", "", 80), port("192.0.2.2", "", 80), ""},
		"one address, all are taken":      {port("0.0.0.0", "", 80), port("192.0.2.1", "", 80), taken},
		"all addresses, one is taken":     {port("192.0.2.1", "", 80), port("", "", 80), taken},
		"all addresses of IPv6 and IPv4":  {port("::", "", 80), port("0.0.0.0", "", 80), taken},
		"no host port":                    {port("", "", 80), port("", "", 0), ""},
		"all addresses, another protocol": {port("192.0.2.1", v1.ProtocolUDP, 80), port("", v1.ProtocolTCP, 80), ""},
	} {
		t.Run(name, func(t *testing.T) {
			view := plugintest.NewView([]*v1.Node{plugintest.Node("n")},
				plugintest.Pod("o", plugintest.On("n"), tc.there))
			if got := view.Reject(nodeports.New(), plugintest.Pod("p", tc.pod))["n"]; got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			view.RemovePod("o")
			if got := view.Reject(nodeports.New(), plugintest.Pod("p", tc.pod)); len(got) != 0 {
				t.Errorf("the port stays taken after the pod has left: %v", got)
			}
		})
	}
}
