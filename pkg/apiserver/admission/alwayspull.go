// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"keelson.dev/keelson/pkg/api/podspec"
)

// newAlwaysPull returns the plugin AlwaysPullImages, which sets imagePullPolicy to Always. A pod
// can then start only with the credentials to pull its images, even if another pod has pulled them
// to the node. As in Kubernetes, the plugin ignores ephemeral containers, and updates without new
// images.
func newAlwaysPull(Deps) (admission.Interface, error) {
	return &podPlugin{
		Handler: admission.NewHandler(admission.Create, admission.Update),
		admit: func(_ context.Context, a admission.Attributes, pod *corev1.Pod) error {
			if bringsImages(a, pod) {
				for _, p := range pulls(pod) {
					*p.policy = corev1.PullAlways
				}
			}
			return nil
		},
		validate: func(_ context.Context, a admission.Attributes, pod *corev1.Pod) error {
			if !bringsImages(a, pod) {
				return nil
			}
			var errs []error
			for _, p := range pulls(pod) {
				if *p.policy != corev1.PullAlways {
					errs = append(errs, admission.NewForbidden(a,
						field.NotSupported(p.path, *p.policy, []string{string(corev1.PullAlways)})))
				}
			}
			return utilerrors.NewAggregate(errs)
		},
	}, nil
}

// bringsImages reports whether the write adds an image: the pod is created, or one of its
// containers has an image that no container of the stored pod has.
func bringsImages(a admission.Attributes, pod *corev1.Pod) bool {
	old, ok := a.GetOldObject().(*corev1.Pod)
	return a.GetOperation() != admission.Update || !ok || images(pod).Difference(images(old)).Len() > 0
}

func images(pod *corev1.Pod) sets.Set[string] {
	all := sets.New[string]()
	for _, c := range podspec.Containers(&pod.Spec, nil) {
		all.Insert(c.Image)
	}
	return all
}

// pull is the field for the image pull policy in a container or image volume.
type pull struct {
	path   *field.Path
	policy *corev1.PullPolicy
}

func pulls(pod *corev1.Pod) []pull {
	var all []pull
	path := field.NewPath("spec")
	for place, c := range podspec.Containers(&pod.Spec, path) {
		all = append(all, pull{place.Path.Child("imagePullPolicy"), &c.ImagePullPolicy})
	}
	for i := range pod.Spec.Volumes {
		if image := pod.Spec.Volumes[i].Image; image != nil {
			all = append(all, pull{path.Child("volumes").Index(i).Child("image", "pullPolicy"), &image.PullPolicy})
		}
	}
	return all
}
