// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package csidrivers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/attachdetach"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
	"keelson.dev/keelson/pkg/controllers/ephemeralvolume"
	"keelson.dev/keelson/pkg/controllers/expander"
	"keelson.dev/keelson/pkg/controllers/garbagecollector"
	"keelson.dev/keelson/pkg/controllers/namespace"
	"keelson.dev/keelson/pkg/controllers/podgc"
	"keelson.dev/keelson/pkg/controllers/protection"
	"keelson.dev/keelson/pkg/controllers/volumebinder"
)

// storage simulates the storage of all drivers. It records which volumes exist and which are
// mounted.
type storage struct {
	t       *testing.T
	mu      sync.Mutex
	exists  map[string]bool // whether the volume exists, by handle; false after it was deleted
	mounted map[string]bool
}

func (s *storage) set(m map[string]bool, handle string, to bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m[handle] = to
}

func (s *storage) get(m map[string]bool, handle string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return m[handle]
}

// call implements caller for all drivers on all nodes. It fails the test if a mounted volume is
// deleted.
func (s *storage) call(_ context.Context, _, _, method string, in, out protoadapt.MessageV1) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r := in.(type) {
	case *csi.ControllerGetCapabilitiesRequest:
		rpc := &csi.ControllerServiceCapability_RPC{Type: csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME}
		out.(*csi.ControllerGetCapabilitiesResponse).Capabilities = []*csi.ControllerServiceCapability{
			{Type: &csi.ControllerServiceCapability_Rpc{Rpc: rpc}},
		}
	case *csi.CreateVolumeRequest:
		s.exists[r.GetName()] = true
		out.(*csi.CreateVolumeResponse).Volume = &csi.Volume{VolumeId: r.GetName()}
	case *csi.DeleteVolumeRequest:
		if s.mounted[r.GetVolumeId()] {
			s.t.Errorf("volume %s is deleted while it is mounted", r.GetVolumeId())
		}
		s.exists[r.GetVolumeId()] = false
	case *csi.ControllerPublishVolumeRequest, *csi.ControllerUnpublishVolumeRequest:
	default:
		return status.Error(codes.Unimplemented, method)
	}
	return nil
}

// order is a test case: a volume with its related objects, and the order (steps) in which these
// objects are deleted.
type order struct {
	// id is the name of the namespace, class, driver, node and most other objects of this case.
	id                                   string
	policy                               v1.PersistentVolumeReclaimPolicy
	static, delayed, ephemeral, attached bool
	steps                                []string
	// handle is the volume's handle, and volume the name of its PersistentVolume. They are set when
	// the claim is bound.
	handle, volume string
}

func (o *order) String() string {
	return fmt.Sprintf("%s: %s static=%v delayed=%v ephemeral=%v attached=%v %s", o.id, o.policy, o.static,
		o.delayed, o.ephemeral, o.attached, strings.Join(o.steps, ","))
}

// claim returns the name of the PersistentVolumeClaim.
func (o *order) claim() string {
	if o.ephemeral {
		return o.id + "-v"
	}
	return o.id
}

// orders returns test cases for all orders of deleting pod, claim and volume, and for all kinds of
// volumes. Most cases also delete one of the objects in extras, at varying places in the order.
func orders() []*order {
	core := [][]string{
		{"pod", "claim", "volume"}, {"pod", "volume", "claim"}, {"claim", "pod", "volume"},
		{"claim", "volume", "pod"}, {"volume", "pod", "claim"}, {"volume", "claim", "pod"},
	}
	extras := []string{"", "class", "driver", "node", "namespace"}
	var out []*order
	for _, policy := range []v1.PersistentVolumeReclaimPolicy{v1.PersistentVolumeReclaimDelete,
		v1.PersistentVolumeReclaimRetain} {
		for _, kind := range []order{{}, {delayed: true}, {static: true}, {ephemeral: true}, {static: true, delayed: true}} {
			for _, steps := range core {
				n := len(out)
				o := kind
				o.id, o.policy, o.attached, o.steps = fmt.Sprintf("o%d", n), policy, n%2 == 1, slices.Clone(steps)
				// There are 5 values in extras and 4 places, so 20 cases in a row contain every
				// combination.
				if extra := extras[n%len(extras)]; extra != "" {
					o.steps = slices.Insert(o.steps, n%4, extra)
				}
				out = append(out, &o)
			}
		}
	}
	return out
}

// stage is the environment in which the test cases run: an API server with all storage controllers
// and simulated kubelets of all nodes.
type stage struct {
	*testserver.Server
	storage *storage
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{testserver.Start(t, testserver.Options{}),
		&storage{t: t, exists: map[string]bool{}, mounted: map[string]bool{}}}
	s.kubelets(t)
	controllertest.Run(t, s.Server, controller.Options{Workers: 8, Periods: controller.DefaultPeriods()},
		func(d controller.Deps) (controller.Controller, error) {
			c, err := New(d)
			if err == nil {
				c.(*Controller).drivers = s.storage
			}
			return c, err
		},
		volumebinder.New, protection.NewClaims, protection.NewVolumes, attachdetach.New, expander.New, ephemeralvolume.New,
		podgc.New, namespace.New, garbagecollector.New)
	return s
}

