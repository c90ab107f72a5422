// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package satoken

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	tokenjwt "k8s.io/apiserver/pkg/authentication/token/jwt"

	"keelson.dev/api/clock"
)

// Getter reads the objects to which tokens are bound. It must not return a state that is older than
// the call.
type Getter interface {
	ServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	Pod(ctx context.Context, namespace, name string) (*metav1.ObjectMeta, error)
	Node(ctx context.Context, name string) (*metav1.ObjectMeta, error)
}

// Verifier authenticates service account tokens. Its fields must be set before the first use.
type Verifier struct {
	Keys      KeySource
	Issuers   []string // issuers whose tokens are accepted, in addition to LegacyIssuer
	Audiences authenticator.Audiences
	Get       Getter
	// Lookup is whether to check that the service account and the secret of a token from a secret
	// exist. For bound tokens, the service account and the bound objects are always checked.
	Lookup bool
	// Used is called with the secret whenever a token from a secret is used. It may be nil.
	Used    func(ctx context.Context, secret *corev1.Secret)
	Metrics *Metrics // must not be nil
	Clock   clock.Clock
}

// AuthenticateToken returns the user of a token. If the token is not from one of the issuers, it
// returns no user and no error.
func (v *Verifier) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	issuer, algorithm, ok := unverified(token)
	if !ok || (issuer != LegacyIssuer && !slices.Contains(v.Issuers, issuer)) {
		return nil, false, nil
	}
	// Accepting the algorithm that the token names is safe: the type of the public key restricts which
	// algorithms can verify.
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{algorithm})
	if err != nil {
		return nil, false, nil
	}
	var public jwt.Claims
	var private struct {
		claims
		legacyClaims
	}
	if err := v.verify(ctx, parsed, &public, &private); err != nil {
		return nil, false, err
	}
	audiences := authenticator.Audiences(public.Audience)
	if len(audiences) == 0 {
		v.Metrics.legacy.Inc()
		audiences = v.Audiences
	}
	wanted, ok := authenticator.AudiencesFrom(ctx)
	if !ok {
		wanted = v.Audiences
	}
	granted := audiences.Intersect(wanted)
	if len(granted) == 0 && len(v.Audiences) > 0 {
		return nil, false, fmt.Errorf("token audiences %q is invalid for the target audiences %q", audiences, wanted)
	}
	if issuer == LegacyIssuer {
		return v.legacy(ctx, token, granted, &public, &private.legacyClaims)
	}
	info, err := v.bound(ctx, &public, &private.Kubernetes)
	if err != nil {
		return nil, false, err
	}
	return &authenticator.Response{User: info.UserInfo(), Audiences: granted}, true, nil
}

// unverified reads issuer and algorithm from a string that looks like a JWT, without verifying it.
func unverified(token string) (issuer string, algorithm jose.SignatureAlgorithm, ok bool) {
	parts := strings.SplitN(token, ".", 4) // a JWT has three parts; the limit saves work if a string has many dots
	if len(parts) != 3 {
		return "", "", false
	}
	var header struct {
		Algorithm jose.SignatureAlgorithm `json:"alg"`
	}
	var payload struct {
		Issuer string `json:"iss"`
	}
	for i, into := range []any{&header, &payload} {
		data, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err != nil || json.Unmarshal(data, into) != nil {
			return "", "", false
		}
	}
	return payload.Issuer, header.Algorithm, true
}

func (v *Verifier) verify(ctx context.Context, token *jwt.JSONWebToken, into ...any) error {
	id := ""
	if len(token.Headers) > 0 {
		id = token.Headers[0].KeyID
	}
	err := errors.New("invalid signature, no keys found")
	for _, key := range v.Keys.Candidates(ctx, id) {
		if err = token.Claims(key, into...); err == nil {
			return nil
		}
	}
	return err
}

// errInvalidated is the error for a token whose service account or bound object no longer exists.
func errInvalidated() error { return errors.New("service account token has been invalidated") }

