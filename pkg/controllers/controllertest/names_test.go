// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controllertest_test

import (
	"context"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/keelson/pkg/apiserver/testserver"
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
	ns         = metav1.NamespaceDefault
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

// maker creates an object with the given name whose pods or other dependents have the label app
// with the given value.
type maker func(c kubernetes.Interface, name, app string) error

var template = func(app string) v1.PodTemplateSpec {
	return v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "image"}},
			RestartPolicy: v1.RestartPolicyAlways},
	}
}

func jobSpec(app string, mode batchv1.CompletionMode) batchv1.JobSpec {
	one, t := int32(1), template(app)
	t.Spec.RestartPolicy = v1.RestartPolicyNever
	return batchv1.JobSpec{Completions: &one, Parallelism: &one, CompletionMode: &mode, Template: t}
}

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

func selector(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

func makeDeployment(c kubernetes.Interface, name, app string) error {
	_, err := c.AppsV1().Deployments(ns).Create(context.Background(), &appsv1.Deployment{
		ObjectMeta: meta(name), Spec: appsv1.DeploymentSpec{Selector: selector(app), Template: template(app)},
	}, metav1.CreateOptions{})
	return err
}

func makeReplicaSet(c kubernetes.Interface, name, app string) error {
	_, err := c.AppsV1().ReplicaSets(ns).Create(context.Background(), &appsv1.ReplicaSet{
		ObjectMeta: meta(name), Spec: appsv1.ReplicaSetSpec{Selector: selector(app), Template: template(app)},
	}, metav1.CreateOptions{})
	return err
}

func makeReplicationController(c kubernetes.Interface, name, app string) error {
	one, t := int32(1), template(app)
	_, err := c.CoreV1().ReplicationControllers(ns).Create(context.Background(), &v1.ReplicationController{
		ObjectMeta: meta(name),
		Spec:       v1.ReplicationControllerSpec{Replicas: &one, Selector: map[string]string{"app": app}, Template: &t},
	}, metav1.CreateOptions{})
	return err
}

func makeStatefulSet(c kubernetes.Interface, name, app string) error {
	set := &appsv1.StatefulSet{ObjectMeta: meta(name), Spec: appsv1.StatefulSetSpec{Selector: selector(app),
		Template: template(app)}}
	set.Spec.VolumeClaimTemplates = []v1.PersistentVolumeClaim{{ObjectMeta: meta(long("v", longestLabel)),
		Spec: claimSpec()}}
	_, err := c.AppsV1().StatefulSets(ns).Create(context.Background(), set, metav1.CreateOptions{})
	return err
}

func makeDaemonSet(c kubernetes.Interface, name, app string) error {
	_, err := c.AppsV1().DaemonSets(ns).Create(context.Background(), &appsv1.DaemonSet{
		ObjectMeta: meta(name), Spec: appsv1.DaemonSetSpec{Selector: selector(app), Template: template(app)},
	}, metav1.CreateOptions{})
	return err
}

// addNode creates a node on which daemon pods can run. It removes the taint
// node.kubernetes.io/not-ready, which every new node has.
func addNode(t *testing.T, c kubernetes.Interface) {
	t.Helper()
	node, err := c.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: meta(long("n", longestLabel))},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Spec.Taints = nil
	if _, err := c.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func claimSpec() v1.PersistentVolumeClaimSpec {
	return v1.PersistentVolumeClaimSpec{
		AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
		Resources:   v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}},
	}
}

func makeJob(mode batchv1.CompletionMode) maker {
	return func(c kubernetes.Interface, name, app string) error {
		_, err := c.BatchV1().Jobs(ns).Create(context.Background(),
			&batchv1.Job{ObjectMeta: meta(name), Spec: jobSpec(app, mode)}, metav1.CreateOptions{})
		return err
	}
}

// makePodWith returns a maker of a pod whose spec is modified by change. A controller creates
// another object, such as a claim, for this pod.
func makePodWith(change func(*v1.PodSpec)) maker {
	return func(c kubernetes.Interface, name, app string) error {
		t := template(app)
		change(&t.Spec)
		_, err := c.CoreV1().Pods(ns).Create(context.Background(),
			&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: t.Labels}, Spec: t.Spec}, metav1.CreateOptions{})
		return err
	}
}

func makeService(c kubernetes.Interface, name, app string) error {
	_, err := c.CoreV1().Services(ns).Create(context.Background(), &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}},
		Spec:       v1.ServiceSpec{Selector: map[string]string{"app": app}, Ports: []v1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	return err
}

func makeMirrored(c kubernetes.Interface, name, app string) error {
	_, err := c.CoreV1().Services(ns).Create(context.Background(), &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.ServiceSpec{Ports: []v1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = c.CoreV1().Endpoints(ns).Create(context.Background(),
		&v1.Endpoints{ //nolint:staticcheck // this object is to be mirrored
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}},
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

func ephemeral(s *v1.PodSpec) {
	s.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{
		VolumeClaimTemplate: &v1.PersistentVolumeClaimTemplate{Spec: claimSpec()},
	}}}}
}

func claimed(s *v1.PodSpec) {
	t := "template"
	s.ResourceClaims = []v1.PodResourceClaim{{Name: long("c", longestLabel), ResourceClaimTemplateName: &t}}
}

// TestLongestNames checks that for an object with the longest valid name the controllers can create
// dependents, because their names and labels are valid.
func TestLongestNames(t *testing.T) {
	tests := map[string]struct {
		length int
		make   maker
		there  func(ctx context.Context, c kubernetes.Interface, name, app string) (int, error)
		label  bool // the name must also be a valid label value
	}{
		"deployment":            {length: longest, make: makeDeployment, there: pods},
		"replicaset":            {length: longest, make: makeReplicaSet, there: pods},
		"replicationcontroller": {length: longest, make: makeReplicationController, there: pods},
		"daemonset":             {length: longest, make: makeDaemonSet, there: pods},
		"statefulset":           {length: longestSet, make: makeStatefulSet, there: pods, label: true},
		"job":                   {length: longestLabel, make: makeJob(batchv1.NonIndexedCompletion), there: pods},
		"indexedjob": {length: longestLabel - 2, make: makeJob(batchv1.IndexedCompletion),
			there: pods, label: true},
		"ephemeralvolume":        {length: longest - 2, make: makePodWith(ephemeral), there: volumeClaim},
		"resourceclaim":          {length: longest, make: makePodWith(claimed), there: resourceClaims},
		"endpointslice":          {length: longestLabel, make: makeService, there: sliceCount, label: true},
		"endpointslicemirroring": {length: longestLabel, make: makeMirrored, there: sliceCount, label: true},
	}
	s := testserver.Start(t, testserver.Options{})
	controllertest.Account(t, s)
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
	addNode(t, s.Client)
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
				if err := tt.make(s.Client, name, app); err != nil {
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
