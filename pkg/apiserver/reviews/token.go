// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reviews answers reviews of tokens and of users' rights, and handles requests for tokens
// of service accounts.
package reviews

import (
	"context"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	tokenjwt "k8s.io/apiserver/pkg/authentication/token/jwt"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/apiserver/satoken"
)

// Tokens handles TokenRequests, which ask for a token of a service account.
type Tokens struct {
	Issuer    *satoken.Issuer
	Client    kubernetes.Interface
	Audiences authenticator.Audiences
	MaxExpiry time.Duration // maximum lifetime; 0 means no limit
	Extend    bool          // whether tokens for token volumes get a longer lifetime than requested
	// MaxExtended limits the longer lifetime that Extend gives to tokens. 0 means one year.
	MaxExtended time.Duration
	Clock       clock.Clock
}

const (
	minExpiry     = 10 * 60
	defaultExpiry = 60 * 60
)

// Creator returns the handler of serviceaccounts/token.
func (t *Tokens) Creator() *resource.Creator {
	return &resource.Creator{New: func() runtime.Object { return &authenticationv1.TokenRequest{} },
		Create: t.create, Preconditions: true, Default: defaultRequest}
}

func defaultRequest(obj runtime.Object) {
	if tr, ok := obj.(*authenticationv1.TokenRequest); ok && tr.Spec.ExpirationSeconds == nil {
		seconds := int64(defaultExpiry)
		tr.Spec.ExpirationSeconds = &seconds
	}
}

type validateFunc = func(context.Context, runtime.Object) error

func tokenRequestKind() schema.GroupKind {
	return schema.GroupKind{Group: authenticationv1.GroupName, Kind: "TokenRequest"}
}

func (t *Tokens) create(ctx context.Context, req *resource.Request, obj runtime.Object, validate validateFunc,
	options *metav1.CreateOptions) (runtime.Object, error) {
	tr, ok := obj.(*authenticationv1.TokenRequest)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a TokenRequest object: %T", obj))
	}
	if tr.Name != "" && tr.Name != req.Name {
		return nil, invalidToken(req.Name, field.Invalid(field.NewPath("metadata", "name"), tr.Name,
			"must match the service account name if specified"))
	}
	if tr.Namespace != "" && tr.Namespace != req.Namespace {
		return nil, invalidToken(req.Name, field.Invalid(field.NewPath("metadata", "namespace"), tr.Namespace,
			"must match the service account namespace if specified"))
	}
	if err := req.CheckKey(req.Name); err != nil {
		return nil, err
	}
	tr.Name = req.Name
	sa, err := t.Client.CoreV1().ServiceAccounts(req.Namespace).Get(ctx, req.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if tr.UID != "" && tr.UID != sa.UID {
		gk := tokenRequestKind()
		return nil, apierrors.NewConflict(schema.GroupResource{Group: gk.Group, Resource: gk.Kind}, req.Name,
			fmt.Errorf("the UID in the token request (%s) does not match the UID of the service account (%s)", tr.UID, sa.UID))
	}
	now := t.Clock.Now()
	t.complete(tr, sa, now)
	if errs := checkToken(&tr.Spec); len(errs) > 0 {
		return nil, apierrors.NewInvalid(tokenRequestKind(), "", errs)
	}
	if err := validate(ctx, tr); err != nil {
		return nil, err
	}
	w := satoken.Wanted{
		ID:      string(uuid.NewUUID()),
		Subject: serviceaccount.MakeUsername(sa.Namespace, sa.Name), Namespace: sa.Namespace,
		ServiceAccount: satoken.Ref{Name: sa.Name, UID: string(sa.UID)},
		Audiences:      tr.Spec.Audiences, Now: now,
	}
	if ref := tr.Spec.BoundObjectRef; ref != nil {
		if err := t.bind(ctx, req, &w, ref); err != nil {
			return nil, err
		}
	}
	seconds := t.limit(ctx, *tr.Spec.ExpirationSeconds)
	tr.Spec.ExpirationSeconds = &seconds
	w.Expiry = now.Add(time.Duration(seconds) * time.Second)
	tr.Status.ExpirationTimestamp = metav1.NewTime(w.Expiry)
	if t.Extend && w.Pod != nil && seconds == satoken.WarnAfter && t.ours(tr.Spec.Audiences) {
		w.WarnAfter, w.Expiry = w.Expiry, now.Add(t.extended())
	}
	if tr.Status.Token, err = t.Issuer.Issue(ctx, w); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	audit.AddAuditAnnotation(ctx, serviceaccount.IssuedCredentialIDAuditAnnotationKey, tokenjwt.CredentialIDForJTI(w.ID))
	return tr, nil
}

