// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/metrics/legacyregistry"
	podsecurity "k8s.io/pod-security-admission/admission"
	"k8s.io/pod-security-admission/admission/api/load"
	podsecurityapi "k8s.io/pod-security-admission/api"
	podsecuritymetrics "k8s.io/pod-security-admission/metrics"
	"k8s.io/pod-security-admission/policy"

	"keelson.dev/keelson/pkg/daemon"
)

// podSecurity is the plugin PodSecurity, which enforces the pod security standard of a namespace.
// The library k8s.io/pod-security-admission defines the standards and evaluates pods.
type podSecurity struct {
	*admission.Handler
	delegate *podsecurity.Admission
	// updates evaluates updates. Unlike delegate, it does not require that the namespace exists.
	updates podsecurity.Admission
}

// leftBehind returns the namespaces of existing objects. A namespace that was finalized by hand may
// be gone although it still has pods. For such a namespace, it returns one without labels, so that
// the defaults of the configuration apply. If it returned an error instead, the finalizers of the
// pods could never be removed.
type leftBehind struct{ podsecurity.NamespaceGetter }

// GetNamespace returns the namespace, or one without labels if it does not exist.
func (l leftBehind) GetNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	ns, err := l.NamespaceGetter.GetNamespace(ctx, name)
	if apierrors.IsNotFound(err) {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
	}
	return ns, err
}

func newPodSecurity(deps Deps) (admission.Interface, error) {
	cfg, err := load.LoadFromReader(deps.settings)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	var latest *podsecurityapi.Version
	if deps.Emulated != 0 {
		v := podsecurityapi.MajorMinorVersion(1, int(deps.Emulated))
		latest = &v
	}
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), latest)
	if err != nil {
		return nil, fmt.Errorf("checks: %w", err)
	}
	recorder, err := podSecurityRecorder()
	if err != nil {
		return nil, err
	}
	namespaces := deps.Informers.Core().V1().Namespaces()
	p := &podSecurity{
		Handler: admission.NewHandler(admission.Create, admission.Update),
		delegate: &podsecurity.Admission{
			Configuration: cfg, Evaluator: evaluator, Metrics: recorder,
			PodSpecExtractor: podsecurity.DefaultPodSpecExtractor{},
			NamespaceGetter:  podsecurity.NamespaceGetterFromListerAndClient(namespaces.Lister(), deps.Client),
			PodLister:        livePods{deps.Client},
		},
	}
	p.SetReadyFunc(namespaces.Informer().HasSynced)
	if err := p.delegate.CompleteConfiguration(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	p.updates = *p.delegate
	p.updates.NamespaceGetter = leftBehind{p.delegate.NamespaceGetter}
	return p, wrapConfiguration(p.delegate.ValidateConfiguration())
}

func wrapConfiguration(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("configuration: %w", err)
}

// Validate evaluates pods, pod templates and namespaces.
func (p *podSecurity) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	gr := a.GetResource().GroupResource()
	core := gr.Group == "" && (gr.Resource == "pods" || gr.Resource == "namespaces")
	if !core && !p.delegate.PodSpecExtractor.HasPodSpec(gr) {
		return nil
	}
	delegate := p.delegate
	if a.GetOperation() == admission.Update {
		delegate = &p.updates
	}
	result := delegate.Validate(ctx, podSecurityAttributes{a})
	for _, w := range result.Warnings {
		warning.AddWarning(ctx, "", w)
	}
	for k, v := range result.AuditAnnotations {
		audit.AddAuditAnnotation(ctx, podsecurityapi.AuditAnnotationPrefix+k, v)
	}
	if result.Allowed {
		return nil
	}
	err := admission.NewForbidden(a, errors.New("Not allowed by PodSecurity")) // this is Kubernetes' text
	var status *apierrors.StatusError
	if r := result.Result; r != nil && errors.As(err, &status) {
		s := &status.ErrStatus
		if r.Message != "" {
			s.Message = r.Message
		}
		if r.Reason != "" {
			s.Reason = r.Reason
		}
		if r.Details != nil {
			s.Details = r.Details
		}
		if r.Code != 0 {
			s.Code = r.Code
		}
	}
	return err
}

// podSecurityAttributes has the attributes of a write in the form that the library needs.
type podSecurityAttributes struct{ admission.Attributes }

func (a podSecurityAttributes) GetObject() (runtime.Object, error) {
	return a.Attributes.GetObject(), nil
}

func (a podSecurityAttributes) GetOldObject() (runtime.Object, error) {
	return a.Attributes.GetOldObject(), nil
}

func (a podSecurityAttributes) GetOperation() admissionv1.Operation {
	return admissionv1.Operation(a.Attributes.GetOperation())
}

func (a podSecurityAttributes) GetResource() schema.GroupVersionResource {
	return a.Attributes.GetResource()
}

func (a podSecurityAttributes) GetUserName() string { return a.GetUserInfo().GetName() }

// livePods lists pods from the server instead of an informer: they are needed only when the
// standard of a namespace changes.
type livePods struct{ client kubernetes.Interface }

// ListPods returns the pods of a namespace.
func (l livePods) ListPods(ctx context.Context, namespace string) ([]*corev1.Pod, error) {
	list, err := l.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	return slices.Collect(func(yield func(*corev1.Pod) bool) {
		for i := range list.Items {
			if !yield(&list.Items[i]) {
				return
			}
		}
	}), nil
}

// podSecurityRecorder counts evaluations, in metrics of the global registry.
var podSecurityRecorder = sync.OnceValues(func() (podsecuritymetrics.Recorder, error) {
	version, err := podsecurityapi.ParseVersion("v" + daemon.Major + "." + daemon.Minor)
	if err != nil {
		return nil, fmt.Errorf("version of this server: %w", err)
	}
	r := podsecuritymetrics.NewPrometheusRecorder(version)
	r.MustRegister(legacyregistry.MustRegister)
	return r, nil
})
