// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodes removes and fences nodes. It uses only the API, and etcd for control planes, so it works for
// machines that have failed.
//
// Remove takes these steps in this order:
//
//  1. Refuse to remove the machine of the only API server, and a member of etcd without which too few
//     members would run.
//  2. Cordon the node, and evict its pods with kubectl's library, which respects
//     PodDisruptionBudgets.
//  3. Remove the machine's member of etcd, if it has one.
//  4. Make all machines forget the API server of the machine, if it has one. Otherwise they would go on asking
//     it for its epoch, and give their cluster up for one that is restored on that machine.
//  5. Delete the node's certificate requests, also those that wait for approval. The controller
//     manager would approve a waiting request as soon as the Node is gone.
//  6. Delete the Node and the Machine.
//
// If there is no Node and the removal is forced, Remove takes only the third step.
//
// If a step fails, the later ones do not happen, and Remove can be called again. The package does not
// revoke certificates, which Kubernetes cannot do, and changes nothing on the machine itself.
//
// Fence and Unfence set and remove the marks of package restorehold.
package nodes

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubectl/pkg/drain"

	"keelson.dev/api/clock"
	"keelson.dev/api/machines/v1alpha1"
	"keelson.dev/keelson/pkg/machine/agent"
	"keelson.dev/keelson/pkg/nodeclaims"
)

// DrainTimeout is the default time limit for the eviction of a node's pods. It is finite because a
// PodDisruptionBudget can prevent an eviction forever.
const DrainTimeout = 5 * time.Minute

// notReadyLimit is how long a node must not have been ready until Remove does not wait for the end of
// its pods. By default, pods leave an unreachable node after the same time.
const notReadyLimit = 5 * time.Minute

// retryDelay is the time between two attempts to evict a pod, as in kubectl.
const retryDelay = 5 * time.Second

// Options are the dependencies and settings of Remove, Fence and Unfence.
type Options struct {
	Client kubernetes.Interface
	// Members is nil if the caller has no credentials for the cluster's etcd. Then control planes of a
	// cluster with several are not removed, unless that is forced.
	Members Members
	Clock   clock.Clock
	// Out receives progress messages, and ErrOut warnings about pods.
	Out, ErrOut io.Writer
	// Force removes the node without evicting its pods, and also if the cluster then stands still. It fences
	// a node that is ready.
	Force bool
	// DeleteEmptyDirData also evicts pods that lose data in volumes of the type emptyDir.
	DeleteEmptyDirData bool
	// Timeout limits the time for the eviction of pods. Zero means no limit.
	Timeout time.Duration
}

// Remove removes the node with a name from the cluster. The package comment describes the steps.
func Remove(ctx context.Context, name string, o Options) error {
	node, err := o.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return o.removeLost(ctx, name, err)
	}
	if err != nil {
		return err
	}
	if err := o.checkControlPlane(ctx, node); err != nil {
		return err
	}
	member, err := o.findMember(ctx, node)
	if err != nil {
		return err
	}
	uid := node.UID // RunCordonOrUncordon changes node
	if err := o.empty(ctx, node); err != nil {
		return err
	}
	if err := o.removeMember(ctx, member); err != nil {
		return err
	}
	if err := o.removeServer(ctx, node, member); err != nil {
		return err
	}
	if err := o.deleteRequests(ctx, name); err != nil {
		return err
	}
	err = o.Client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(uid)),
	})
	if err != nil {
		return err
	}
	if err := o.deleteMachine(ctx, name); err != nil {
		return err
	}
	fmt.Fprintf(o.Out, `node/%s deleted

Run "ctl reset" on the machine now. Until then, its containers may keep running, and its kubelet can
register the node again: deleting a node does not revoke its certificate.
`, name)
	return nil
}

// deleteMachine deletes the Machine of the node. Clusters that were not made by "ctl init" have none.
func (o *Options) deleteMachine(ctx context.Context, name string) error {
	err := o.Client.CoreV1().RESTClient().Delete().
		AbsPath("/apis", v1alpha1.Group, v1alpha1.Version, v1alpha1.Resource, name).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("machine %s: %w", name, err)
	}
	return nil
}

var (
	errOnlyControlPlane = errors.New("the only API server runs on this machine; without it, the cluster is lost " +
		"(use --force to remove the node anyway)")
	errUnknownServers = errors.New("the EndpointSlice default/kubernetes has no API server, so this may be the only " +
		"control plane (use --force to remove the node anyway)")
	errDrain = errors.New("the node is cordoned and was not removed; evict the remaining pods with \"ctl node drain\", " +
		"which has more flags, and run this command again, or use --force to give the pods up")
)

