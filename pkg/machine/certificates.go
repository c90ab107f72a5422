// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"os"
	"time"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/provision"
)

// renewalInterval is how often the agent looks for certificates that expire soon.
const renewalInterval = 12 * time.Hour

// keepCertificates renews the certificates of this machine's control plane in time, until ctx ends.
// Programs read renewed files by themselves. Kubelets and the agent request the other certificates
// from the cluster.
func keepCertificates(ctx context.Context, d Deps) {
	for {
		if err := renewCertificates(d.Clock); err != nil {
			d.Log.Error("Failed to renew certificates", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-d.Clock.After(renewalInterval):
		}
	}
}

// renewCertificates renews certificates that expire soon if this machine has a control plane.
func renewCertificates(clk clock.Clock) error {
	if _, err := os.Stat(argsFile(provision.APIServer)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	_, p, err := installedControlPlane()
	if err != nil {
		return err
	}
	return p.Renew(clk)
}
