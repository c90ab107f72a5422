// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"

	"keelson.dev/keelson/pkg/outbound"
)

const (
	// imageAuditPrefix is the prefix of the audit annotations.
	imageAuditPrefix = "imagepolicywebhook.image-policy.k8s.io/"
	// imageVerdicts is the maximum number of cached answers of the webhook.
	imageVerdicts = 1024
)

// imageSettings are the settings of the plugin ImagePolicyWebhook. Their format has no API version.
type imageSettings struct {
	KubeConfigFile string        `json:"kubeConfigFile"`
	AllowTTL       time.Duration `json:"allowTTL"`     // in seconds in the file
	DenyTTL        time.Duration `json:"denyTTL"`      // in seconds in the file
	RetryBackoff   time.Duration `json:"retryBackoff"` // in milliseconds in the file
	DefaultAllow   bool          `json:"defaultAllow"`
}

// normalize converts the numbers from the file to durations, and sets defaults.
func (s *imageSettings) normalize() error {
	for _, d := range []struct {
		value                     *time.Duration
		unit, least, most, absent time.Duration
	}{
		{&s.RetryBackoff, time.Millisecond, time.Nanosecond, 5 * time.Minute, 500 * time.Millisecond},
		{&s.AllowTTL, time.Second, time.Second, 30 * time.Minute, 5 * time.Minute},
		{&s.DenyTTL, time.Second, time.Second, 30 * time.Minute, 30 * time.Second},
	} {
		switch v := *d.value; v {
		case -1: // -1 stands for 0: answers are not cached, or retries have no delay
			*d.value = 0
		case 0:
			*d.value = d.absent
		default:
			most := time.Duration(math.MaxInt64) / d.unit // the largest number that does not overflow
			*d.value = max(-most, min(v, most)) * d.unit  //nolint:durationcheck // v counts units
			if *d.value < d.least || *d.value > d.most {
				return fmt.Errorf("valid value is between %v and %v, got %v", d.least, d.most, *d.value)
			}
		}
	}
	return nil
}

// imagePolicy asks a webhook whether the images of a pod are allowed.
type imagePolicy struct {
	imageSettings
	hook     *webhook.GenericWebhook
	verdicts *cache.LRUExpireCache
	log      *slog.Logger
}

func newImagePolicy(deps Deps) (admission.Interface, error) {
	if deps.settings == nil {
		return nil, errors.New("no config specified")
	}
	var settings struct {
		ImagePolicy imageSettings `json:"imagePolicy"`
	}
	if err := yaml.NewYAMLOrJSONDecoder(deps.settings, 4096).Decode(&settings); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	p := &imagePolicy{imageSettings: settings.ImagePolicy,
		verdicts: cache.NewLRUExpireCacheWithClock(imageVerdicts, deps.Clock), log: deps.Log}
	if err := p.normalize(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	client, err := webhook.LoadKubeconfig(p.KubeConfigFile, nil)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	// The webhook may have any address, because the administrator configured it. Redirects are not
	// followed.
	client.Wrap(outbound.NoRedirects)
	scheme := runtime.NewScheme()
	if err := imagepolicyv1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	p.hook, err = webhook.NewGenericWebhook(scheme, serializer.NewCodecFactory(scheme), client,
		[]schema.GroupVersion{imagepolicyv1alpha1.SchemeGroupVersion},
		webhook.DefaultRetryBackoffWithInitialDelay(p.RetryBackoff))
	if err != nil {
		return nil, fmt.Errorf("image policy webhook: %w", err)
	}
	return &podPlugin{
		Handler:      admission.NewHandler(admission.Create, admission.Update),
		subresources: []string{"ephemeralcontainers"}, validate: p.validate,
	}, nil
}

func (p *imagePolicy) validate(ctx context.Context, a admission.Attributes, pod *corev1.Pod) error {
	review := &imagepolicyv1alpha1.ImageReview{
		Spec: imagepolicyv1alpha1.ImageReviewSpec{Namespace: a.GetNamespace(), Annotations: map[string]string{}}}
	add := func(image string) {
		review.Spec.Containers = append(review.Spec.Containers, imagepolicyv1alpha1.ImageReviewContainerSpec{Image: image})
	}
	if a.GetSubresource() == "" {
		for i := range pod.Spec.Containers {
			add(pod.Spec.Containers[i].Image)
		}
		for i := range pod.Spec.InitContainers {
			add(pod.Spec.InitContainers[i].Image)
		}
	} else {
		for i := range pod.Spec.EphemeralContainers {
			add(pod.Spec.EphemeralContainers[i].Image)
		}
	}
	for k, v := range pod.Annotations {
		if strings.Contains(k, ".image-policy.k8s.io/") {
			review.Spec.Annotations[k] = v
		}
	}
	status, err := p.verdict(ctx, review)
	if err != nil {
		if !p.DefaultAllow {
			return admission.NewForbidden(a, err)
		}
		p.annotate(a, "failed-open", "true")
		return nil
	}
	for k, v := range status.AuditAnnotations {
		p.annotate(a, k, v)
	}
	switch {
	case status.Allowed:
		return nil
	case status.Reason != "":
		return admission.NewForbidden(a,
			fmt.Errorf("image policy webhook backend denied one or more images: %s", status.Reason))
	}
	return admission.NewForbidden(a, errors.New("one or more images rejected by webhook backend"))
}

// verdict returns the webhook's answer to a review, from the cache if possible.
func (p *imagePolicy) verdict(ctx context.Context, review *imagepolicyv1alpha1.ImageReview) (
	*imagepolicyv1alpha1.ImageReviewStatus, error) {
	data, err := json.Marshal(review.Spec)
	if err != nil {
		return nil, fmt.Errorf("image review: %w", err)
	}
	key := string(data)
	if said, ok := p.verdicts.Get(key); ok {
		return said.(*imagepolicyv1alpha1.ImageReviewStatus), nil
	}
	result := p.hook.WithExponentialBackoff(ctx,
		func() rest.Result { return p.hook.RestClient.Post().Body(review).Do(ctx) })
	if err := result.Error(); err != nil {
		return nil, err // returned unwrapped, as in Kubernetes
	}
	if err := result.Into(review); err != nil {
		return nil, err
	}
	ttl := p.DenyTTL
	if review.Status.Allowed {
		ttl = p.AllowTTL
	}
	p.verdicts.Add(key, &review.Status, ttl)
	return &review.Status, nil
}

// annotate adds an annotation to the audit event of the request.
func (p *imagePolicy) annotate(a admission.Attributes, key, value string) {
	if err := a.AddAnnotation(imageAuditPrefix+key, value); err != nil {
		p.log.Warn("Failed to annotate audit event", "key", imageAuditPrefix+key, "err", err)
	}
}
