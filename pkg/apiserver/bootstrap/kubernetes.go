// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store"
	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/services"
)

const (
	kubernetesService = "kubernetes"

	// startAttempts is how often Kubernetes.Start tries to write its objects. Attempts can fail because
	// other servers start at the same time. startRetry is the time between attempts.
	startAttempts = 4
	startRetry    = 500 * time.Millisecond
)

// Kubernetes maintains the service default/kubernetes and its endpoints, which are the addresses of
// the running servers. With config.EndpointsLease, each server writes a record of itself, which
// expires unless it is renewed, and the endpoints are the servers with a record.
type Kubernetes struct {
	Config     config.Endpoints
	Client     kubernetes.Interface
	Members    store.ReadWriter // records of the running servers; the key is the server's address
	Address    net.IP
	Port       int
	Ranges     []netip.Prefix
	Renew, TTL time.Duration
	Clock      clock.Clock
	Log        *slog.Logger
}

// Start creates the service, the server's record and the endpoints, so that they exist when the
// server becomes ready. If the service exists, Start resets its type and ports. After startAttempts
// failures, Start logs the error and returns, because as in Kubernetes a server becomes ready even if
// it cannot do this. For example, it cannot change the service if the service's address has a family
// that the server no longer has. Run tries again to create what is missing.
func (k Kubernetes) Start(ctx context.Context) {
	for attempt := 1; ctx.Err() == nil; attempt++ {
		err := errors.Join(k.service(ctx, true), k.publish(ctx))
		if err == nil {
			return
		}
		if attempt == startAttempts {
			k.Log.Error("Failed to update the Service default/kubernetes and its endpoints", "err", err)
			return
		}
		select {
		case <-ctx.Done():
		case <-k.Clock.After(startRetry):
		}
	}
}

// keep is like Start, but does not change an existing service.
func (k Kubernetes) keep(ctx context.Context) error {
	if err := k.service(ctx, false); err != nil {
		return err
	}
	return k.publish(ctx)
}

// silent reports whether this server must not write endpoints: by configuration, or because its
// address is a loopback address, to which clients on other machines cannot connect.
func (k Kubernetes) silent() bool {
	return k.Address.IsLoopback() || k.Config.Reconciler == config.EndpointsNone
}

func (k Kubernetes) publish(ctx context.Context) error {
	switch {
	case k.silent():
		return nil
	case k.Config.Reconciler == config.EndpointsMasterCount:
		return k.revise(ctx, func(published []string) []string {
			return counted(published, k.Address.String(), k.Config.Count)
		})
	}
	if err := k.enlist(ctx); err != nil {
		return err
	}
	return k.endpointsOfMembers(ctx)
}

// Run maintains the service, the record and the endpoints until ctx is done.
func (k Kubernetes) Run(ctx context.Context) {
	ticker := k.Clock.NewTicker(k.Renew)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			if err := k.keep(ctx); err != nil && ctx.Err() == nil {
				k.Log.Info("Failed to maintain the endpoints of the Service default/kubernetes", "err", err)
			}
		}
	}
}

// Leave removes this server from the endpoints of the kubernetes service.
func (k Kubernetes) Leave(ctx context.Context) error {
	switch {
	case k.silent():
		return nil
	case k.Config.Reconciler == config.EndpointsMasterCount:
		return k.revise(ctx, func(published []string) []string {
			return slices.DeleteFunc(published, func(a string) bool { return a == k.Address.String() })
		})
	}
	if _, err := k.Members.Delete(ctx, k.Address.String(), nil); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("server record: %w", err)
	}
	return k.endpointsOfMembers(ctx)
}

// service creates the service if it does not exist. If change is true, it resets the type and ports
// of an existing service.
func (k Kubernetes) service(ctx context.Context, change bool) error {
	kind := corev1.ServiceTypeClusterIP
	ports := []corev1.ServicePort{{
		Name: "https", Port: 443, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt(k.Port),
	}}
	if k.Config.NodePort > 0 {
		kind, ports[0].NodePort = corev1.ServiceTypeNodePort, int32(k.Config.NodePort)
	}
	api := k.Client.CoreV1().Services(metav1.NamespaceDefault)
	cur, err := api.Get(ctx, kubernetesService, metav1.GetOptions{})
	if err == nil && change && (cur.Spec.Type != kind || !equality.Semantic.DeepEqual(cur.Spec.Ports, ports)) {
		cur.Spec.Type, cur.Spec.Ports = kind, ports
		_, err = api.Update(ctx, cur, metav1.UpdateOptions{})
	}
	if !apierrors.IsNotFound(err) {
		return named("service", kubernetesService, err)
	}
	policy := corev1.IPFamilyPolicySingleStack
	ip := services.FirstIP(k.Ranges[0]).String()
	_, err = api.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: kubernetesService,
			Labels: map[string]string{"provider": "kubernetes", "component": "apiserver"},
		},
		Spec: corev1.ServiceSpec{
			Type: kind, ClusterIP: ip, IPFamilyPolicy: &policy,
			SessionAffinity: corev1.ServiceAffinityNone,
			Ports:           ports,
		},
	}, metav1.CreateOptions{})
	return named("service", kubernetesService, ignoreExists(err))
}

// enlist writes the record of this server in the store, by which the servers of the cluster find
// each other. Each write sets the record's lifetime to TTL again.
func (k Kubernetes) enlist(ctx context.Context) error {
	key := k.Address.String()
	record := func(generation int64) *corev1.Endpoints {
		return &corev1.Endpoints{
			ObjectMeta: metav1.ObjectMeta{Generation: generation},
			Subsets:    []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: key}}}},
		}
	}
	_, err := k.Members.Update(ctx, key, func(_ context.Context, cur *store.Record) (store.Object, error) {
		obj, err := cur.Object()
		if err != nil {
			return nil, err
		}
		return record(obj.GetGeneration() + 1), nil
	})
	if apierrors.IsNotFound(err) {
		_, err = k.Members.Create(ctx, key, record(1), int64(k.TTL.Seconds()))
	}
	return wrapped("server record", ignoreExists(err))
}

