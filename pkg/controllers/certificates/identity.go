// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/nodeclaims"
)

// A join token is meant for new nodes. If Options.ProtectNodes is set, a CertificateSigningRequest
// that uses a join token is not approved automatically in two cases: the node exists already, or
// its certificate was issued to another machine and the node has not registered yet. The request
// then waits for manual approval, and an event on it gives the reason.

const (
	// byNode is the name of the index of requests for kubelets' client certificates by node name.
	byNode = "node"
	// reasonProtected is the reason of the event on a request that is not approved automatically.
	reasonProtected = "NodeIdentityProtected"
	// nodePart is the prefix of queue keys that stand for nodes that have registered or were deleted.
	// Other keys are names of requests, which contain no slash.
	nodePart = "node/"
)

// promise records that this process has approved a CertificateSigningRequest, because the cache may
// not show the approval yet. key is the public key in the request.
type promise struct {
	request string
	user    string
	key     []byte
}

// protect makes the controller watch the deletion of nodes and index requests by node.
func (c *approving) protect(d controller.Deps) error {
	informer := d.Informers.Certificates().V1().CertificateSigningRequests().Informer()
	if err := informer.AddIndexers(cache.Indexers{byNode: indexByNode}); err != nil {
		return fmt.Errorf("index of requests: %w", err)
	}
	c.byNode, c.promised = informer.GetIndexer(), map[string]promise{}
	return controller.OnChange(d.Informers.Core().V1().Nodes().Informer(), func(old, node *v1.Node) {
		switch {
		case node == nil:
			c.queue.Add(nodePart + old.Name)
		case registered(node) && !registered(old):
			c.queue.Add(nodePart + node.Name)
		}
	})
}

// registered reports whether a kubelet has registered the node. Administrators can create nodes, too.
func registered(node *v1.Node) bool { return node != nil && node.Status.NodeInfo.KubeletVersion != "" }

func indexByNode(obj any) ([]string, error) {
	csr, ok := obj.(*certificatesv1.CertificateSigningRequest)
	if !ok || csr.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName {
		return nil, nil
	}
	req, err := parse(csr)
	if err != nil {
		return nil, nil // an invalid request is not for a node
	}
	return []string{strings.TrimPrefix(req.Subject.CommonName, nodePrefix)}, nil
}

// approveClient approves a CertificateSigningRequest for a client certificate whose user may make
// it, unless ProtectNodes is set and the request is for the identity of another machine. It handles
// one request at a time, so that two requests for the same new node are not both approved.
func (c *approving) approveClient(ctx context.Context, csr *certificatesv1.CertificateSigningRequest,
	req *x509.CertificateRequest, message string) error {
	if !c.Options.ProtectNodes {
		return c.approve(ctx, csr, message)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	why, err := c.refuseClient(ctx, csr, req)
	if err != nil {
		return err
	}
	if why != "" {
		c.Log.Warn("Request for a client certificate needs manual approval", "request", csr.Name, "user",
			csr.Spec.Username, "reason", why)
		c.Events.Event(csr, v1.EventTypeWarning, reasonProtected, "Not approved automatically: "+why)
		return nil
	}
	// Record the approval even if the request to the API server fails, because the server may have
	// stored it.
	c.promised[strings.TrimPrefix(req.Subject.CommonName, nodePrefix)] = promise{csr.Name, csr.Spec.Username,
		req.RawSubjectPublicKeyInfo}
	return c.approve(ctx, csr, message)
}

// dropPromise removes the record that this process has approved a CertificateSigningRequest. It is
// called when the cache shows that the request was decided or deleted.
func (c *approving) dropPromise(csr *certificatesv1.CertificateSigningRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for node, p := range c.promised {
		if p.request == csr.Name {
			delete(c.promised, node)
		}
	}
}

// requeueAfterDeletion requeues the requests for the same node as a deleted request, because they
// may have waited for its deletion.
func (c *approving) requeueAfterDeletion(gone *certificatesv1.CertificateSigningRequest) {
	if c.byNode == nil {
		return
	}
	nodes, _ := indexByNode(gone)
	for _, node := range nodes {
		c.requeueWaiting(node)
	}
}

// requeueWaiting requeues the undecided requests for a node.
func (c *approving) requeueWaiting(node string) {
	requests, err := c.byNode.ByIndex(byNode, node)
	if err != nil {
		return // cannot happen: the function protect has added the index
	}
	for _, obj := range requests {
		if csr, ok := obj.(*certificatesv1.CertificateSigningRequest); ok && !decided(csr) {
			c.queue.Add(csr.Name)
		}
	}
}

// refuseClient returns the reason why a CertificateSigningRequest must not be approved
// automatically. It returns "" if the request is for a new node, or is a node's request to renew
// its own certificate.
func (c *approving) refuseClient(ctx context.Context, csr *certificatesv1.CertificateSigningRequest,
	req *x509.CertificateRequest) (string, error) {
	name := strings.TrimPrefix(req.Subject.CommonName, nodePrefix)
	if why := c.reserved().Name(name); why != "" {
		return fmt.Sprintf("no node may be called %q: %s", name, why), nil
	}
	_, err := c.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("node of request: %w", err)
	}
	exists := err == nil
	self := csr.Spec.Username == req.Subject.CommonName && slices.Contains(csr.Spec.Groups, nodesGroup)
	switch {
	case self && !exists:
		return fmt.Sprintf("node %q has been removed; it must use a join token to join again", name), nil
	case self:
		return "", nil
	case exists:
		return fmt.Sprintf("node %q exists, and %s is not that node. If the machine has lost its key, "+
			"delete the Node, or approve this request", name, csr.Spec.Username), nil
	}
	return c.claimed(csr, req, name)
}