// kubelets simulates the kubelets: it unmounts the volumes of pods that are being deleted and
// removes the pods. It also checks, when a PersistentVolume is deleted, that its storage was
// already deleted or kept, as its reclaim policy requires.
func (s *stage) kubelets(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	factory := informers.NewSharedInformerFactory(s.Client, 0)
	end := func(pod *v1.Pod) {
		if pod.DeletionTimestamp == nil {
			return
		}
		s.storage.set(s.storage.mounted, pod.Annotations["handle"], false)
		_ = s.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: ptr.To[int64](0), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
		})
	}
	_, errPods := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, o any) { end(o.(*v1.Pod)) },
	})
	_, errVolumes := factory.Core().V1().PersistentVolumes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		DeleteFunc: func(o any) {
			v, ok := o.(*v1.PersistentVolume)
			if !ok || v.Spec.CSI == nil {
				return
			}
			want := v.Spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimRetain
			if got := s.storage.get(s.storage.exists, v.Spec.CSI.VolumeHandle); got != want {
				t.Errorf("PersistentVolume %s with policy %s was deleted; its storage exists: %v", v.Name,
					v.Spec.PersistentVolumeReclaimPolicy, got)
			}
		},
	})
	if err := errors.Join(errPods, errVolumes); err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	t.Cleanup(func() { cancel(); factory.Shutdown() })
}

