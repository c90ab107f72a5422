// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/ptr"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/nodeauth"
	"keelson.dev/keelson/pkg/apiserver/satoken"
)

const (
	tokenVolume    = "kube-api-access"
	tokenMountPath = "/var/run/secrets/kubernetes.io/serviceaccount"
)

// serviceAccounts is the plugin ServiceAccount. It sets the service account of a pod, the volume
// with its token, and its image pull secrets.
type serviceAccounts struct {
	client kubernetes.Interface
	lister corelisters.ServiceAccountLister
	clock  clock.Clock
}

func newServiceAccount(deps Deps) (admission.Interface, error) {
	p := &serviceAccounts{client: deps.Client, clock: deps.Clock}
	informer := deps.Informers.Core().V1().ServiceAccounts()
	p.lister = informer.Lister()
	h := admission.NewHandler(admission.Create, admission.Update)
	h.SetReadyFunc(informer.Informer().HasSynced)
	return &podPlugin{Handler: h, subresources: []string{"ephemeralcontainers"}, admit: p.admit, validate: p.validate}, nil
}

func mirror(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return ok
}

func (p *serviceAccounts) admit(ctx context.Context, a admission.Attributes, pod *corev1.Pod) error {
	if a.GetOperation() != admission.Create || a.GetSubresource() != "" {
		return nil
	}
	if mirror(pod) {
		return validateMirror(a, pod) // do not change a mirror pod: it must equal the static pod on its node
	}
	if pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = "default"
	}
	pod.Spec.DeprecatedServiceAccount = pod.Spec.ServiceAccountName
	sa, err := p.account(ctx, a.GetNamespace(), pod.Spec.ServiceAccountName)
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf("error looking up service account %s/%s: %w",
			a.GetNamespace(), pod.Spec.ServiceAccountName, err))
	}
	if mounts(sa, pod) {
		mountToken(pod)
	}
	if len(pod.Spec.ImagePullSecrets) == 0 {
		for _, s := range sa.ImagePullSecrets {
			pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: s.Name})
		}
	}
	// As in Kubernetes, secrets are checked before all other plugins check the pod.
	return mountable(a, sa, pod, false)
}

// account returns a service account. If the account "default" does not exist, it tries again for up
// to a second, because a controller creates that account shortly after the namespace.
func (p *serviceAccounts) account(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	if sa, err := p.lister.ServiceAccounts(namespace).Get(name); err == nil {
		return sa, nil
	}
	attempts := 1
	if name == "default" {
		attempts = 10
	}
	for i := range attempts {
		if i > 0 {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-p.clock.After(wait.Jitter(50*time.Millisecond, 1)):
			}
		}
		sa, err := p.client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil || !apierrors.IsNotFound(err) {
			return sa, err
		}
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccount"}, name)
}

func mounts(sa *corev1.ServiceAccount, pod *corev1.Pod) bool {
	if v := pod.Spec.AutomountServiceAccountToken; v != nil {
		return *v
	}
	return sa.AutomountServiceAccountToken == nil || *sa.AutomountServiceAccountToken
}

// mountToken adds a volume with token, CA and namespace, and mounts it at the path where clients in
// pods expect it. It does not mount it in a container that has another mount at this path.
func mountToken(pod *corev1.Pod) {
	name, exists := "", false
	for _, v := range pod.Spec.Volumes {
		if strings.HasPrefix(v.Name, tokenVolume+"-") {
			name, exists = v.Name, true
			break
		}
	}
	if name == "" {
		name = names.SimpleNameGenerator.GenerateName(tokenVolume + "-")
	}
	needed := false
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if !mountedAt(&list[i], tokenMountPath) {
				list[i].VolumeMounts = append(list[i].VolumeMounts,
					corev1.VolumeMount{Name: name, ReadOnly: true, MountPath: tokenMountPath})
				needed = true
			}
		}
	}
	if needed && !exists {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
			Name: name, VolumeSource: corev1.VolumeSource{Projected: tokenSource()},
		})
	}
}

func mountedAt(c *corev1.Container, path string) bool {
	for _, m := range c.VolumeMounts {
		if m.MountPath == path {
			return true
		}
	}
	return false
}

func tokenSource() *corev1.ProjectedVolumeSource {
	return &corev1.ProjectedVolumeSource{
		DefaultMode: ptr.To(corev1.ProjectedVolumeSourceDefaultMode),
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token",
				ExpirationSeconds: ptr.To(satoken.WarnAfter)}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
				Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
			}}}},
		},
	}
}

func (p *serviceAccounts) validate(ctx context.Context, a admission.Attributes, pod *corev1.Pod) error {
	ephemeral := a.GetSubresource() == "ephemeralcontainers"
	if ephemeral != (a.GetOperation() == admission.Update) {
		return nil
	}
	if !ephemeral && mirror(pod) {
		return validateMirror(a, pod)
	}
	if pod.Spec.ServiceAccountName == "" {
		return admission.NewForbidden(a, fmt.Errorf("no service account specified for pod %s/%s", a.GetNamespace(), pod.Name))
	}
	sa, err := p.account(ctx, a.GetNamespace(), pod.Spec.ServiceAccountName)
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf("error looking up service account %s/%s: %w",
			a.GetNamespace(), pod.Spec.ServiceAccountName, err))
	}
	return mountable(a, sa, pod, ephemeral)
}

// mountable returns an error if the pod refers to a secret that the service account does not list.
// It returns nil if the account does not enforce its list.
func mountable(a admission.Attributes, sa *corev1.ServiceAccount, pod *corev1.Pod, ephemeral bool) error {
	if enforced, _ := strconv.ParseBool(sa.Annotations["kubernetes.io/enforce-mountable-secrets"]); !enforced {
		return nil
	}
	err := mountableOnly(sa, pod, ephemeral)
	if err == nil || ephemeral {
		return err // as in Kubernetes, the answer for ephemeral containers is 500 with this message
	}
	return admission.NewForbidden(a, err)
}

// validateMirror rejects a mirror pod that refers to a service account or secrets. Nodes create
// mirror pods, and a node may access the objects to which its pods refer.
func validateMirror(a admission.Attributes, pod *corev1.Pod) error {
	if pod.Spec.ServiceAccountName != "" {
		return admission.NewForbidden(a, errors.New("a mirror pod may not reference service accounts"))
	}
	if secrets, _ := nodeauth.Needs(pod); secrets {
		return admission.NewForbidden(a, errors.New("a mirror pod may not reference secrets"))
	}
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.ServiceAccountToken != nil {
				return admission.NewForbidden(a, errors.New("a mirror pod may not use ServiceAccountToken volume projections"))
			}
		}
	}
	return nil
}
