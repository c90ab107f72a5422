// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/pki"
	"keelson.dev/keelson/pkg/provision"
)

const (
	// warningTime is how long before a certificate expires the agent begins to warn.
	warningTime = 30 * 24 * time.Hour
	// warningInterval is how often the agent warns.
	warningInterval = 24 * time.Hour
)

// expiring returns those certificates of a list that expire soon, although they should have been renewed
// already. Certificates with a short lifetime are renewed later than a month before they expire.
func expiring(list []provision.Certificate) (out []provision.Certificate) {
	for _, c := range list {
		if !c.Expires.IsZero() && c.Left < warningTime && pki.DueIn(c.Left, c.Life) {
			out = append(out, c)
		}
	}
	return out
}

// warning says what an operator must do about a certificate that expires soon.
func warning(c provision.Certificate) string {
	remedy := "its renewal by the " + c.Renewal + " has failed; see its log, or run \"ctl certs renew\" on the machine"
	if c.Authority {
		remedy = "replace the authority by running \"ctl certs rotate-ca\" on a control plane"
	}
	when := fmt.Sprintf("expires in %d days", int(c.Left.Hours()/24))
	if c.Left < 0 {
		when = "has expired"
	}
	return fmt.Sprintf("The certificate %s (%s) %s: %s.", c.File, c.Subject, when, remedy)
}

// warn logs each certificate that expires soon, and records an event about the Node.
func (a *Agent) warn(ctx context.Context) error {
	machine, err := a.Machine()
	if err != nil {
		return err
	}
	now, name := a.Clock.Now(), machine.Node.Name
	list, err := machine.List(now)
	if err != nil {
		return err
	}
	for _, c := range expiring(list) {
		a.Log.Warn("A certificate expires soon", "file", c.File, "subject", c.Subject, "expires", c.Expires,
			"renewedBy", c.Renewal)
		_, err := a.Client.CoreV1().Events(metav1.NamespaceDefault).Create(ctx, &v1.Event{
			ObjectMeta:     metav1.ObjectMeta{GenerateName: name + ".certificate."},
			InvolvedObject: v1.ObjectReference{Kind: "Node", Name: name, UID: types.UID(name), APIVersion: "v1"},
			Type:           v1.EventTypeWarning, Reason: "CertificateExpiring", Message: warning(c), Count: 1,
			FirstTimestamp: metav1.NewTime(now), LastTimestamp: metav1.NewTime(now),
			Source: v1.EventSource{Component: "keelson-agent", Host: name},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("event: %w", err)
		}
	}
	return nil
}

// keepWarning warns about certificates that expire soon until ctx ends.
func (a *Agent) keepWarning(ctx context.Context) {
	for {
		if err := a.warn(ctx); err != nil && ctx.Err() == nil {
			a.Log.Error("Failed to check when certificates expire", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-a.Clock.After(warningInterval):
		}
	}
}