// bound checks the claims of a token that this package issued, and returns the token's user.
func (v *Verifier) bound(ctx context.Context, public *jwt.Claims,
	c *kubernetesClaims) (*serviceaccount.ServiceAccountInfo, error) {
	now := v.Clock.Now()
	switch err := public.ValidateWithLeeway(jwt.Expected{Time: now}, jwt.DefaultLeeway); {
	case err == nil:
	case errors.Is(err, jwt.ErrExpired):
		return nil, errors.New("service account token has expired")
	case errors.Is(err, jwt.ErrNotValidYet):
		return nil, errors.New("service account token is not valid yet")
	case errors.Is(err, jwt.ErrIssuedInTheFuture):
		return nil, errors.New("service account token is issued in the future")
	default:
		return nil, fmt.Errorf("service account token claims could not be validated: %w", err)
	}
	if err := v.account(ctx, c.Namespace, c.ServiceAccount, now); err != nil {
		return nil, err
	}
	info := &serviceaccount.ServiceAccountInfo{
		Namespace: c.Namespace, Name: c.ServiceAccount.Name, UID: c.ServiceAccount.UID,
		CredentialID: tokenjwt.CredentialIDForJTI(public.ID),
	}
	if c.Secret != nil {
		secret, err := v.Get.Secret(ctx, c.Namespace, c.Secret.Name)
		if err != nil {
			return nil, errInvalidated()
		}
		if err := same(c.Secret, &secret.ObjectMeta,
			"secret UID (%s) does not match service account secret ref claim (%s)", now); err != nil {
			return nil, err
		}
	}
	if c.Pod != nil {
		pod, err := v.Get.Pod(ctx, c.Namespace, c.Pod.Name)
		if err != nil {
			return nil, errInvalidated()
		}
		if err := same(c.Pod, pod, "pod UID (%s) does not match service account pod ref claim (%s)", now); err != nil {
			return nil, err
		}
		info.PodName, info.PodUID = c.Pod.Name, c.Pod.UID
	}
	if c.Node != nil {
		if c.Pod == nil { // Kubernetes does not check the node if the token is bound to a pod
			node, err := v.Get.Node(ctx, c.Node.Name)
			if err != nil {
				return nil, errInvalidated()
			}
			if err := same(c.Node, node, "node UID (%s) does not match service account node ref claim (%s)", now); err != nil {
				return nil, err
			}
		}
		info.NodeName, info.NodeUID = c.Node.Name, c.Node.UID
	}
	switch w := c.WarnAfter; {
	case w == nil || *w == 0:
	case !now.After(w.Time()):
		v.Metrics.valid.Inc()
	default:
		v.Metrics.stale.Inc()
		audit.AddAuditAnnotation(ctx, "authentication.k8s.io/stale-token",
			fmt.Sprintf("subject: %s, seconds after warning threshold: %d", public.Subject, now.Unix()-w.Time().Unix()))
	}
	return info, nil
}

func (v *Verifier) account(ctx context.Context, namespace string, ref Ref, now time.Time) error {
	sa, err := v.Get.ServiceAccount(ctx, namespace, ref.Name)
	if err != nil {
		return err
	}
	if string(sa.UID) != ref.UID {
		return fmt.Errorf("service account UID (%s) does not match claim (%s)", sa.UID, ref.UID)
	}
	if gone(&sa.ObjectMeta, now) {
		return fmt.Errorf("service account %s/%s has been deleted", namespace, ref.Name)
	}
	return nil
}

func same(ref *Ref, obj *metav1.ObjectMeta, format string, now time.Time) error {
	if string(obj.UID) != ref.UID {
		return fmt.Errorf(format, obj.UID, ref.UID)
	}
	if gone(obj, now) {
		return errInvalidated()
	}
	return nil
}

// gone reports whether obj was deleted and its grace period is over. Like the times in claims, the
// time of deletion has a leeway of jwt.DefaultLeeway.
func gone(obj *metav1.ObjectMeta, now time.Time) bool {
	return obj.DeletionTimestamp != nil && obj.DeletionTimestamp.Time.Before(now.Add(-jwt.DefaultLeeway))
}

// legacy checks a token from a secret, and returns its user.
func (v *Verifier) legacy(ctx context.Context, token string, audiences authenticator.Audiences,
	public *jwt.Claims, c *legacyClaims) (*authenticator.Response, bool, error) {
	if public.Subject == "" {
		return nil, false, errors.New("sub claim is missing")
	}
	for _, claim := range []struct{ name, value string }{
		{"namespace", c.Namespace}, {"secretName", c.SecretName},
		{"serviceAccountName", c.ServiceAccountName}, {"serviceAccountUID", c.ServiceAccountUID},
	} {
		if claim.value == "" {
			return nil, false, fmt.Errorf("%s claim is missing", claim.name)
		}
	}
	if public.Subject != serviceaccount.MakeUsername(c.Namespace, c.ServiceAccountName) {
		return nil, false, errors.New("sub claim is invalid")
	}
	if v.Lookup {
		if err := v.stored(ctx, token, c); err != nil {
			return nil, false, err
		}
	}
	u := serviceaccount.UserInfo(c.Namespace, c.ServiceAccountName, c.ServiceAccountUID)
	return &authenticator.Response{User: u, Audiences: audiences}, true, nil
}

var _ authenticator.Token = (*Verifier)(nil)
