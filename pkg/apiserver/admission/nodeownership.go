// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/keelson/pkg/apiserver/nodeauth"
	"keelson.dev/keelson/pkg/nodeclaims"
)

// nodeOwnership rejects writes by which a node claims addresses and other things that are not its
// own. Kubernetes' NodeRestriction lets a node write most fields of its own Node. Other components
// trust these fields: they route packets to pod ranges and connect to addresses.
//
// When a node writes its own Node, the plugin rejects:
//   - pod ranges, because the cluster allocates them and no kubelet sets them;
//   - names and addresses of the API server and of services, and loopback and similar addresses;
//   - addresses outside --node-address-ranges, and names and addresses of other nodes;
//   - changes of finalizers, and owners at creation, by which the node could block its own
//     deletion;
//   - making itself schedulable after an administrator has cordoned it.
type nodeOwnership struct {
	*admission.Handler
	client   kubernetes.Interface
	reserved nodeclaims.Reserved
	ranges   []netip.Prefix
}

func newNodeOwnership(deps Deps) (admission.Interface, error) {
	return &nodeOwnership{admission.NewHandler(admission.Create, admission.Update), deps.Client, deps.Reserved,
		deps.NodeAddresses}, nil
}

// Validate implements admission.ValidationInterface.
func (p *nodeOwnership) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	name, isNode := nodeauth.Identity(a.GetUserInfo())
	n, ok := a.GetObject().(*corev1.Node)
	if !isNode || !ok || a.GetResource().GroupResource() != corev1.Resource("nodes") {
		return nil
	}
	old, _ := a.GetOldObject().(*corev1.Node)
	if old == nil {
		// A kubelet tries to create its Node at each start. If the Node exists, the request fails by
		// itself, and what an administrator has written into the Node is not a claim of the kubelet.
		if _, err := p.client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{}); err == nil {
			return nil
		}
		if why := p.reserved.Name(n.Name); why != "" {
			return forbid(a, "the name %q is not allowed for a node: %s", n.Name, why)
		}
		if len(n.OwnerReferences) > 0 {
			return forbid(a, "node %q is not allowed to set ownerReferences", name)
		}
		old = &corev1.Node{}
	}
	switch {
	case n.Spec.PodCIDR != old.Spec.PodCIDR || !slices.Equal(n.Spec.PodCIDRs, old.Spec.PodCIDRs):
		return forbid(a, "node %q is not allowed to set podCIDR or podCIDRs: the cluster allocates them", name)
	case !equality.Semantic.DeepEqual(n.Finalizers, old.Finalizers):
		return forbid(a, "node %q is not allowed to modify finalizers", name)
	case old.Spec.Unschedulable && !n.Spec.Unschedulable:
		return forbid(a, "node %q is not allowed to end its cordon", name)
	}
	if why, err := p.addresses(ctx, n, old); why != "" || err != nil {
		if err != nil {
			return admission.NewForbidden(a, err)
		}
		return forbid(a, "node %q is not allowed to report %s", name, why)
	}
	return nil
}

// addresses returns why n may not report one of the addresses that it has and old does not. It
// returns "" if n may report all of them.
func (p *nodeOwnership) addresses(ctx context.Context, n, old *corev1.Node) (string, error) {
	var fresh []corev1.NodeAddress
	for _, a := range n.Status.Addresses {
		if !slices.Contains(old.Status.Addresses, a) {
			fresh = append(fresh, a)
		}
	}
	if len(fresh) == 0 {
		return "", nil
	}
	if why := repeated(n.Status.Addresses); why != "" {
		return why, nil
	}
	for _, a := range fresh {
		if why := p.refuse(a); why != "" {
			return fmt.Sprintf("the address %s: %s", a.Address, why), nil
		}
	}
	// Read from the store and not from an informer, because two nodes may register at the same time.
	nodes, err := p.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("other nodes: %w", err)
	}
	for i := range nodes.Items {
		other := &nodes.Items[i]
		if other.Name == n.Name {
			continue
		}
		for _, a := range fresh {
			if a.Address == other.Name || slices.ContainsFunc(other.Status.Addresses, func(b corev1.NodeAddress) bool {
				return same(a.Address, b.Address) && (a != b || !mayMove(other, old))
			}) {
				return fmt.Sprintf("the address %s: it belongs to node %s", a.Address, other.Name), nil
			}
		}
	}
	return "", nil
}

// mayMove reports whether node may report an address that other also has. It may if other is not
// ready, because DHCP may have assigned the address of a machine that was down to another machine.
// node is the stored Node; it is empty if the Node is just being created, and then it may not
// report the address.
//
// node must also be younger than other. Of two nodes with the same address, the older one owns it
// (see package nodeclaims). So other keeps its routes, and only other can get a serving certificate
// for the address. If an older node could report the address, it would become the owner. After two
// machines have swapped their addresses, the younger node therefore has to report its new address
// first.
func mayMove(other, node *corev1.Node) bool {
	if node.Name == "" || nodeclaims.Older(nodeclaims.Of(other), nodeclaims.Of(node)) > 0 {
		return false
	}
	return slices.ContainsFunc(other.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
	})
}

// refuse returns why no node may have an address, or "" if a node may have it.
func (p *nodeOwnership) refuse(a corev1.NodeAddress) string {
	ip, err := netip.ParseAddr(a.Address)
	if err != nil {
		return p.reserved.Name(a.Address)
	}
	if why := p.reserved.Address(ip); why != "" {
		return why
	}
	inside := func(r netip.Prefix) bool { return r.Contains(ip.Unmap()) }
	if len(p.ranges) > 0 && !slices.ContainsFunc(p.ranges, inside) {
		return "it is not in --node-address-ranges"
	}
	return ""
}

// repeated returns an error text if list has more than one address of the same type and IP family.
// Without this limit, a node could report the addresses of all nodes that will join later.
func repeated(list []corev1.NodeAddress) string {
	type kind struct {
		kind corev1.NodeAddressType
		bits int
	}
	seen := map[kind]bool{}
	for _, a := range list {
		k := kind{kind: a.Type}
		if ip, err := netip.ParseAddr(a.Address); err == nil {
			k.bits = ip.Unmap().BitLen()
		}
		if seen[k] {
			return fmt.Sprintf("more than one address of type %s in one address family", a.Type)
		}
		seen[k] = true
	}
	return ""
}

// same reports whether a and b are the same address or name.
func same(a, b string) bool {
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	return a == b || errX == nil && errY == nil && x.Unmap() == y.Unmap()
}
