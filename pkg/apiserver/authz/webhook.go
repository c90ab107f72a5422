// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook"
	webhookmetrics "k8s.io/apiserver/plugin/pkg/authorizer/webhook/metrics"

	"keelson.dev/keelson/pkg/outbound"
)

// webhookMetrics records metrics of webhooks and of their match conditions. It records no metrics
// of single requests, because the metrics of authorization decisions count them.
type webhookMetrics struct {
	webhookmetrics.NoopRequestMetrics
	webhookmetrics.WebhookMetrics
	authorizationcel.MatcherMetrics
}

// retries returns Kubernetes' backoff for calls of authorization webhooks. It is short, because the
// client's request waits for the call.
func retries() wait.Backoff {
	return wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}
}

// newWebhook returns an authorizer that calls a webhook. The webhook may have any address, because
// the administrator configured it. Redirects are not followed.
func newWebhook(a *apiserver.AuthorizerConfiguration, compiler authorizationcel.Compiler) (Authorizer, error) {
	w := a.Webhook
	client, err := webhookutil.LoadKubeconfig(*w.ConnectionInfo.KubeConfigFile, nil)
	if err != nil {
		return nil, err
	}
	client.Wrap(outbound.NoRedirects)
	if w.Timeout.Duration != 0 {
		client.Timeout = w.Timeout.Duration
	}
	onError := authorizer.DecisionDeny
	switch w.FailurePolicy {
	case apiserver.FailurePolicyDeny:
	case apiserver.FailurePolicyNoOpinion:
		onError = authorizer.DecisionNoOpinion
	default:
		return nil, fmt.Errorf("unknown failurePolicy %q", w.FailurePolicy)
	}
	yes, no := w.AuthorizedTTL.Duration, w.UnauthorizedTTL.Duration
	if !w.CacheAuthorizedRequests {
		yes = 0
	}
	if !w.CacheUnauthorizedRequests {
		no = 0
	}
	return webhook.New(client, w.SubjectAccessReviewVersion, yes, no, retries(), onError, w.MatchConditions, a.Name,
		webhookMetrics{WebhookMetrics: webhookmetrics.NewWebhookMetrics(),
			MatcherMetrics: authorizationcel.NewMatcherMetrics()}, compiler)
}