// checkControlPlane returns an error if the only API server runs on the machine of the node, unless the
// removal is forced.
func (o *Options) checkControlPlane(ctx context.Context, node *v1.Node) error {
	if o.Force {
		return nil
	}
	slice, err := o.apiServers(ctx)
	if err != nil {
		return err
	}
	return checkServers(slice, node)
}

// apiServers returns the EndpointSlice with the addresses of the API servers.
func (o *Options) apiServers(ctx context.Context) (*discoveryv1.EndpointSlice, error) {
	endpoints := o.Client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault)
	slice, err := endpoints.Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("API servers: %w", err)
	}
	return slice, nil
}

// checkServers returns an error if a node has the addresses of all API servers in an EndpointSlice.
func checkServers(slice *discoveryv1.EndpointSlice, node *v1.Node) error {
	servers := agent.ServersIn(slice)
	switch {
	case len(servers) == 0:
		return errUnknownServers
	case !slices.ContainsFunc(servers, func(server string) bool { return !hasAddress(node, server) }):
		return fmt.Errorf("node %s: %w", node.Name, errOnlyControlPlane)
	}
	return nil
}

// hasAddress reports whether the address of a server (IP:PORT) is one that a node has reported. The
// same IP address can be written in different ways.
func hasAddress(node *v1.Node, server string) bool {
	want, err := netip.ParseAddrPort(server)
	return err == nil && slices.ContainsFunc(node.Status.Addresses, func(a v1.NodeAddress) bool {
		got, err := netip.ParseAddr(a.Address)
		return err == nil && got == want.Addr()
	})
}

// empty cordons the node and evicts its pods, unless they are given up.
func (o *Options) empty(ctx context.Context, node *v1.Node) error {
	helper := &drain.Helper{
		Ctx: ctx, Client: o.Client, GracePeriodSeconds: -1, IgnoreAllDaemonSets: true, Timeout: o.Timeout,
		DeleteEmptyDirData: o.DeleteEmptyDirData, EvictErrorRetryDelay: retryDelay, Out: o.Out, ErrOut: o.ErrOut,
	}
	if err := drain.RunCordonOrUncordon(helper, node, true); err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "node/%s cordoned\n", node.Name)
	if why := o.giveUp(node); why != "" {
		fmt.Fprintf(o.Out, "The pods of node %s are not evicted, because %s. The cluster deletes them after the\n"+
			"Node, and controllers replace them, while their containers may still run on the machine.\n", node.Name, why)
		return nil
	}
	if err := drain.RunNodeDrain(helper, node.Name); err != nil {
		return fmt.Errorf("%w: %w", errDrain, err)
	}
	return nil
}

// giveUp returns why the pods of a node cannot or must not be evicted, or "".
func (o *Options) giveUp(node *v1.Node) string {
	if o.Force {
		return "of --force"
	}
	since := node.CreationTimestamp.Time
	if c := Readiness(node); c.Status != "" {
		since = c.LastTransitionTime.Time
	}
	if IsReady(node) || o.Clock.Since(since) < notReadyLimit {
		return ""
	}
	return "it has not been ready since " + since.UTC().Format(time.RFC3339)
}

// deleteRequests deletes the CertificateSigningRequests of the node.
func (o *Options) deleteRequests(ctx context.Context, name string) error {
	requests := o.Client.CertificatesV1().CertificateSigningRequests()
	list, err := requests.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("certificate requests: %w", err)
	}
	for i := range list.Items {
		r := &list.Items[i]
		if !isOf(r, name) {
			continue
		}
		if err := requests.Delete(ctx, r.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("certificate request %s: %w", r.Name, err)
		}
		fmt.Fprintf(o.Out, "certificatesigningrequest.certificates.k8s.io/%s deleted\n", r.Name)
	}
	return nil
}

// isOf reports whether a request was made by a node, or is for a certificate of the node's kubelet or
// proxy. Only signers of Kubernetes issue these certificates.
func isOf(r *certificatesv1.CertificateSigningRequest, node string) bool {
	if !strings.HasPrefix(r.Spec.SignerName, "kubernetes.io/") {
		return false
	}
	kubelet := "system:node:" + node
	if r.Spec.Username == kubelet {
		return true
	}
	block, _ := pem.Decode(r.Spec.Request)
	if block == nil {
		return false
	}
	req, err := x509.ParseCertificateRequest(block.Bytes)
	return err == nil && (req.Subject.CommonName == kubelet || req.Subject.CommonName == nodeclaims.ProxyUser(node))
}
