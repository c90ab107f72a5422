// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeauth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Authorizer decides requests of nodes, which are users system:node:<name> in the group
// system:nodes. It has no opinion on requests of other users.
type Authorizer struct {
	graph  *Graph
	rules  func(authorizer.Attributes) bool
	fenced func(node string) (fenced, known bool)
	synced func() bool
}

// NewAuthorizer returns an authorizer that uses graph. rules decides requests that do not depend on
// which node sends them, by the rules of the role system:node. fenced reports whether a node is fenced,
// and whether that is known: a node that is or may be fenced may only read. While synced returns false,
// the authorizer allows no requests that depend on graph.
func NewAuthorizer(graph *Graph, rules func(authorizer.Attributes) bool,
	fenced func(node string) (fenced, known bool), synced func() bool) *Authorizer {
	return &Authorizer{graph, rules, fenced, synced}
}

const (
	userPrefix = "system:node:"
	nodesGroup = user.NodesGroup
)

// Identity returns the name of the node that u represents. isNode reports whether u is a node: its
// user name begins with "system:node:", and it is in the group system:nodes. The name is empty if
// the user name is only "system:node:".
func Identity(u user.Info) (name string, isNode bool) {
	if u == nil || !strings.HasPrefix(u.GetName(), userPrefix) || !slices.Contains(u.GetGroups(), nodesGroup) {
		return "", false
	}
	return strings.TrimPrefix(u.GetName(), userPrefix), true
}

// Authorize allows a node to access its own objects, and what the rules allow to all nodes.
func (a *Authorizer) Authorize(_ context.Context, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	node, isNode := Identity(attrs.GetUser())
	if !isNode {
		return authorizer.DecisionNoOpinion, "", nil
	}
	if node == "" {
		return no(fmt.Sprintf("unknown node for user %q", attrs.GetUser().GetName()))
	}
	if !attrs.IsReadOnly() {
		fenced, known := a.fenced(node)
		if !known {
			return no("the marks of nodes have not been loaded yet")
		}
		if fenced {
			return authorizer.DecisionDeny, fmt.Sprintf("node '%s' is fenced: an administrator has declared its machine to be "+
				"off; \"ctl node unfence %s\" ends that", node, node), nil
		}
	}
	if attrs.IsResourceRequest() {
		if decide := a.subdivided(attrs); decide != nil {
			return decide(node, attrs)
		}
	}
	if a.rules(attrs) {
		return authorizer.DecisionAllow, "", nil
	}
	return no("")
}

// RulesFor returns no rules, because a node's rights depend on its pods and cannot be listed as
// rules.
func (a *Authorizer) RulesFor(_ context.Context, u user.Info, _ string) ([]authorizer.ResourceRuleInfo,
	[]authorizer.NonResourceRuleInfo, bool, error) {
	if _, isNode := Identity(u); isNode {
		return nil, nil, true, errors.New("node authorizer does not support user rule resolution")
	}
	return nil, nil, false, nil
}

type decision func(node string, attrs authorizer.Attributes) (authorizer.Decision, string, error)

func yes() (authorizer.Decision, string, error) { return authorizer.DecisionAllow, "", nil }

func no(reason string) (authorizer.Decision, string, error) {
	return authorizer.DecisionNoOpinion, reason, nil
}

// subdivided returns the function that decides requests for a resource some of whose objects a node
// may not access. It returns nil for all other resources.
func (a *Authorizer) subdivided(attrs authorizer.Attributes) decision {
	switch attrs.GetAPIGroup() + "/" + attrs.GetResource() {
	case "/secrets":
		return a.readNamespaced(secret)
	case "/configmaps":
		return a.readNamespaced(configMap)
	case "/persistentvolumeclaims":
		if attrs.GetSubresource() == "status" {
			return a.updateStatus(claim)
		}
		return a.get(claim)
	case "/persistentvolumes":
		return a.get(volume)
	case "resource.k8s.io/resourceclaims":
		return a.get(resourceClaim)
	case "storage.k8s.io/volumeattachments":
		return a.get(attachment)
	case "/serviceaccounts":
		return a.account
	case "coordination.k8s.io/leases":
		return lease
	case "storage.k8s.io/csinodes":
		return csiNode
	case "resource.k8s.io/resourceslices":
		return a.resourceSlice
	case "certificates.k8s.io/podcertificaterequests":
		return a.podCertificate
	case "/nodes":
		return ownNode
	case "/pods":
		return a.pods
	}
	return nil
}

// related allows the request if the graph relates its object to the node.
func (a *Authorizer) related(k kind, node string, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	if attrs.GetName() == "" {
		return no("No Object name found")
	}
	if !a.synced() || !a.graph.reaches(node, object{k, attrs.GetNamespace(), attrs.GetName()}) {
		return no(fmt.Sprintf("no relationship found between node '%s' and this object", node))
	}
	return yes()
}

func (a *Authorizer) readNamespaced(k kind) decision {
	return func(node string, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
		switch {
		case !slices.Contains([]string{"get", "list", "watch"}, attrs.GetVerb()):
			return no("can only read resources of this type")
		case attrs.GetSubresource() != "":
			return no("cannot read subresource")
		case attrs.GetNamespace() == "":
			return no("can only read namespaced object of this type")
		}
		return a.related(k, node, attrs)
	}
}

