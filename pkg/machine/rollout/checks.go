// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/rest"

	"keelson.dev/keelson/pkg/apiserver/admission/webhookhealth"
	"keelson.dev/keelson/pkg/machine/preflight"
)

// CheckAPI returns what an API server knows that stands in the way of an upgrade to a version of
// Kubernetes: removed APIs in use, and webhooks that fail. Each API server knows only its own requests.
// If target is nil, only webhooks are checked.
func CheckAPI(ctx context.Context, api rest.Interface, target *version.Version) ([]preflight.Finding, error) {
	doc, err := api.Get().AbsPath(webhookhealth.Path).DoRaw(ctx)
	if err != nil && !apierrors.IsNotFound(err) { // an older release has no such path
		return nil, fmt.Errorf("health of webhooks: %w", err)
	}
	var webhooks webhookhealth.Document
	if err == nil {
		if err := json.Unmarshal(doc, &webhooks); err != nil {
			return nil, fmt.Errorf("health of webhooks: %w", err)
		}
	}
	out := failingWebhooks(webhooks.Webhooks)
	if target == nil {
		return out, nil
	}
	metrics, err := api.Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("metrics of the API server: %w", err)
	}
	return append(out, removedAPIs(string(metrics), target)...), nil
}

// failingWebhooks returns findings about webhooks that fail now. An upgrade makes many requests; those
// that a webhook blocks could make a machine look broken.
func failingWebhooks(list []webhookhealth.Webhook) (out []preflight.Finding) {
	for i := range list {
		w := &list[i]
		if w.State != webhookhealth.Open && w.State != webhookhealth.HalfOpen {
			continue
		}
		f := preflight.Finding{
			Check: checkWebhooks, Severity: preflight.Warning,
			What: fmt.Sprintf("webhook %s of %s %s fails: %s", w.Name, strings.ToLower(w.Type), w.Configuration,
				w.LastReason),
			Remedy: "repair the webhook's server, or delete the configuration (see \"ctl webhooks\")",
		}
		if w.FailurePolicy == "Fail" {
			f.Severity = preflight.Error
		}
		out = append(out, f)
	}
	return out
}

var (
	deprecated = regexp.MustCompile(`(?m)^apiserver_requested_deprecated_apis\{(.*)\} [1-9]`)
	label      = regexp.MustCompile(`(\w+)="([^"]*)"`)
)

// removedAPIs returns findings about APIs that clients have used since the start of the API server, and
// that a version of Kubernetes does not have any more. metrics has those of the API server.
func removedAPIs(metrics string, target *version.Version) (out []preflight.Finding) {
	for _, line := range deprecated.FindAllStringSubmatch(metrics, -1) {
		labels := map[string]string{}
		for _, l := range label.FindAllStringSubmatch(line[1], -1) {
			labels[l[1]] = l[2]
		}
		removed, err := version.ParseGeneric(labels["removed_release"])
		if err != nil || target.LessThan(removed) { // or it is not known when it will be removed
			continue
		}
		api := strings.TrimPrefix(labels["group"]+"/"+labels["version"]+" "+labels["resource"], "/")
		out = append(out, preflight.Finding{
			Check: checkRemoved, Severity: preflight.Error,
			What: fmt.Sprintf("clients use %s, which Kubernetes %s does not have", api, labels["removed_release"]),
			Remedy: "let them use a newer version of the API; the audit log of the API servers names the clients " +
				"(annotation k8s.io/removed-release)",
		})
	}
	return out
}
