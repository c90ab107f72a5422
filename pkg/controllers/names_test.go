// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
	"keelson.dev/keelson/pkg/controllers/daemonset"
	"keelson.dev/keelson/pkg/controllers/deployment"
	"keelson.dev/keelson/pkg/controllers/endpoints"
	"keelson.dev/keelson/pkg/controllers/ephemeralvolume"
	"keelson.dev/keelson/pkg/controllers/job"
	"keelson.dev/keelson/pkg/controllers/replicaset"
	"keelson.dev/keelson/pkg/controllers/resourceclaim"
	"keelson.dev/keelson/pkg/controllers/statefulset"
)

// Maximum lengths of names that are valid: longest for most objects, longestLabel for objects whose
// names become label values.
const (
	longest, longestLabel = 253, 63
	// longestSet is the length of the longest name of a StatefulSet whose revision's name is still
	// a valid label value of its pods (kubernetes/kubernetes#64023).
	longestSet = longestLabel - 11
)

// long returns a name of n characters that begins with start.
func long(start string, n int) string { return start + strings.Repeat("x", n-len(start)) }

// dotted returns a name of n characters with a dot at every second place. If a controller truncates
// the name, it may end in a dot, which is invalid in some places.
func dotted(start string, n int) string {
	name := start + strings.Repeat("x.", n)
	return name[:n-1] + "x"
}

// shifted is like dotted, but with one more letter after start, so that each dot is one place
// further on.
func shifted(start string, n int) string { return dotted(start+"y", n) }

func createService(ctx context.Context, c kubernetes.Interface, name, app string) error {
	_, err := c.CoreV1().Services(ns).Create(ctx, &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels(app)},
		Spec:       v1.ServiceSpec{Selector: labels(app), Ports: []v1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	return err
}

// createMirrored creates a Service without a selector, and Endpoints that are mirrored.
func createMirrored(ctx context.Context, c kubernetes.Interface, name, app string) error {
	_, err := c.CoreV1().Services(ns).Create(ctx, &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.ServiceSpec{Ports: []v1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = c.CoreV1().Endpoints(ns).Create(ctx,
		&v1.Endpoints{ //nolint:staticcheck // this object is to be mirrored
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels(app)},
			Subsets: []v1.EndpointSubset{{Addresses: []v1.EndpointAddress{{IP: "192.0.2.1"}},
				Ports: []v1.EndpointPort{{Port: 80}}}}, //nolint:staticcheck // this object is to be mirrored
		}, metav1.CreateOptions{})
	return err
}

// The following functions return the number of dependents of an object. They find the dependents by
// the label app or by the object's name.
func pods(ctx context.Context, c kubernetes.Interface, _, app string) (int, error) {
	list, err := c.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
	return len(list.Items), err
}

func sliceCount(ctx context.Context, c kubernetes.Interface, name, _ string) (int, error) {
	list, err := c.DiscoveryV1().EndpointSlices(ns).List(ctx,
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + name})
	return len(list.Items), err
}

func volumeClaim(ctx context.Context, c kubernetes.Interface, name, _ string) (int, error) {
	_, err := c.CoreV1().PersistentVolumeClaims(ns).Get(ctx, name+"-v", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	return 1, err
}

func resourceClaims(ctx context.Context, c kubernetes.Interface, name, _ string) (int, error) {
	list, err := c.ResourceV1().ResourceClaims(ns).List(ctx, metav1.ListOptions{})
	n := 0
	for _, claim := range list.Items {
		if claim.OwnerReferences[0].Name == name {
			n++
		}
	}
	return n, err
}

// claimed adds a resource claim to a pod's spec.
func claimed(s *v1.PodSpec) {
	t := "template"
	s.ResourceClaims = []v1.PodResourceClaim{{Name: long("c", longestLabel), ResourceClaimTemplateName: &t}}
}

// TestLongestNames checks that for an object with the longest valid name the controllers can create
// dependents, because their names and labels are valid.
func TestLongestNames(t *testing.T) {
	claim := v1.PersistentVolumeClaim{ObjectMeta: meta(long("v", longestLabel)), Spec: claimSpec()}
	tests := map[string]struct {
		length int
		create creator
		there  func(ctx context.Context, c kubernetes.Interface, name, app string) (int, error)
		label  bool // the name must also be a valid label value
	}{
		"deployment":            {length: longest, create: createDeployment(1), there: pods},
		"replicaset":            {length: longest, create: createReplicaSet(1), there: pods},
		"replicationcontroller": {length: longest, create: createReplicationController(1), there: pods},
		"daemonset":             {length: longest, create: createDaemonSet, there: pods},
		"statefulset":           {length: longestSet, create: createStatefulSet(1, claim), there: pods, label: true},
		"job":                   {length: longestLabel, create: createJob(1, batchv1.NonIndexedCompletion), there: pods},
		"indexedjob": {length: longestLabel - 2, create: createJob(1, batchv1.IndexedCompletion),
			there: pods, label: true},
		"ephemeralvolume":        {length: longest - 2, create: createPod(addEphemeralVolume), there: volumeClaim},
		"resourceclaim":          {length: longest, create: createPod(claimed), there: resourceClaims},
		"endpointslice":          {length: longestLabel, create: createService, there: sliceCount, label: true},
		"endpointslicemirroring": {length: longestLabel, create: createMirrored, there: sliceCount, label: true},
	}
	s := start(t, long("n", longestLabel))
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.Client.ResourceV1().ResourceClaimTemplates(ns).Create(t.Context(), &resourcev1.ResourceClaimTemplate{
		ObjectMeta: meta("template"),
		Spec: resourcev1.ResourceClaimTemplateSpec{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
			Requests: []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "class"}}},
		}}},
	}, metav1.CreateOptions{}))
	controllertest.Run(t, s, controller.Options{}, daemonset.New, deployment.New, replicaset.New,
		replicaset.NewReplicationController, statefulset.New,
		job.New, ephemeralvolume.New, resourceclaim.New, endpoints.NewSlices, endpoints.NewMirroring)
	for kind, tt := range tests {
		forms := map[string]func(string, int) string{"plain": long, "dotted": dotted, "shifted": shifted}
		for form, name := range forms {
			if tt.label && form != "plain" {
				continue
			}
			t.Run(kind+"/"+form, func(t *testing.T) {
				t.Parallel()
				app, name := kind+"-"+form, name(kind+form[:1], tt.length)
				if err := tt.create(t.Context(), s.Client, name, app); err != nil {
					t.Fatal(err)
				}
				controllertest.Eventually(t, "what belongs to it", func(ctx context.Context) (any, bool) {
					n, err := tt.there(ctx, s.Client, name, app)
					if err != nil {
						t.Fatal(err)
					}
					return n, n > 0
				})
				if kind == "deployment" {
					revisions(t, s.Client, name, app)
				}
			})
		}
	}
}

// revisions changes the template of a Deployment and checks that the new revision gets its own
// ReplicaSet, although the name is long.
func revisions(t *testing.T, c kubernetes.Interface, name, app string) {
	patch := []byte(`{"spec":{"template":{"metadata":{"annotations":{"v":"2"}}}}}`)
	if _, err := c.AppsV1().Deployments(ns).Patch(t.Context(), name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "second revision", func(ctx context.Context) (any, bool) {
		list, err := c.AppsV1().ReplicaSets(ns).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
		return err, err == nil && len(list.Items) == 2
	})
}
