// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"keelson.dev/api/clock"
)

const (
	identityLabel    = "apiserver.kubernetes.io/identity"
	identityServer   = "kube-apiserver"
	identityRenew    = 10 * time.Second
	identityDuration = time.Hour
)

// Identity maintains the Lease of this server in kube-system. Clients can count servers by their
// leases. Identity also deletes the leases of servers that no longer renew them.
type Identity struct {
	client  kubernetes.Interface
	address string // address at which other servers can connect to this one
	clock   clock.Clock
	log     *slog.Logger

	name, host, holder string
}

// NewIdentity returns the identity of the server at address. The name of the lease depends only on
// the host name and address, so a restarted server uses the same lease, with a new holder identity.
func NewIdentity(client kubernetes.Interface, address string, clk clock.Clock, log *slog.Logger) (*Identity, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("server identity: %w", err)
	}
	sum := sha256.Sum256([]byte(host + "/" + address))
	name := "apiserver-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16]))
	return &Identity{
		client: client, address: address, clock: clk, log: log,
		name: name, host: host, holder: name + "_" + string(uuid.NewUUID()),
	}, nil
}

// Renew creates the lease, or renews it.
func (i *Identity) Renew(ctx context.Context) error {
	api := i.client.CoordinationV1().Leases(metav1.NamespaceSystem)
	lease, err := api.Get(ctx, i.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: i.name}}
		i.describe(lease)
		_, err = api.Create(ctx, lease, metav1.CreateOptions{})
		return named("lease", i.name, err)
	}
	if err != nil {
		return named("lease", i.name, err)
	}
	i.describe(lease)
	_, err = api.Update(ctx, lease, metav1.UpdateOptions{})
	return named("lease", i.name, err)
}

func (i *Identity) describe(lease *coordinationv1.Lease) {
	for key, value := range map[string]string{identityLabel: identityServer, corev1.LabelHostname: i.host} {
		metav1.SetMetaDataLabel(&lease.ObjectMeta, key, value)
	}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, corev1.AnnotationPeerAdvertiseAddress, i.address)
	lease.Spec = coordinationv1.LeaseSpec{
		HolderIdentity:       ptr.To(i.holder),
		LeaseDurationSeconds: ptr.To(int32(identityDuration.Seconds())),
		RenewTime:            ptr.To(metav1.NewMicroTime(i.clock.Now())),
	}
}

// Run renews the lease until ctx is done.
func (i *Identity) Run(ctx context.Context) {
	renew, clean := i.clock.NewTicker(identityRenew), i.clock.NewTicker(identityDuration)
	defer renew.Stop()
	defer clean.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-renew.C():
			err = i.Renew(ctx)
		case <-clean.C():
			err = i.clean(ctx)
		}
		if err != nil && ctx.Err() == nil {
			i.log.Info("Failed to maintain the Lease of this API server", "err", err)
		}
	}
}

// clean deletes the leases of servers that have not renewed them.
func (i *Identity) clean(ctx context.Context) error {
	api := i.client.CoordinationV1().Leases(metav1.NamespaceSystem)
	leases, err := api.List(ctx, metav1.ListOptions{LabelSelector: identityLabel + "=" + identityServer})
	if err != nil {
		return fmt.Errorf("list leases of servers: %w", err)
	}
	var failed []error
	for n := range leases.Items {
		lease := &leases.Items[n]
		if !expired(lease, i.clock.Now()) {
			continue
		}
		err := api.Delete(ctx, lease.Name, metav1.DeleteOptions{
			// do not delete the lease if it was renewed in the meantime
			Preconditions: &metav1.Preconditions{ResourceVersion: &lease.ResourceVersion},
		})
		if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			failed = append(failed, named("lease", lease.Name, err))
		}
	}
	return errors.Join(failed...)
}

// expired reports whether a lease has expired. A lease without a renewal time or duration has
// expired.
func expired(lease *coordinationv1.Lease, now time.Time) bool {
	s := lease.Spec
	if s.RenewTime == nil || s.LeaseDurationSeconds == nil {
		return true
	}
	return s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds) * time.Second).Before(now)
}