func invalidToken(name string, err *field.Error) error {
	return apierrors.NewInvalid(tokenRequestKind(), name, field.ErrorList{err})
}

// complete sets the fields of a TokenRequest that the server determines, and default audiences.
func (t *Tokens) complete(tr *authenticationv1.TokenRequest, sa *corev1.ServiceAccount, now time.Time) {
	if len(tr.Spec.Audiences) == 0 {
		tr.Spec.Audiences = slices.Clone(t.Audiences)
	}
	tr.Name, tr.Namespace, tr.UID = sa.Name, sa.Namespace, sa.UID
	tr.CreationTimestamp = metav1.NewTime(now)
	tr.Status = authenticationv1.TokenRequestStatus{}
}

// checkToken validates a TokenRequest. Only a token that is bound to a webhook configuration can
// have attestations. As in Kubernetes, if any other token has attestations, this is the only error
// that is reported. bind later rejects all tokens that are bound to webhook configurations, because
// their feature is off by default.
func checkToken(spec *authenticationv1.TokenRequestSpec) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec")
	at, seconds := path.Child("expirationSeconds"), *spec.ExpirationSeconds
	if seconds < minExpiry {
		errs = append(errs, field.Invalid(at, seconds, "may not specify a duration less than 10 minutes"))
	}
	if seconds > 1<<32 {
		errs = append(errs, field.Invalid(at, seconds, "may not specify a duration larger than 2^32 seconds"))
	}
	if ref := spec.BoundObjectRef; ref == nil || !isWebhook(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)) {
		if len(spec.Attestations) > 0 {
			return field.ErrorList{field.Invalid(path.Child("attestations"), spec.Attestations,
				"attestations may only be specified with a webhook bound object reference")}
		}
		return errs
	}
	if len(spec.Audiences) != 1 {
		errs = append(errs, field.Invalid(path.Child("audiences"), spec.Audiences,
			"must be length 1 when bound to a webhook config"))
	}
	return append(errs, checkAttestations(spec.Attestations, path.Child("attestations"))...)
}

// attestedGroups is the key of the only supported attestation: the API group about whose objects
// the token's bearer may query admission webhooks.
const attestedGroups = "admissionReviewAPIGroups"

func checkAttestations(attestations map[string]authenticationv1.AttestationValue, path *field.Path) field.ErrorList {
	if len(attestations) != 1 {
		return field.ErrorList{field.Invalid(path, attestations,
			"webhook bound requests require exactly one admissionReviewAPIGroups attestation")}
	}
	var errs field.ErrorList
	for key, groups := range attestations {
		at := path.Key(key)
		switch {
		case key != attestedGroups:
			errs = append(errs, field.NotSupported(at, key, []string{attestedGroups}))
		case len(groups) != 1:
			errs = append(errs, field.Invalid(at, groups, "must specify a single value"))
		case groups[0] == "":
			errs = append(errs, field.Invalid(at.Index(0), groups[0], "may not be an empty string"))
		case groups[0] != "*":
			for _, reason := range validation.IsDNS1123Subdomain(groups[0]) {
				errs = append(errs, field.Invalid(at.Index(0), groups[0], "must specify a valid API Group: "+reason))
			}
		}
	}
	return errs
}

