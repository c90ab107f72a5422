// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/loopback"
	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/rest"
	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/store/kv"
	"keelson.dev/apiserver/store/kv/memory"
)

// scaling is a type converter that also supports Scale, which client-go's type converter lacks. It
// deduces the schema from the object.
type scaling struct {
	managedfields.TypeConverter
	deduced managedfields.TypeConverter
}

func (s scaling) ObjectToTyped(obj runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	if obj.GetObjectKind().GroupVersionKind().Kind == "Scale" {
		return s.deduced.ObjectToTyped(obj, options...)
	}
	return s.TypeConverter.ObjectToTyped(obj, options...)
}

// rows returns a small kind table. Its rows behave like Kubernetes' kinds as far as the tests need
// that.
func rows() []*resource.Row {
	scaleKind := schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}
	return []*resource.Row{
		resource.Of[corev1.ConfigMapList](resource.Kind[*corev1.ConfigMap]{
			Version: "v1", Resource: "configmaps", Kind: "ConfigMap", ShortNames: []string{"cm"}, Namespaced: true,
			AllowUnconditionalUpdate: true,
		}),
		resource.Of[corev1.NamespaceList](resource.Kind[*corev1.Namespace]{
			Version: "v1", Resource: "namespaces", Kind: "Namespace", NamespaceItself: true, ReturnDeleted: true,
			Verbs: []string{"create", "delete", "get", "list", "patch", "update", "watch"},
		}),
		resource.Of[corev1.NodeList](resource.Kind[*corev1.Node]{Version: "v1", Resource: "nodes", Kind: "Node"}),
		podRow(),
		resource.Of[appsv1.DeploymentList](resource.Kind[*appsv1.Deployment]{
			Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Namespaced: true,
			StoragePrefix: "deployments",
			Categories:    []string{"all"}, AllowUnconditionalUpdate: true, ResetFields: []string{"status"},
			PrepareCreate: func(_ context.Context, d *appsv1.Deployment) {
				d.Status, d.Generation = appsv1.DeploymentStatus{}, 1
			},
			PrepareUpdate: func(_ context.Context, d, old *appsv1.Deployment) {
				d.Status = old.Status
				if !equality.Semantic.DeepEqual(d.Spec, old.Spec) {
					d.Generation = old.Generation + 1
				}
			},
			Subresources: []resource.Sub[*appsv1.Deployment]{
				{
					Subresource: resource.Subresource{Name: "status", View: true,
						Verbs: []string{"get", "patch", "update"}, ResetFields: []string{"spec", "metadata.labels"}},
					PrepareUpdate: func(_ context.Context, d, old *appsv1.Deployment) {
						d.Spec, d.Labels = old.Spec, old.Labels
					},
				},
				{Subresource: resource.Subresource{Name: "scale", Kind: scaleKind,
					Verbs: []string{"get", "patch", "update"}, Scale: deploymentScale()}},
			},
		}),
		resource.Of[rbacv1.ClusterRoleList](resource.Kind[*rbacv1.ClusterRole]{
			Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles", Kind: "ClusterRole",
			AllowCreateOnUpdate: true,
		}),
		resource.Of[authorizationv1.SelfSubjectAccessReview](resource.Kind[*authorizationv1.SelfSubjectAccessReview]{
			Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews",
			Kind: "SelfSubjectAccessReview", Ephemeral: true,
		}),
		autoscalerRow(),
	}
}

func podRow() *resource.Row {
	return resource.Of[corev1.PodList](resource.Kind[*corev1.Pod]{
		Version: "v1", Resource: "pods", Kind: "Pod", ShortNames: []string{"po"}, Namespaced: true, ReturnDeleted: true,
		AllowUnconditionalUpdate: true, SelectableFields: []string{"spec.nodeName"},
		PrepareCreate: func(_ context.Context, p *corev1.Pod) { p.Generation = 1 },
		Fields:        func(p *corev1.Pod) fields.Set { return fields.Set{"spec.nodeName": p.Spec.NodeName} },
		GracefulDelete: func(_ context.Context, p *corev1.Pod, o *metav1.DeleteOptions) bool {
			period := int64(30)
			if p.Spec.TerminationGracePeriodSeconds != nil {
				period = *p.Spec.TerminationGracePeriodSeconds
			}
			if o.GracePeriodSeconds != nil {
				period = *o.GracePeriodSeconds
			}
			if p.Spec.NodeName == "" {
				period = 0
			}
			o.GracePeriodSeconds = &period
			return true
		},
		Columns: []metav1.TableColumnDefinition{{Name: "Name", Type: "string", Format: "name"},
			{Name: "Node", Type: "string"}, {Name: "Age", Type: "string"}},
		Cells: func(p *corev1.Pod, env resource.CellEnv) []any {
			return []any{p.Name, p.Spec.NodeName, env.Age(p.CreationTimestamp)}
		},
	})
}

