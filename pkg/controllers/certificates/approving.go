// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// ApprovingName is the name of the controller that approves CertificateSigningRequests.
const ApprovingName = "certificatesigningrequest-approving-controller"

type approving struct {
	controller.Deps
	queue    *controller.Queue
	requests certificateslisters.CertificateSigningRequestLister

	// byNode is the index of requests by node. It is nil unless Options.ProtectNodes is set.
	byNode cache.Indexer
	mu     sync.Mutex // locked while the controller decides about a request for a client certificate
	// promised are the approvals of this process that byNode may not show yet, by node name. mu
	// guards the map.
	promised map[string]promise
}

// NewApproving returns the controller that approves the requests of kubelets for certificates if
// the requester may make such requests.
func NewApproving(d controller.Deps) (controller.Controller, error) {
	requests := d.Informers.Certificates().V1().CertificateSigningRequests()
	c := &approving{Deps: d, requests: requests.Lister()}
	c.queue = controller.NewQueue(ApprovingName, d.Clock, d.Log, d.Options.Workers, c.sync)
	if d.Options.ProtectNodes {
		if err := c.protect(d); err != nil {
			return nil, err
		}
	}
	return c, controller.OnChange(requests.Informer(), func(old, csr *certificatesv1.CertificateSigningRequest) {
		switch {
		case csr == nil:
			c.dropPromise(old)
			c.requeueAfterDeletion(old)
		case decided(csr):
			c.dropPromise(csr)
		default:
			c.queue.Add(csr.Name)
		}
	})
}

// Run implements controller.Controller.
func (c *approving) Run(ctx context.Context) error { return c.queue.Run(ctx) }

func (c *approving) sync(ctx context.Context, name string) error {
	if node, is := strings.CutPrefix(name, nodePart); is {
		return c.syncNode(ctx, node)
	}
	csr, err := c.requests.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if decided(csr) || len(csr.Status.Certificate) > 0 {
		return nil
	}
	req, err := parse(csr)
	if err != nil {
		return err
	}
	if csr.Spec.SignerName == certificatesv1.KubeletServingSignerName && c.Options.ApproveServing {
		return c.approveServing(ctx, csr, req)
	}
	if csr.Spec.SignerName == certificatesv1.KubeAPIServerClientSignerName && c.Options.ApproveProxies {
		return c.approveProxy(ctx, csr, req)
	}
	kinds := kindsOf(csr, req)
	for _, k := range kinds {
		may, err := c.mayAsk(ctx, csr, k.subresource)
		if err != nil {
			return err
		}
		if may {
			return c.approveClient(ctx, csr, req, k.message)
		}
	}
	if len(kinds) > 0 {
		// The rights may have been granted just now, or be granted later. As in Kubernetes, the error makes
		// the queue try again.
		return errNotAllowed
	}
	return nil // no rule applies; an administrator may approve the request
}

// errNotAllowed says that the requester may not make a request that would be approved automatically.
var errNotAllowed = errors.New("the access review of the requester was not approved")

// kind is a type of CertificateSigningRequest that is approved automatically if the requester has
// the right (in RBAC) to create the given subresource of certificatesigningrequests. message is the
// message in the condition Approved.
type kind struct{ subresource, message string }

// kindsOf returns the kinds of automatically approved requests that a CertificateSigningRequest
// belongs to.
func kindsOf(csr *certificatesv1.CertificateSigningRequest, req *x509.CertificateRequest) []kind {
	if csr.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName ||
		checkKubelet(req, csr.Spec.Usages, false) != nil {
		return nil
	}
	client := kind{"nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview."}
	if csr.Spec.Username != req.Subject.CommonName {
		return []kind{client}
	}
	return []kind{{"selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview."}, client}
}

// mayAsk asks the API server whether the requester may create the given subresource of
// certificatesigningrequests.
func (c *approving) mayAsk(ctx context.Context, csr *certificatesv1.CertificateSigningRequest,
	subresource string) (bool, error) {
	extra := map[string]authorizationv1.ExtraValue{}
	for k, v := range csr.Spec.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: csr.Spec.Username, UID: csr.Spec.UID, Groups: csr.Spec.Groups, Extra: extra,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: certificatesv1.GroupName, Version: "*", Resource: "certificatesigningrequests",
			Subresource: subresource, Verb: "create",
		},
	}}
	got, err := c.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("access review: %w", err)
	}
	return got.Status.Allowed, nil
}

func (c *approving) approve(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, message string) error {
	next := csr.DeepCopy()
	next.Status.Conditions = append(next.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: v1.ConditionTrue, Reason: "AutoApproved", Message: message,
	})
	_, err := c.Client.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, csr.Name, next,
		metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("approval: %w", err)
	}
	return nil
}
