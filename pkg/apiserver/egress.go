// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"

	apiserverapi "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/server/egressselector"
)

// checkEgress validates the egress selector configuration in file. An empty file name is valid. The
// server always connects directly, so a configuration that requires a proxy is rejected.
func checkEgress(file string) error {
	if file == "" {
		return nil
	}
	cfg, err := egressselector.ReadEgressSelectorConfiguration(file)
	if err != nil {
		return fmt.Errorf("failed to read egress selector config: %w", err)
	}
	if errs := egressselector.ValidateEgressSelectorConfiguration(cfg); len(errs) > 0 {
		return fmt.Errorf("failed to validate egress selector configuration: %w", errs.ToAggregate())
	}
	for _, s := range cfg.EgressSelections {
		if p := s.Connection.ProxyProtocol; p != apiserverapi.ProtocolDirect {
			return fmt.Errorf(
				"egress selection %q has proxyProtocol %s, which is not supported: connections are %s", s.Name,
				p, apiserverapi.ProtocolDirect)
		}
	}
	return nil
}