// claimed returns a message if another machine already got a certificate for the node with this
// name, which has not registered yet. Otherwise it returns "". A CertificateSigningRequest with the
// same public key is from the same machine.
func (c *approving) claimed(csr *certificatesv1.CertificateSigningRequest, req *x509.CertificateRequest,
	name string) (string, error) {
	const text = "a certificate for node %q, which has not registered, was given to %s by request %s. If " +
		"that was another machine's, delete that request, or approve this one"
	if p, ok := c.promised[name]; ok && p.request != csr.Name && !bytes.Equal(p.key, req.RawSubjectPublicKeyInfo) {
		return fmt.Sprintf(text, name, p.user, p.request), nil
	}
	others, err := c.byNode.ByIndex(byNode, name)
	if err != nil {
		return "", fmt.Errorf("requests of node: %w", err)
	}
	for _, obj := range others {
		other, ok := obj.(*certificatesv1.CertificateSigningRequest)
		if !ok || other.Name == csr.Name || renews(other, name) || !holds(other, c.Clock.Now()) {
			continue
		}
		if before, err := parse(other); err == nil &&
			bytes.Equal(before.RawSubjectPublicKeyInfo, req.RawSubjectPublicKeyInfo) {
			continue // the same machine repeated its request
		}
		return fmt.Sprintf(text, name, other.Spec.Username, other.Name), nil
	}
	return "", nil
}

// holds reports whether a CertificateSigningRequest is approved and its certificate is still valid
// or not yet issued.
func holds(csr *certificatesv1.CertificateSigningRequest, now time.Time) bool {
	return is(csr, certificatesv1.CertificateApproved) && !is(csr, certificatesv1.CertificateDenied) &&
		!is(csr, certificatesv1.CertificateFailed) && !expired(csr, now)
}

// syncNode deletes the requests that do not protect a node's name any more, and requeues those that
// may have waited for this. It does not revoke certificates.
//
// A node that has registered protects its name itself. Its requests are deleted then, and not only
// when the node is deleted, because the controller may not run at that moment.
func (c *approving) syncNode(ctx context.Context, name string) error {
	node, err := c.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	exists := err == nil
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("node: %w", err)
	case exists && !registered(node):
		return nil // an administrator has created it again
	}
	requests, err := c.byNode.ByIndex(byNode, name)
	if err != nil {
		return fmt.Errorf("requests of node: %w", err)
	}
	for _, obj := range requests {
		csr, ok := obj.(*certificatesv1.CertificateSigningRequest)
		if !ok || !decided(csr) || exists && (renews(csr, name) || len(csr.Status.Certificate) == 0) {
			continue // the node may be waiting for it
		}
		err := c.Client.CertificatesV1().CertificateSigningRequests().Delete(ctx, csr.Name, metav1.DeleteOptions{
			Preconditions: metav1.NewUIDPreconditions(string(csr.UID)),
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete request %s: %w", csr.Name, err)
		}
	}
	c.requeueWaiting(name)
	return nil
}

// renews reports whether a node makes the request for itself. It can only do so after it has
// registered, so such a request does not protect the name of a node that does not exist.
func renews(csr *certificatesv1.CertificateSigningRequest, node string) bool {
	return csr.Spec.Username == nodePrefix+node
}

// reserved returns the names and addresses that no node may use: those of the API server and of
// services, as far as the options contain them.
func (c *approving) reserved() nodeclaims.Reserved {
	return nodeclaims.Reserved{Names: c.Options.ServerNames, Ranges: slices.Clone(c.Options.ServiceCIDRs)}
}