func (a *Authorizer) get(k kind) decision {
	return func(node string, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
		switch {
		case attrs.GetVerb() != "get":
			return no("can only get individual resources of this type")
		case attrs.GetSubresource() != "":
			return no("cannot get subresource")
		}
		return a.related(k, node, attrs)
	}
}

func (a *Authorizer) updateStatus(k kind) decision {
	return func(node string, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
		if v := attrs.GetVerb(); v != "update" && v != "patch" {
			return no("can only get/update/patch this type")
		}
		return a.related(k, node, attrs)
	}
}

func (a *Authorizer) account(node string, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	switch {
	case attrs.GetVerb() == "get" && attrs.GetSubresource() == "":
		return a.readNamespaced(serviceAccount)(node, attrs)
	case attrs.GetVerb() != "create" || attrs.GetName() == "":
		return no("can only create tokens for individual service accounts")
	case attrs.GetSubresource() != "token":
		return no("can only create token subresource of serviceaccount")
	}
	return a.related(serviceAccount, node, attrs)
}

// ownWrite reports whether verb is allowed on the Lease and CSINode that have the name of the node.
func ownWrite(verb string) bool {
	return slices.Contains([]string{"get", "create", "update", "patch", "delete"}, verb)
}

func lease(node string, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	switch {
	case !ownWrite(attrs.GetVerb()):
		return no("can only get, create, update, patch, or delete a node lease")
	case attrs.GetNamespace() != corev1.NamespaceNodeLease:
		return no(fmt.Sprintf("can only access leases in the %q system namespace", corev1.NamespaceNodeLease))
	// The name of a created object is not in the attributes, so NodeRestriction checks it later.
	case attrs.GetVerb() != "create" && attrs.GetName() != node:
		return no("can only access node lease with the same name as the requesting node")
	}
	return yes()
}

func csiNode(node string, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	switch {
	case !ownWrite(attrs.GetVerb()):
		return no("can only get, create, update, patch, or delete a CSINode")
	case attrs.GetSubresource() != "":
		return no("cannot authorize CSINode subresources")
	case attrs.GetVerb() != "create" && attrs.GetName() != node:
		return no("can only access CSINode with the same name as the requesting node")
	}
	return yes()
}

// selects reports whether the request has the field selector field=node.
func selects(attrs authorizer.Attributes, field, node string) bool {
	reqs, _ := attrs.GetFieldSelector()
	for _, r := range reqs {
		if r.Field == field && r.Operator == selection.Equals && r.Value == node {
			return true
		}
	}
	return false
}

func (a *Authorizer) resourceSlice(node string, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	if attrs.GetSubresource() != "" {
		return no("cannot authorize ResourceSlice subresources")
	}
	switch attrs.GetVerb() {
	case "create":
		return yes()
	case "get", "update", "patch", "delete":
		return a.related(slice, node, attrs)
	case "watch", "list", "deletecollection":
		if selects(attrs, "spec.nodeName", node) {
			return yes()
		}
		return no("can only list/watch/deletecollection resourceslices with nodeName field selector")
	}
	return no("only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, " +
		"patch, delete, deletecollection")
}

func (a *Authorizer) podCertificate(node string, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	if attrs.GetSubresource() != "" {
		return no("nodes may not access the status subresource of PodCertificateRequests")
	}
	switch attrs.GetVerb() {
	case "create": // NodeRestriction checks the request
		return yes()
	case "get":
		return a.related(podCertificate, node, attrs)
	case "list", "watch":
		if selects(attrs, "spec.nodeName", node) {
			return yes()
		}
		return no("can only list/watch podcertificaterequests with nodeName field selector")
	}
	return no(fmt.Sprintf("nodes may not %s podcertificaterequests", attrs.GetVerb()))
}

func ownNode(node string, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	verb := attrs.GetVerb()
	switch attrs.GetSubresource() {
	case "":
		switch verb {
		case "create", "update", "patch":
			return yes()
		case "get", "list", "watch":
			switch attrs.GetName() {
			case node:
				return yes()
			case "":
				return no(fmt.Sprintf("node '%s' cannot read all nodes, only its own Node object", node))
			}
			return no(fmt.Sprintf("node '%s' cannot read '%s', only its own Node object", node, attrs.GetName()))
		}
	case "status":
		if verb == "update" || verb == "patch" {
			return yes()
		}
	}
	return no("")
}

func (a *Authorizer) pods(node string, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	verb := attrs.GetVerb()
	switch attrs.GetSubresource() {
	case "":
		switch verb {
		case "get":
			return a.get(pod)(node, attrs)
		case "list", "watch":
			if selects(attrs, "spec.nodeName", node) {
				return yes()
			}
			if attrs.GetName() != "" {
				return a.related(pod, node, attrs)
			}
			return no("can only list/watch pods with spec.nodeName field selector")
		case "create", "delete":
			return yes()
		}
	case "status":
		if verb == "update" || verb == "patch" {
			return yes()
		}
	case "eviction":
		if verb == "create" {
			return yes()
		}
	}
	return no("")
}