// surroundings creates the StorageClass, driver and node of a test case if they do not exist.
func (s *stage) surroundings(ctx context.Context, o *order) error {
	mode := storagev1.VolumeBindingImmediate
	if o.delayed {
		mode = storagev1.VolumeBindingWaitForFirstConsumer
	}
	meta := metav1.ObjectMeta{Name: o.id}
	provisioner := o.id
	if o.static {
		provisioner = volume.NotSupportedProvisioner
	}
	_, errClass := s.Client.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta: meta, Provisioner: provisioner, ReclaimPolicy: &o.policy, VolumeBindingMode: &mode,
	}, metav1.CreateOptions{})
	_, errDriver := s.Client.StorageV1().CSIDrivers().Create(ctx, &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: o.id, Labels: map[string]string{Label: Kubelet}},
		Spec:       storagev1.CSIDriverSpec{AttachRequired: &o.attached},
	}, metav1.CreateOptions{})
	_, errCSINode := s.Client.StorageV1().CSINodes().Create(ctx, &storagev1.CSINode{
		ObjectMeta: meta, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: o.id, NodeID: o.id}}},
	}, metav1.CreateOptions{})
	node, errNode := s.Client.CoreV1().Nodes().Create(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: o.id, Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
	}}, metav1.CreateOptions{})
	if errNode == nil {
		node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
		_, errNode = s.Client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	}
	for _, err := range []error{errClass, errDriver, errCSINode, errNode} {
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

// setUp creates the objects of a test case and waits until the volume is bound and mounted by a
// pod.
func (s *stage) setUp(t *testing.T, o *order) {
	t.Helper()
	ctx, core := t.Context(), s.Client.CoreV1()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.surroundings(ctx, o))
	_, err := core.Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.id}},
		metav1.CreateOptions{})
	must(err)
	_, err = core.ServiceAccounts(o.id).Create(ctx,
		&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	must(err)
	template := claim(o.claim())
	template.Namespace, template.Spec.StorageClassName = o.id, &o.id
	if o.static {
		s.storage.set(s.storage.exists, o.id, true)
		_, err = core.PersistentVolumes().Create(ctx,
			&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: o.id}, Spec: v1.PersistentVolumeSpec{
				Capacity: template.Spec.Resources.Requests, AccessModes: template.Spec.AccessModes,
				StorageClassName: o.id, PersistentVolumeReclaimPolicy: o.policy,
				// with delayed binding, the scheduler would set this reference to the claim
				ClaimRef: &v1.ObjectReference{Namespace: o.id, Name: o.id},
				PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: o.id,
					VolumeHandle: o.id}},
			}}, metav1.CreateOptions{})
		must(err)
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: o.id}, Spec: v1.PodSpec{
		NodeName: o.id, Containers: []v1.Container{{Name: "c", Image: "i"}}, Volumes: []v1.Volume{{Name: "v"}},
	}}
	if o.ephemeral {
		pod.Spec.Volumes[0].Ephemeral = &v1.EphemeralVolumeSource{
			VolumeClaimTemplate: &v1.PersistentVolumeClaimTemplate{Spec: template.Spec}}
	} else {
		pod.Spec.Volumes[0].PersistentVolumeClaim = &v1.PersistentVolumeClaimVolumeSource{ClaimName: o.claim()}
		if o.delayed && !o.static { // with delayed binding, the scheduler would select a node
			template.Annotations = map[string]string{volume.AnnSelectedNode: o.id}
		}
		_, err = core.PersistentVolumeClaims(o.id).Create(ctx, template, metav1.CreateOptions{})
		must(err)
	}
	_, err = core.Pods(o.id).Create(ctx, pod, metav1.CreateOptions{})
	must(err)
	controllertest.Eventually(t, "the claim is bound", func(ctx context.Context) (any, bool) {
		got, err := core.PersistentVolumeClaims(o.id).Get(ctx, o.claim(), metav1.GetOptions{})
		if err == nil {
			o.volume = got.Spec.VolumeName
		}
		return got, err == nil && got.Status.Phase == v1.ClaimBound
	})
	controllertest.Eventually(t, "the volume is bound, and protected if it is to be",
		func(ctx context.Context) (any, bool) {
			v, err := core.PersistentVolumes().Get(ctx, o.volume, metav1.GetOptions{})
			if err == nil {
				o.handle = v.Spec.CSI.VolumeHandle
			}
			return v, err == nil && v.Status.Phase == v1.VolumeBound &&
				slices.Contains(v.Finalizers, deletionFinalizer) == (o.policy == v1.PersistentVolumeReclaimDelete)
		})
	s.storage.set(s.storage.mounted, o.handle, true)
	controllertest.Eventually(t, "the kubelet knows what it has mounted", func(ctx context.Context) (any, bool) {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"handle":%q}}}`, o.handle)
		got, err := core.Pods(o.id).Patch(ctx, o.id, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
		return got, err == nil
	})
}

// remove deletes one of the objects of a test case. The argument what says which object, such as
// "pod" or "class".
func (s *stage) remove(ctx context.Context, o *order, what string) error {
	var err error
	none, core, storage := metav1.DeleteOptions{}, s.Client.CoreV1(), s.Client.StorageV1()
	switch what {
	case "pod":
		err = core.Pods(o.id).Delete(ctx, o.id, none)
	case "claim":
		err = core.PersistentVolumeClaims(o.id).Delete(ctx, o.claim(), none)
	case "volume":
		err = core.PersistentVolumes().Delete(ctx, o.volume, none)
	case "class":
		err = storage.StorageClasses().Delete(ctx, o.id, none)
	case "driver":
		err = errors.Join(storage.CSIDrivers().Delete(ctx, o.id, none), storage.CSINodes().Delete(ctx, o.id, none))
	case "node":
		err = errors.Join(core.Nodes().Delete(ctx, o.id, none), storage.CSINodes().Delete(ctx, o.id, none))
	case "namespace":
		err = core.Namespaces().Delete(ctx, o.id, none)
	}
	if apierrors.IsNotFound(err) {
		return nil // a controller may have deleted the object already
	}
	return err
}

// left returns the names of the remaining objects of a test case.
func (s *stage) left(ctx context.Context, o *order) ([]string, error) {
	var out []string
	var errs []error
	look := func(what string, err error) {
		if err == nil {
			out = append(out, what)
		} else if !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	_, err := s.Client.CoreV1().Pods(o.id).Get(ctx, o.id, metav1.GetOptions{})
	look("pod", err)
	_, err = s.Client.CoreV1().PersistentVolumeClaims(o.id).Get(ctx, o.claim(), metav1.GetOptions{})
	look("claim", err)
	v, err := s.Client.CoreV1().PersistentVolumes().Get(ctx, o.volume, metav1.GetOptions{})
	look(fmt.Sprintf("volume %s %v", v.Status.Phase, v.Finalizers), err)
	attachments, err := s.Client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, a := range attachments.Items {
		if a.Spec.NodeName == o.id {
			out = append(out, "attachment")
		}
	}
	if slices.Contains(o.steps, "namespace") {
		_, err = s.Client.CoreV1().Namespaces().Get(ctx, o.id, metav1.GetOptions{})
		look("namespace", err)
	}
	return out, errors.Join(errs...)
}

// TestOrders runs all test cases of orders: it deletes the objects in the given order, and then
// creates the driver and node again if they were deleted. All deleted objects must disappear, no
// storage may be deleted while a pod uses it, and storage must be deleted or kept as the reclaim
// policy requires.
func TestOrders(t *testing.T) {
	s := newStage(t)
	all := orders()
	for _, o := range all {
		s.setUp(t, o)
		for _, what := range o.steps {
			if err := s.remove(t.Context(), o, what); err != nil {
				t.Fatalf("%v: delete %s: %v", o, what, err)
			}
		}
	}
	for _, o := range all {
		if err := s.surroundings(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range all {
		controllertest.Eventually(t, o.String()+": nothing is left", func(ctx context.Context) (any, bool) {
			left, err := s.left(ctx, o)
			return left, err == nil && len(left) == 0
		})
		if got, want := s.storage.get(s.storage.exists, o.handle), o.policy == v1.PersistentVolumeReclaimRetain; got != want {
			t.Errorf("%v: the storage exists: %v, want %v", o, got, want)
		}
	}
}
