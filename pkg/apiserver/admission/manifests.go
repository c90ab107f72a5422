// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	policyloader "k8s.io/apiserver/pkg/admission/plugin/policy/manifest/loader"
	webhookloader "k8s.io/apiserver/pkg/admission/plugin/webhook/manifest/loader"

	"keelson.dev/keelson/pkg/api/admissionregistration"
)

// manifests gives the plugins of webhooks and policies the functions that read configurations from files. The
// plugins read the files of the directory in their settings, and read them again when they change.
type manifests struct{ decoder runtime.Decoder }

func newManifests() (manifests, error) {
	scheme := runtime.NewScheme()
	if err := admissionregistrationv1.AddToScheme(scheme); err != nil {
		return manifests{}, fmt.Errorf("kinds of manifest files: %w", err)
	}
	scheme.AddUnversionedTypes(metav1.SchemeGroupVersion, &metav1.List{}, &metav1.Status{})
	return manifests{serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()}, nil
}

// Initialize implements admission.PluginInitializer.
func (m manifests) Initialize(plugin admission.Interface) {
	wants, ok := plugin.(initializer.WantsManifestLoaders)
	if !ok {
		return
	}
	rules := admissionregistration.NewManifestRules()
	wants.SetManifestLoaders(&initializer.ManifestLoaders{
		LoadValidatingWebhookManifests: func(dir string) ([]*admissionregistrationv1.ValidatingWebhookConfiguration,
			string, error) {
			return webhookloader.LoadManifests(dir, m.decoder,
				accept[*admissionregistrationv1.ValidatingWebhookConfiguration](rules, nil))
		},
		LoadMutatingWebhookManifests: func(dir string) ([]*admissionregistrationv1.MutatingWebhookConfiguration,
			string, error) {
			return webhookloader.LoadManifests(dir, m.decoder,
				accept[*admissionregistrationv1.MutatingWebhookConfiguration](rules, nil))
		},
		LoadValidatingPolicyManifests: func(dir string) ([]*admissionregistrationv1.ValidatingAdmissionPolicy,
			[]*admissionregistrationv1.ValidatingAdmissionPolicyBinding, string, error) {
			return policyloader.LoadPolicyManifests(dir, m.decoder,
				accept[*admissionregistrationv1.ValidatingAdmissionPolicy](rules, policyloader.ErrUnrecognizedType),
				accept[*admissionregistrationv1.ValidatingAdmissionPolicyBinding](rules, policyloader.ErrUnrecognizedType),
				func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) string { return b.Spec.PolicyName })
		},
		LoadMutatingPolicyManifests: func(dir string) ([]*admissionregistrationv1.MutatingAdmissionPolicy,
			[]*admissionregistrationv1.MutatingAdmissionPolicyBinding, string, error) {
			return policyloader.LoadPolicyManifests(dir, m.decoder,
				accept[*admissionregistrationv1.MutatingAdmissionPolicy](rules, policyloader.ErrUnrecognizedType),
				accept[*admissionregistrationv1.MutatingAdmissionPolicyBinding](rules, policyloader.ErrUnrecognizedType),
				func(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) string { return b.Spec.PolicyName })
		},
	})
}

// accept returns a function that extracts the objects of type T from a decoded object, which is
// either one of them or a list. It sets their defaults and validates them. If an object has another
// type, it returns the error unknown or, if that is nil, an error that names the type.
func accept[T runtime.Object](rules admissionregistration.ManifestRules,
	unknown error) func(runtime.Object) ([]T, error) {
	return func(obj runtime.Object) ([]T, error) {
		objs := []runtime.Object{obj}
		if meta.IsListType(obj) {
			var err error
			if objs, err = meta.ExtractList(obj); err != nil {
				return nil, err
			}
		}
		out := make([]T, 0, len(objs))
		for _, o := range objs {
			one, ok := o.(T)
			if !ok {
				if unknown != nil {
					return nil, unknown
				}
				return nil, fmt.Errorf("unsupported resource type %T", obj)
			}
			if err := rules.Apply(one); err != nil {
				return nil, err
			}
			out = append(out, one)
		}
		return out, nil
	}
}