func deploymentScale() *resource.Scale {
	return &resource.Scale{
		SpecPath: "spec.replicas",
		Get: func(obj resource.Object) (int32, int32, string, error) {
			d := obj.(*appsv1.Deployment)
			selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
			if err != nil {
				return 0, 0, "", err
			}
			want := int32(1)
			if d.Spec.Replicas != nil {
				want = *d.Spec.Replicas
			}
			return want, d.Status.Replicas, selector.String(), nil
		},
		Set: func(obj resource.Object, n int32) { obj.(*appsv1.Deployment).Spec.Replicas = &n },
	}
}

// autoscalerRow returns a row of the kind table that is served in two versions. Its objects are
// stored in the second.
func autoscalerRow() *resource.Row {
	return resource.Of[autoscalingv2.HorizontalPodAutoscalerList](resource.Kind[*autoscalingv2.HorizontalPodAutoscaler]{
		Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers",
		Kind: "HorizontalPodAutoscaler", Namespaced: true,
		Versions: []resource.Version{{Name: "v2"}, {
			Name: "v1", New: func() resource.Object { return &autoscalingv1.HorizontalPodAutoscaler{} },
			FromStorage: func(obj resource.Object) (resource.Object, error) {
				v2 := obj.(*autoscalingv2.HorizontalPodAutoscaler)
				return &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: v2.ObjectMeta,
					Spec: autoscalingv1.HorizontalPodAutoscalerSpec{MinReplicas: v2.Spec.MinReplicas,
						MaxReplicas: v2.Spec.MaxReplicas}}, nil
			},
			ToStorage: func(obj resource.Object) (resource.Object, error) {
				v1 := obj.(*autoscalingv1.HorizontalPodAutoscaler)
				return &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: v1.ObjectMeta,
					Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MinReplicas: v1.Spec.MinReplicas,
						MaxReplicas: v1.Spec.MaxReplicas}}, nil
			},
		}},
	})
}

// rowOf returns the row of the kind table for a resource, which the test may change before the
// server is made.
func rowOf(t *testing.T, c *rest.Config, name string) *resource.Row {
	t.Helper()
	i := slices.IndexFunc(c.Rows, func(row *resource.Row) bool { return row.Resource == name })
	if i < 0 {
		t.Fatalf("no row %s", name)
	}
	return c.Rows[i]
}

// env is a server with a store in memory.
type env struct {
	server  *rest.Server
	handler http.Handler
	client  http.Client
	kv      kv.Store // has the stored bytes
}

type recorder struct {
	w    http.ResponseWriter
	seen []string
}

func (r *recorder) AddWarning(agent, text string) {
	if agent == "" {
		agent = "-"
	}
	header, err := utilnet.NewWarningHeader(299, agent, text)
	if err != nil || slices.Contains(r.seen, header) {
		return
	}
	r.seen = append(r.seen, header)
	r.w.Header().Add("Warning", header)
}

func newEnv(t testing.TB, change func(*rest.Config)) *env {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	clk := clock.Real()
	kvs := memory.New(clk)
	backend := store.NewBackend(store.BackendConfig{KV: kvs, Clock: clk, Log: slog.New(slog.DiscardHandler)})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = backend.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	sch := runtime.NewScheme()
	if err := scheme.AddToScheme(sch); err != nil {
		t.Fatal(err)
	}
	cfg := rest.Config{
		Rows: rows(), Scheme: sch, Clock: clk, TypeConverter: scaling{applyconfigurations.NewTypeConverter(sch),
			managedfields.NewDeducedTypeConverter()},
		Store: func(row *resource.Row) store.Interface {
			return store.New(store.Config{
				Backend: backend, Prefix: row.StoragePrefix, GroupResource: row.GroupResource(),
				Codec: registry.Codec(row), Attrs: registry.Attrs(row), FinalState: registry.FinalState(row),
			})
		},
	}
	if change != nil {
		change(&cfg)
	}
	server, err := rest.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	e := &env{server: server, kv: kvs}
	factory := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api")}
	e.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, err := factory.NewRequestInfo(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		ctx := request.WithUser(request.WithRequestInfo(r.Context(), info), &user.DefaultInfo{Name: "tester"})
		server.ServeHTTP(w, r.WithContext(warning.WithWarningRecorder(ctx, &recorder{w: w})))
	})
	e.client = http.Client{Transport: loopback.RoundTripper{Handler: e.handler}}
	return e
}

// reply is a complete response.
type reply struct {
	code   int
	header http.Header
	body   string
}

// do sends a request. header has names and values alternately.
func (e *env) do(t testing.TB, method, path, body string, header ...string) reply {
	t.Helper()
	req, err := http.NewRequest(method, "http://server"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("User-Agent", "tester/1")
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := e.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(b)}
}

// must is like do, but fails the test if the request fails.
func (e *env) must(t testing.TB, method, path, body string, header ...string) reply {
	t.Helper()
	r := e.do(t, method, path, body, header...)
	if r.code >= 300 {
		t.Fatalf("%s %s: %d %s", method, path, r.code, r.body)
	}
	return r
}
