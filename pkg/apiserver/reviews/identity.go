// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package reviews

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/authentication"
)

// Identity answers TokenReviews and SelfSubjectReviews.
type Identity struct {
	// Requests authenticates requests. A TokenReview authenticates an imaginary request that has only
	// the reviewed token. So the result for a blank token is the anonymous user.
	Requests  authenticator.Request
	Audiences authenticator.Audiences
	Clock     clock.Clock
}

// Rows returns the handlers of the resources of authentication.k8s.io.
func (i *Identity) Rows() authentication.Deps {
	return authentication.Deps{
		TokenReview: &resource.Creator{
			New: func() runtime.Object { return &authenticationv1.TokenReview{} }, Create: i.token},
		SelfSubjectReview: &resource.Creator{
			New: func() runtime.Object { return &authenticationv1.SelfSubjectReview{} }, Create: i.self},
	}
}

var errUnknownToken = errors.New("invalid bearer token")

func (i *Identity) token(ctx context.Context, _ *resource.Request, obj runtime.Object, validate validateFunc,
	_ *metav1.CreateOptions) (runtime.Object, error) {
	r, ok := obj.(*authenticationv1.TokenReview)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a TokenReview: %T", obj))
	}
	if r.Spec.Token == "" {
		return nil, apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	if err := validate(ctx, obj); err != nil {
		return nil, err
	}
	wanted := authenticator.Audiences(r.Spec.Audiences)
	if len(wanted) == 0 {
		wanted = i.Audiences
	}
	bare := (&http.Request{URL: &url.URL{}, Header: http.Header{"Authorization": {"Bearer " + r.Spec.Token}}}).
		WithContext(authenticator.WithAudiences(warning.WithWarningRecorder(ctx, silent{}), wanted))
	resp, ok, err := i.Requests.AuthenticateRequest(bare)
	r.Status = authenticationv1.TokenReviewStatus{Authenticated: ok && err == nil}
	switch {
	case err != nil:
		// As in Kubernetes, the message begins with the error that a token is unknown.
		r.Status.Error = utilerrors.NewAggregate([]error{errUnknownToken, err}).Error()
		return r, nil
	case !ok:
		return r, nil
	case len(wanted) > 0 && len(wanted.Intersect(resp.Audiences)) == 0:
		return nil, apierrors.NewInternalError(errors.New("error validating audiences"))
	}
	r.Status.User = info(resp.User)
	r.Status.Audiences = resp.Audiences
	return r, nil
}

// silent drops warnings about a reviewed token, because they are meant for the user of the token
// and not for the client that sends the review.
type silent struct{}

// AddWarning implements warning.Recorder.
func (silent) AddWarning(string, string) {}

func info(u user.Info) authenticationv1.UserInfo {
	out := authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
	for k, v := range u.GetExtra() {
		if out.Extra == nil {
			out.Extra = map[string]authenticationv1.ExtraValue{}
		}
		out.Extra[k] = v
	}
	return out
}

func (i *Identity) self(ctx context.Context, _ *resource.Request, obj runtime.Object, validate validateFunc,
	_ *metav1.CreateOptions) (runtime.Object, error) {
	if err := validate(ctx, obj); err != nil {
		return nil, err
	}
	u, ok := request.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewBadRequest("no user present on request")
	}
	return &authenticationv1.SelfSubjectReview{
		ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(i.Clock.Now())},
		Status:     authenticationv1.SelfSubjectReviewStatus{UserInfo: info(u)},
	}, nil
}