func isWebhook(gvk schema.GroupVersionKind) bool {
	return gvk.GroupVersion() == admissionregistrationv1.SchemeGroupVersion &&
		(gvk.Kind == "ValidatingWebhookConfiguration" || gvk.Kind == "MutatingWebhookConfiguration")
}

func (t *Tokens) limit(ctx context.Context, seconds int64) int64 {
	limit := int64(t.MaxExpiry / time.Second)
	if limit == 0 || seconds <= limit {
		return seconds
	}
	warning.AddWarning(ctx, "", fmt.Sprintf("requested expiration of %d seconds shortened to %d seconds", seconds, limit))
	return limit
}

// ours reports whether all audiences are audiences of this API server.
func (t *Tokens) ours(audiences []string) bool {
	for _, a := range audiences {
		if !slices.Contains(t.Audiences, a) {
			return false
		}
	}
	return true
}

// extended returns the lifetime of tokens that kubelets request for token volumes, if Extend is
// true.
func (t *Tokens) extended() time.Duration {
	year := time.Duration(satoken.ExtendedExpiry) * time.Second
	if t.MaxExtended != 0 {
		return min(year, t.MaxExtended)
	}
	return year
}

// bind sets in w the object to which the token is to be bound. The object must exist.
func (t *Tokens) bind(ctx context.Context, req *resource.Request, w *satoken.Wanted,
	ref *authenticationv1.BoundObjectReference) error {
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	if isWebhook(gvk) {
		return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token to object of type %s "+
			"(feature gate APIServerWebhookAuthenticationToken is disabled)", gvk.String()))
	}
	if gvk.Group != "" || !slices.Contains([]string{"Pod", "Node", "Secret"}, gvk.Kind) {
		return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token to object of type %s", gvk.String()))
	}
	if err := req.CheckKey(ref.Name); err != nil {
		return err
	}
	var uid types.UID
	switch gvk.Kind {
	case "Pod":
		pod, err := t.Client.CoreV1().Pods(w.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pod.Spec.ServiceAccountName != w.ServiceAccount.Name {
			return apierrors.NewBadRequest(
				fmt.Sprintf(
					"cannot bind token for serviceaccount %q to pod running with different serviceaccount name.",
					w.ServiceAccount.Name))
		}
		uid, w.Pod = pod.UID, &satoken.Ref{Name: pod.Name, UID: string(pod.UID)}
		if w.Node, err = t.nodeOf(ctx, pod); err != nil {
			return err
		}
	case "Node":
		node, err := t.Client.CoreV1().Nodes().Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		uid, w.Node = node.UID, &satoken.Ref{Name: node.Name, UID: string(node.UID)}
	case "Secret":
		secret, err := t.Client.CoreV1().Secrets(w.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		uid, w.Secret = secret.UID, &satoken.Ref{Name: secret.Name, UID: string(secret.UID)}
	}
	if ref.UID != "" && ref.UID != uid {
		return apierrors.NewConflict(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, ref.Name,
			fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The "+
				"object might have been deleted and then recreated", ref.UID))
	}
	return nil
}

// nodeOf returns the node of a pod, or nil if the pod has none. If the node does not exist, the
// result has no UID.
func (t *Tokens) nodeOf(ctx context.Context, pod *corev1.Pod) (*satoken.Ref, error) {
	if pod.Spec.NodeName == "" {
		return nil, nil
	}
	node, err := t.Client.CoreV1().Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{ResourceVersion: "0"})
	if apierrors.IsNotFound(err) {
		node, err = t.Client.CoreV1().Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) {
		return &satoken.Ref{Name: pod.Spec.NodeName}, nil
	}
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return &satoken.Ref{Name: node.Name, UID: string(node.UID)}, nil
}
