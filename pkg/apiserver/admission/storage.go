// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"cmp"
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	storagelisters "k8s.io/client-go/listers/storage/v1"
)

// newest returns the newest object for which isDefault returns true. If several are equally new, it
// returns the first by name. ok is false if there is none.
func newest[T metav1.Object](all []T, isDefault func(T) bool) (found T, ok bool) {
	marked := slices.DeleteFunc(slices.Clone(all), func(o T) bool { return !isDefault(o) })
	if len(marked) == 0 {
		return found, false
	}
	return slices.MinFunc(marked, func(a, b T) int {
		ta, tb := a.GetCreationTimestamp(), b.GetCreationTimestamp()
		return cmp.Or(tb.Compare(ta.Time), cmp.Compare(a.GetName(), b.GetName()))
	}), true
}

// newDefaultStorageClass returns the plugin DefaultStorageClass, which sets the class of claims
// that have none.
func newDefaultStorageClass(deps Deps) (admission.Interface, error) {
	informer := deps.Informers.Storage().V1().StorageClasses()
	lister := informer.Lister()
	h := admission.NewHandler(admission.Create)
	h.SetReadyFunc(informer.Informer().HasSynced)
	return &typed[*corev1.PersistentVolumeClaim]{
		Handler: h, resource: "persistentvolumeclaims",
		admit: func(_ context.Context, a admission.Attributes, claim *corev1.PersistentVolumeClaim) error {
			if _, ok := claim.Annotations[corev1.BetaStorageClassAnnotation]; ok || claim.Spec.StorageClassName != nil {
				return nil
			}
			all, err := lister.List(labels.Everything())
			if err != nil {
				return admission.NewForbidden(a, err)
			}
			if class, ok := newest(all, defaultStorageClass); ok {
				claim.Spec.StorageClassName = &class.Name
			}
			return nil
		},
	}, nil
}

func defaultStorageClass(c *storagev1.StorageClass) bool {
	return c.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" ||
		c.Annotations["storageclass.beta.kubernetes.io/is-default-class"] == "true"
}

// newDefaultIngressClass returns the plugin DefaultIngressClass, which sets the class of Ingresses
// that have none.
func newDefaultIngressClass(deps Deps) (admission.Interface, error) {
	informer := deps.Informers.Networking().V1().IngressClasses()
	lister := informer.Lister()
	h := admission.NewHandler(admission.Create)
	h.SetReadyFunc(informer.Informer().HasSynced)
	return &typed[*networkingv1.Ingress]{
		Handler: h, group: networkingv1.GroupName, resource: "ingresses",
		admit: func(_ context.Context, a admission.Attributes, ing *networkingv1.Ingress) error {
			if _, ok := ing.Annotations["kubernetes.io/ingress.class"]; ok || ing.Spec.IngressClassName != nil {
				return nil
			}
			all, err := lister.List(labels.Everything())
			if err != nil {
				return admission.NewForbidden(a, err)
			}
			class, ok := newest(all, func(c *networkingv1.IngressClass) bool {
				return c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true"
			})
			if ok {
				ing.Spec.IngressClassName = &class.Name
			}
			return nil
		},
	}, nil
}

// inUse is the plugin StorageObjectInUseProtection. It adds finalizers to claims, volumes and
// VolumeAttributesClasses, so that these stay while they are in use.
type inUse struct{ *admission.Handler }

func newInUseProtection(Deps) (admission.Interface, error) {
	return &inUse{admission.NewHandler(admission.Create)}, nil
}

// Admit adds the finalizer to a claim, volume or VolumeAttributesClass.
func (inUse) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetSubresource() != "" {
		return nil
	}
	switch o := a.GetObject().(type) {
	case *corev1.PersistentVolumeClaim:
		addFinalizer(o, "kubernetes.io/pvc-protection")
	case *corev1.PersistentVolume:
		addFinalizer(o, "kubernetes.io/pv-protection")
	case *storagev1.VolumeAttributesClass:
		addFinalizer(o, "kubernetes.io/vac-protection")
	}
	return nil
}

// groupProtection is the plugin PodGroupProtection. It adds a finalizer to pod groups, so that a
// group stays while pods refer to it.
type groupProtection struct{ *admission.Handler }

func newGroupProtection(Deps) (admission.Interface, error) {
	return &groupProtection{admission.NewHandler(admission.Create)}, nil
}

// Admit adds the finalizer to a pod group.
func (groupProtection) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if g, ok := a.GetObject().(*schedulingv1beta1.PodGroup); ok && a.GetSubresource() == "" {
		addFinalizer(g, schedulingv1beta1.GroupName+"/podgroup-protection")
	}
	return nil
}

func addFinalizer(o interface {
	metav1.Object
	runtime.Object
}, name string) {
	if f := o.GetFinalizers(); !slices.Contains(f, name) {
		o.SetFinalizers(append(f, name))
	}
}

// newClaimResize returns the plugin PersistentVolumeClaimResize. It rejects a larger size of a
// claim unless its storage class allows expansion.
func newClaimResize(deps Deps) (admission.Interface, error) {
	informer := deps.Informers.Storage().V1().StorageClasses()
	lister := informer.Lister()
	h := admission.NewHandler(admission.Update)
	h.SetReadyFunc(informer.Informer().HasSynced)
	return &typed[*corev1.PersistentVolumeClaim]{
		Handler: h, resource: "persistentvolumeclaims",
		validate: func(_ context.Context, a admission.Attributes, claim *corev1.PersistentVolumeClaim) error {
			old, ok := a.GetOldObject().(*corev1.PersistentVolumeClaim)
			if !ok {
				return nil
			}
			was, now := old.Spec.Resources.Requests[corev1.ResourceStorage],
				claim.Spec.Resources.Requests[corev1.ResourceStorage]
			switch {
			case now.Cmp(was) <= 0:
				return nil
			case old.Status.Phase != corev1.ClaimBound:
				// This is Kubernetes' message.
				return admission.NewForbidden(a, errors.New("Only bound persistent volume claims can be expanded"))
			case !expandable(lister, claim, old):
				return admission.NewForbidden(a, errors.New("only dynamically provisioned pvc can be resized and "+
					"the storageclass that provisions the pvc must support resize"))
			}
			return nil
		},
	}, nil
}

func expandable(lister storagelisters.StorageClassLister, claim, old *corev1.PersistentVolumeClaim) bool {
	name := className(claim)
	if name == "" || name != className(old) {
		return false
	}
	class, err := lister.Get(name)
	return err == nil && class.AllowVolumeExpansion != nil && *class.AllowVolumeExpansion
}

func className(c *corev1.PersistentVolumeClaim) string {
	if n, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return n
	}
	if c.Spec.StorageClassName != nil {
		return *c.Spec.StorageClassName
	}
	return ""
}