func wrapped(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// members returns the addresses of the running servers, sorted.
func (k Kubernetes) members(ctx context.Context) ([]string, error) {
	page, err := k.Members.List(ctx, store.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("server records: %w", err)
	}
	var out []string
	for _, rec := range page.Records {
		out = append(out, rec.Key)
	}
	slices.Sort(out)
	return out, nil
}

// revise replaces the addresses in the endpoints of the kubernetes service by the result of change.
func (k Kubernetes) revise(ctx context.Context, change func(published []string) []string) error {
	cur, err := k.Client.CoreV1().Endpoints(metav1.NamespaceDefault).Get(ctx, kubernetesService, metav1.GetOptions{})
	if ignoreNotFound(err) != nil {
		return wrapped("endpoints", err)
	}
	var published []string
	if err == nil {
		for _, s := range cur.Subsets {
			for _, a := range s.Addresses {
				published = append(published, a.IP)
			}
		}
	}
	return k.endpoints(ctx, change(published))
}

// counted adds the server's own address to the sorted addresses, and removes others until at most
// count are left. It first removes the addresses that follow the own one. After the last address,
// it continues with the first.
func counted(addresses []string, own string, count int) []string {
	if !slices.Contains(addresses, own) {
		addresses = append(addresses, own)
		slices.Sort(addresses)
	}
	for len(addresses) > max(1, count) {
		i := (slices.Index(addresses, own) + 1) % len(addresses)
		addresses = slices.Delete(addresses, i, i+1)
	}
	return addresses
}

func (k Kubernetes) endpointsOfMembers(ctx context.Context) error {
	members, err := k.members(ctx)
	if err != nil {
		return err
	}
	return k.endpoints(ctx, members)
}

func (k Kubernetes) endpoints(ctx context.Context, members []string) error {
	var v4, v6 []string
	for _, m := range members {
		ip, err := netip.ParseAddr(m)
		switch {
		case err != nil:
		case ip.Is4():
			v4 = append(v4, m)
		default:
			v6 = append(v6, m)
		}
	}
	addresses, family := v4, discoveryv1.AddressTypeIPv4
	if len(v4) == 0 && len(v6) > 0 {
		addresses, family = v6, discoveryv1.AddressTypeIPv6
	}
	return errors.Join(k.legacyEndpoints(ctx, addresses), k.slice(ctx, family, addresses))
}

func (k Kubernetes) legacyEndpoints(ctx context.Context, addresses []string) error {
	want := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{
		Namespace: metav1.NamespaceDefault, Name: kubernetesService,
		Labels: map[string]string{discoveryv1.LabelSkipMirror: "true"},
	}}
	if len(addresses) > 0 {
		subset := corev1.EndpointSubset{
			Ports: []corev1.EndpointPort{{Name: "https", Port: int32(k.Port), Protocol: corev1.ProtocolTCP}}}
		for _, a := range addresses {
			subset.Addresses = append(subset.Addresses, corev1.EndpointAddress{IP: a})
		}
		want.Subsets = []corev1.EndpointSubset{subset}
	}
	// Endpoints are deprecated, but clients still read them, so write both.
	api := k.Client.CoreV1().Endpoints(metav1.NamespaceDefault)
	cur, err := api.Get(ctx, kubernetesService, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = api.Create(ctx, want, metav1.CreateOptions{})
		return wrapped("endpoints", ignoreExists(err))
	}
	if err != nil || (equality.Semantic.DeepEqual(cur.Subsets, want.Subsets) &&
		cur.Labels[discoveryv1.LabelSkipMirror] == "true") {
		return wrapped("endpoints", err)
	}
	cur.Subsets = want.Subsets
	metav1.SetMetaDataLabel(&cur.ObjectMeta, discoveryv1.LabelSkipMirror, "true")
	_, err = api.Update(ctx, cur, metav1.UpdateOptions{})
	return wrapped("endpoints", err)
}

func (k Kubernetes) slice(ctx context.Context, family discoveryv1.AddressType, addresses []string) error {
	want := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: kubernetesService,
			Labels: map[string]string{discoveryv1.LabelServiceName: kubernetesService},
		},
		AddressType: family,
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To(int32(k.Port)),
			Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	for _, a := range addresses {
		want.Endpoints = append(want.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
		})
	}
	api := k.Client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault)
	cur, err := api.Get(ctx, kubernetesService, metav1.GetOptions{})
	// The family of a slice cannot be changed, so replace the slice if it must contain addresses
	// of another family.
	if err == nil && cur.AddressType != family && len(addresses) > 0 {
		if err := api.Delete(ctx, kubernetesService, metav1.DeleteOptions{}); err != nil {
			return wrapped("endpoint slice", err)
		}
		_, err = api.Create(ctx, want, metav1.CreateOptions{})
		return wrapped("endpoint slice", err)
	}
	if apierrors.IsNotFound(err) {
		_, err = api.Create(ctx, want, metav1.CreateOptions{})
		return wrapped("endpoint slice", ignoreExists(err))
	}
	if err != nil || (equality.Semantic.DeepEqual(cur.Endpoints, want.Endpoints) &&
		equality.Semantic.DeepEqual(cur.Ports, want.Ports)) {
		return wrapped("endpoint slice", err)
	}
	cur.Endpoints, cur.Ports = want.Endpoints, want.Ports
	_, err = api.Update(ctx, cur, metav1.UpdateOptions{})
	return wrapped("endpoint slice", err)
}
