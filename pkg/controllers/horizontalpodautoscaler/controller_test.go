// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package horizontalpodautoscaler

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/utils/ptr"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

// serveMetrics registers an extension API server that serves metrics of two pods, as a metrics
// server does.
func serveMetrics(t *testing.T, s *testserver.Server) {
	t.Helper()
	extension := httptest.NewTLSServer(http.HandlerFunc(answerMetrics))
	t.Cleanup(extension.Close)
	_, text, err := net.SplitHostPort(extension.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	// The Service is an external name, because Endpoints must not contain loopback addresses.
	if _, err := s.Client.CoreV1().Services("default").Create(t.Context(), &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "metrics"},
		Spec: v1.ServiceSpec{Type: v1.ServiceTypeExternalName, ExternalName: "localhost",
			Ports: []v1.ServicePort{{Port: int32(port)}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	services := aggregator.NewForConfigOrDie(s.Config).ApiregistrationV1().APIServices()
	if _, err := services.Create(t.Context(), &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1beta1.metrics.k8s.io"},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: "metrics.k8s.io", Version: "v1beta1", GroupPriorityMinimum: 100, VersionPriority: 100,
			InsecureSkipTLSVerify: true,
			Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "metrics",
				Port: ptr.To(int32(port))},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "metrics are served", func(ctx context.Context) (any, bool) {
		got, err := services.Get(ctx, "v1beta1.metrics.k8s.io", metav1.GetOptions{})
		return got, err == nil && helper.IsAPIServiceConditionTrue(got, apiregistrationv1.Available)
	})
}

func answerMetrics(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path == "/apis/metrics.k8s.io/v1beta1":
		fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"metrics.k8s.io/v1beta1",`+
			`"resources":[{"name":"pods","singularName":"","namespaced":true,"kind":"PodMetrics","verbs":["get","list"]}]}`)
	case r.URL.Path == "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods" &&
		r.URL.Query().Get("labelSelector") == "app=a":
		var items []string
		for i := range 2 {
			items = append(items, fmt.Sprintf(`{"metadata":{"name":"p%d","namespace":"default"},`+
				`"timestamp":%q,"window":"30s","containers":[{"name":"c","usage":{"cpu":"900m","memory":"1Mi"}}]}`,
				i, clock.Real().Now().UTC().Format(time.RFC3339)))
		}
		fmt.Fprintf(w, `{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1","items":[%s]}`,
			strings.Join(items, ","))
	default:
		http.NotFound(w, r)
	}
}

func TestServer(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	serveMetrics(t, s)
	controllertest.Account(t, s)
	controllertest.RunAs(t, s, "horizontal-pod-autoscaler", controller.Options{}, New)
	core := s.Client.CoreV1()
	labels := map[string]string{"app": "a"}
	template := v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod("").Spec}
	template.Spec.Containers[0].Image = "i"
	for i := range 2 {
		p := pod(fmt.Sprint("p", i))
		p.Labels, p.Spec = labels, *template.Spec.DeepCopy()
		p.Spec.NodeName = "n"
		made, err := core.Pods("default").Create(t.Context(), p, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		made.Status = p.Status
		if _, err := core.Pods("default").UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Client.AppsV1().ReplicaSets("default").Create(t.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.ReplicaSetSpec{
			Replicas: ptr.To(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template,
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	hpas := s.Client.AutoscalingV2().HorizontalPodAutoscalers("default")
	create := func(name, target string) {
		t.Helper()
		if _, err := hpas.Create(t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: target},
				MaxReplicas:    9,
				Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType,
					Resource: &autoscalingv2.ResourceMetricSource{
						Name: v1.ResourceCPU,
						Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType,
							AverageUtilization: ptr.To(int32(60))},
					}}},
			},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	says := func(name string, t autoscalingv2.HorizontalPodAutoscalerConditionType,
		reason string) func(ctx context.Context) (any, bool) {
		return func(ctx context.Context) (any, bool) {
			hpa, err := hpas.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err, false
			}
			for _, c := range hpa.Status.Conditions {
				if c.Type == t && c.Reason == reason {
					return hpa, true
				}
			}
			return hpa.Status, false
		}
	}
	create("lost", "nothing")
	controllertest.Eventually(t, "a target that is not there", says("lost", autoscalingv2.AbleToScale, "FailedGetScale"))
	create("web", "web")
	controllertest.Eventually(t, "the target grows", says("web", autoscalingv2.AbleToScale, "SucceededRescale"))
	set, err := s.Client.AppsV1().ReplicaSets("default").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil || *set.Spec.Replicas != 3 {
		t.Fatalf("replicas: %v, %v", set.Spec.Replicas, err)
	}
	hpa, err := hpas.Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if m := hpa.Status.CurrentMetrics; len(m) != 1 || *m[0].Resource.Current.AverageUtilization != 90 ||
		hpa.Status.DesiredReplicas != 3 || hpa.Status.LastScaleTime == nil {
		t.Errorf("status: %+v", hpa.Status)
	}
	if o := hpa.Status.ObservedGeneration; hpa.Generation != 1 || o == nil || *o != hpa.Generation {
		t.Errorf("generation %d, observed %v", hpa.Generation, o)
	}
	create("again", "web")
	controllertest.Eventually(t, "two of the same pods", says("again", autoscalingv2.ScalingActive, "AmbiguousSelector"))
}
