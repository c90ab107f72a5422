// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// RemovedServers is an annotation of the EndpointSlice default/kubernetes. It has the IP addresses of API servers that
// were removed from the cluster, separated by commas, the latest last. API servers that update the endpoints keep it.
const RemovedServers = "machines.keelson.dev/removed-servers"

// maxRemoved is how many addresses of removed servers a cluster keeps. Machines remember fewer earlier servers.
const maxRemoved = 2 * maxFormer

// removedIn returns the addresses of the servers that were removed, and are not in the EndpointSlice.
func removedIn(s *discoveryv1.EndpointSlice) []string {
	servers := ServersIn(s)
	return slices.DeleteFunc(annotated(s), func(address string) bool { return hasHost(servers, address) })
}

func annotated(s *discoveryv1.EndpointSlice) []string {
	return strings.FieldsFunc(s.Annotations[RemovedServers], func(r rune) bool { return r == ',' })
}

// hasHost reports whether one of the servers, which are HOST:PORT, has an address.
func hasHost(servers []string, address string) bool {
	want, err := netip.ParseAddr(address)
	return err == nil && slices.ContainsFunc(servers, func(s string) bool {
		at, err := netip.ParseAddrPort(s)
		return err == nil && at.Addr().Unmap() == want.Unmap()
	})
}

// RemoveServers makes all machines forget the API servers at IP addresses, as soon as they are not among the
// endpoints any more.
func RemoveServers(ctx context.Context, client kubernetes.Interface, addresses []string) error {
	return changeRemoved(ctx, client, func(removed []string) []string {
		removed = append(without(removed, addresses), addresses...)
		return removed[max(len(removed)-maxRemoved, 0):]
	})
}

// ReadmitServers makes machines remember the API servers at IP addresses again.
func ReadmitServers(ctx context.Context, client kubernetes.Interface, addresses []string) error {
	return changeRemoved(ctx, client, func(removed []string) []string { return without(removed, addresses) })
}

func without(list, items []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(items, s) })
}

// changeRemoved changes the list of removed servers. It does nothing if the cluster has no EndpointSlice of API
// servers.
func changeRemoved(ctx context.Context, client kubernetes.Interface, change func([]string) []string) error {
	api := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault)
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		s, err := api.Get(ctx, apiService, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		before := annotated(s)
		after := change(before)
		if slices.Equal(before, after) {
			return nil
		}
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, RemovedServers, strings.Join(after, ","))
		_, err = api.Update(ctx, s, metav1.UpdateOptions{})
		return err
	})
}
