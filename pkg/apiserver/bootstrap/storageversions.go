// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"errors"
	"slices"

	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/apiserverinternal"
)

// StorageVersions publishes the API versions in which this server stores objects, in one
// StorageVersion object per resource. Before an upgrade removes a version, operators can check in
// these objects that no server uses it any more.
type StorageVersions struct {
	identity *Identity
	rows     []*resource.Row
}

// NewStorageVersions returns the StorageVersions of the resources in rows for the server with the
// given identity.
func NewStorageVersions(identity *Identity, rows []*resource.Row) *StorageVersions {
	return &StorageVersions{identity, rows}
}

// Publish writes the StorageVersion objects that are outdated. The server's lease must exist,
// because the garbage collector removes the entries of servers without a lease.
func (s *StorageVersions) Publish(ctx context.Context) error {
	if _, err := s.identity.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, s.identity.name,
		metav1.GetOptions{}); err != nil {
		return named("lease", s.identity.name, err)
	}
	var errs []error
	for _, row := range stored(s.rows) {
		errs = append(errs, s.publish(ctx, row))
	}
	return errors.Join(errs...)
}

// stored returns the rows of the kind table whose objects are stored. If several rows share a
// prefix of keys, it returns the first of them.
func stored(rows []*resource.Row) []*resource.Row {
	var out []*resource.Row
	places := map[string]bool{}
	for _, row := range rows {
		if row.Ephemeral || row.Computed || places[row.StoragePrefix] {
			continue
		}
		places[row.StoragePrefix] = true
		out = append(out, row)
	}
	return out
}

func (s *StorageVersions) publish(ctx context.Context, row *resource.Row) error {
	group := row.Group
	if group == "" {
		group = "core"
	}
	name := group + "." + row.Resource
	api := s.identity.client.InternalV1alpha1().StorageVersions()
	v, err := api.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		v, err = api.Create(ctx,
			&apiserverinternalv1alpha1.StorageVersion{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	}
	if err != nil {
		return named("storage version", name, err)
	}
	own := s.own(row)
	at := slices.IndexFunc(v.Status.StorageVersions, func(o apiserverinternalv1alpha1.ServerStorageVersion) bool {
		return o.APIServerID == own.APIServerID
	})
	switch {
	case at < 0:
		v.Status.StorageVersions = append(v.Status.StorageVersions, own)
	case equality.Semantic.DeepEqual(v.Status.StorageVersions[at], own):
		return nil
	default:
		v.Status.StorageVersions[at] = own
	}
	apiserverinternal.Agree(v, s.identity.clock.Now())
	_, err = api.UpdateStatus(ctx, v, metav1.UpdateOptions{})
	return named("storage version", name, err)
}

// own returns this server's entry in the StorageVersion object of a resource.
func (s *StorageVersions) own(row *resource.Row) apiserverinternalv1alpha1.ServerStorageVersion {
	as := row.StoredAs
	if as.Empty() {
		as = row.GroupVersionKind()
	}
	own := apiserverinternalv1alpha1.ServerStorageVersion{APIServerID: s.identity.name,
		EncodingVersion: as.GroupVersion().String()}
	for _, v := range row.Versions {
		own.ServedVersions = append(own.ServedVersions, schema.GroupVersion{Group: row.Group, Version: v.Name}.String())
	}
	own.DecodableVersions = own.ServedVersions
	if !slices.Contains(own.DecodableVersions, own.EncodingVersion) {
		own.DecodableVersions = append(slices.Clone(own.DecodableVersions), own.EncodingVersion)
	}
	return own
}
