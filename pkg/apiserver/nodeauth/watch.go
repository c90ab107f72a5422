// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeauth

import (
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// Watch passes volumes, attachments, resource slices and pod certificate requests from informers to
// g. Pods passes pods. certificates reports whether the server has pod certificate requests. synced
// reports whether all objects that existed at the start have been processed.
func (g *Graph) Watch(f informers.SharedInformerFactory, certificates bool) (synced func() bool, err error) {
	type watched struct {
		informer cache.SharedIndexInformer
		set, del func(any)
	}
	all := []watched{
		{f.Core().V1().PersistentVolumes().Informer(), on(g.SetVolume), on(g.DeleteVolume)},
		{f.Storage().V1().VolumeAttachments().Informer(), on(g.SetAttachment), on(g.DeleteAttachment)},
		{f.Resource().V1().ResourceSlices().Informer(), on(g.SetSlice), on(g.DeleteSlice)},
	}
	if certificates {
		all = append(all, watched{f.Certificates().V1().PodCertificateRequests().Informer(),
			on(g.SetPodCertificate), on(g.DeletePodCertificate)})
	}
	var regs []cache.ResourceEventHandlerRegistration
	for _, w := range all {
		reg, err := w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: w.set, UpdateFunc: func(_, obj any) { w.set(obj) }, DeleteFunc: w.del,
		})
		if err != nil {
			return nil, fmt.Errorf("watch objects for node authorization: %w", err)
		}
		regs = append(regs, reg)
	}
	return func() bool {
		for _, r := range regs {
			if !r.HasSynced() {
				return false
			}
		}
		return true
	}, nil
}

// on calls f with the object of an informer event, if the object has type T.
func on[T interface {
	*corev1.PersistentVolume | *storagev1.VolumeAttachment | *resourcev1.ResourceSlice |
		*certificatesv1.PodCertificateRequest
}](f func(T)) func(any) {
	return func(obj any) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		if t, ok := obj.(T); ok {
			f(t)
		}
	}
}
