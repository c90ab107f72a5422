// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"reflect"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/api/networking/hosts"
)

const (
	// refusedReason is the reason of the event on an Ingress with hosts that belong to another
	// namespace.
	refusedReason = "HostOwnedByAnotherNamespace"
	component     = "ingress"
	namedHosts    = 10 // maximum number of hosts in the message of an event
)

// report is the input for writing the status and the events of Ingresses.
type report struct {
	ingresses []*networkingv1.Ingress
	table     *Table
}

// report writes status and events. It runs in a goroutine of its own, because a tenant can cause
// many of these writes, and they must not delay the building of routing tables.
func (c *Controller) report(ctx context.Context) {
	written := map[types.UID]string{} // last event message that was written for each Ingress
	var r report
	var retry <-chan time.Time // fires if a status of r could not be written
	delay := firstRetry
	for {
		select {
		case <-ctx.Done():
			return
		case r = <-c.reports:
		case <-retry:
		}
		if c.writeReport(ctx, r, written) {
			retry, delay = nil, firstRetry
			continue
		}
		retry = c.clock.After(delay)
		delay = min(2*delay, lastRetry)
	}
}

// writeReport writes the status and the events of all Ingresses, and updates the argument written. It
// reports whether it could write the status of each of them.
func (c *Controller) writeReport(ctx context.Context, r report, written map[types.UID]string) bool {
	ok, there := true, make(map[types.UID]bool, len(r.ingresses))
	for _, ing := range r.ingresses {
		there[ing.UID] = true
		refused := r.table.Refused(ing)
		if err := c.writeStatus(ctx, ing, len(refused) < len(hosts.Names(ing))); err != nil && ctx.Err() == nil {
			c.log.Warn("Failed to write the status of an Ingress", "ingress", ing.Namespace+"/"+ing.Name, "err", err)
			ok = false
		}
		message := refusal(refused)
		if written[ing.UID] == message {
			continue
		}
		if err := c.writeEvent(ctx, ing, message); err != nil && ctx.Err() == nil {
			c.log.Warn("Failed to write an event of an Ingress", "ingress", ing.Namespace+"/"+ing.Name, "err", err)
		}
		written[ing.UID] = message
	}
	for uid := range written {
		if !there[uid] {
			delete(written, uid)
		}
	}
	return ok
}

// refusal returns the event message about refused hosts, or "" without refused hosts. It does not
// name the namespace that owns them, because tenants need not learn about each other.
func refusal(names []string) string {
	var texts []string
	for _, host := range names[:min(len(names), namedHosts)] {
		switch {
		case host == "":
			texts = append(texts, "rules without a host and the default backend are used for hosts of this namespace only")
		default:
			texts = append(texts, fmt.Sprintf("rules and certificates for %q are not used", host))
		}
	}
	if more := len(names) - namedHosts; more > 0 {
		texts = append(texts, fmt.Sprintf("%d more hosts are not used", more))
	}
	if len(texts) == 0 {
		return ""
	}
	return "Another namespace has an older Ingress: " + strings.Join(texts, "; ")
}

// writeEvent writes an event. The event's name is derived from the Ingress and the message, so that
// several replicas of the proxy create it only once.
func (c *Controller) writeEvent(ctx context.Context, ing *networkingv1.Ingress, message string) error {
	if message == "" {
		return nil
	}
	hash := fnv.New64a()
	_, _ = fmt.Fprint(hash, ing.UID, message) // writing to a hash never fails
	now := metav1.NewTime(c.clock.Now())
	_, err := c.client.CoreV1().Events(ing.Namespace).Create(ctx, &v1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: ing.Namespace, Name: ing.Name + "." + hex.EncodeToString(hash.Sum(nil))},
		InvolvedObject: v1.ObjectReference{
			APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "Ingress", Namespace: ing.Namespace,
			Name: ing.Name, UID: ing.UID, ResourceVersion: ing.ResourceVersion,
		},
		Type: v1.EventTypeWarning, Reason: refusedReason, Message: message,
		Source: v1.EventSource{Component: component}, ReportingController: component,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) ||
		apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}

// writeStatus writes the addresses at which an Ingress is served into its status, if they have
// changed. If the argument served is false, the status gets no addresses.
func (c *Controller) writeStatus(ctx context.Context, ing *networkingv1.Ingress, served bool) error {
	at := []networkingv1.IngressLoadBalancerIngress{}
	if s := c.service(c.publish.Namespace, c.publish.Name); s != nil && served {
		for _, i := range s.Status.LoadBalancer.Ingress {
			at = append(at, networkingv1.IngressLoadBalancerIngress{IP: i.IP, Hostname: i.Hostname})
		}
	}
	has := ing.Status.LoadBalancer.Ingress
	if len(at) == 0 && len(has) == 0 || reflect.DeepEqual(at, has) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": ing.UID},
		"status":   map[string]any{"loadBalancer": map[string]any{"ingress": at}},
	})
	if err != nil {
		return fmt.Errorf("patch: %w", err)
	}
	_, err = c.client.NetworkingV1().Ingresses(ing.Namespace).Patch(ctx, ing.Name, types.MergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
