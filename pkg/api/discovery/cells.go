// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"strconv"

	discoveryv1 "k8s.io/api/discovery/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

const shown = 3

func endpointSliceCells(s *discoveryv1.EndpointSlice, env resource.CellEnv) []any {
	ports := make([]string, len(s.Ports))
	for i, p := range s.Ports {
		ports[i] = "*"
		if p.Port != nil {
			ports[i] = strconv.Itoa(int(*p.Port))
		} else if p.Name != nil {
			ports[i] = *p.Name
		}
	}
	var addresses []string
	for i := range s.Endpoints {
		addresses = append(addresses, s.Endpoints[i].Addresses...)
	}
	return []any{
		s.Name, string(s.AddressType), column.FewOrUnset(ports, shown), column.FewOrUnset(addresses, shown), env.Age(s.CreationTimestamp),
	}
}
