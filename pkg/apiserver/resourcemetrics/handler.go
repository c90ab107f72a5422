// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"keelson.dev/api/clock"
)

// GroupVersion is the API that the handler serves.
var GroupVersion = v1beta1.SchemeGroupVersion

// Config has the dependencies of the handler.
type Config struct {
	// Client lists pods and nodes with all rights: the request has been authorized before.
	Client   kubernetes.Interface
	Kubelets Kubelets
	Clock    clock.Clock
}

// New returns the handler of all paths of GroupVersion. It is safe for concurrent use.
func New(c Config) http.Handler {
	h := &handler{client: c.Client, summaries: summaries{kubelets: c.Kubelets, clock: c.Clock,
		byNode: map[string]*answer{}}}
	mux := http.NewServeMux()
	root := "/apis/" + GroupVersion.String()
	handle := func(path string, f func(*http.Request) (any, error)) {
		mux.HandleFunc(root+path, func(w http.ResponseWriter, r *http.Request) { answerWith(w, r, f) })
	}
	handle("", func(*http.Request) (any, error) { return resources(), nil })
	handle("/nodes", h.listNodes)
	handle("/nodes/{name}", h.getNode)
	handle("/pods", h.listPods)
	handle("/namespaces/{namespace}/pods", h.listPods)
	handle("/namespaces/{namespace}/pods/{name}", h.getPod)
	return mux
}

type handler struct {
	client kubernetes.Interface
	summaries
}

// answerWith answers a request with the result of f, in JSON.
func answerWith(w http.ResponseWriter, r *http.Request, f func(*http.Request) (any, error)) {
	var obj any
	var err error
	switch q := r.URL.Query(); {
	case r.Method != http.MethodGet || q.Get("watch") == "true" || q.Get("watch") == "1":
		err = apierrors.NewMethodNotSupported(schema.GroupResource{Group: GroupVersion.Group,
			Resource: resourceOf(r.URL.Path)}, strings.ToLower(r.Method))
	case !acceptsJSON(r.Header.Values("Accept")):
		err = apierrors.NewGenericServerResponse(http.StatusNotAcceptable, "get", schema.GroupResource{}, "",
			"only the following media types are accepted: application/json", 0, true)
	default:
		obj, err = f(r)
	}
	code := http.StatusOK
	if err != nil {
		var known apierrors.APIStatus
		if !errors.As(err, &known) {
			known = apierrors.NewInternalError(err)
		}
		status := known.Status()
		status.Kind, status.APIVersion = "Status", "v1"
		obj, code = &status, int(status.Code)
	}
	var body bytes.Buffer
	if err := json.NewEncoder(&body).Encode(obj); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-cache, private")
	w.WriteHeader(code)
	_, _ = body.WriteTo(w) // fails if the client has closed the connection
}

func resourceOf(path string) string {
	if strings.Contains(path, "/pods") {
		return "pods"
	}
	return "nodes"
}

// acceptsJSON reports whether a client accepts JSON.
func acceptsJSON(accept []string) bool {
	if len(accept) == 0 {
		return true
	}
	for _, part := range strings.Split(strings.Join(accept, ","), ",") {
		switch kind, _, _ := mime.ParseMediaType(part); kind {
		case "application/json", "application/*", "*/*":
			return true
		}
	}
	return false
}

func resources() *metav1.APIResourceList {
	of := func(name, kind string, namespaced bool) metav1.APIResource {
		return metav1.APIResource{Name: name, Namespaced: namespaced, Kind: kind, Verbs: metav1.Verbs{"get", "list"}}
	}
	return &metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: GroupVersion.String(),
		APIResources: []metav1.APIResource{of("nodes", "NodeMetrics", false), of("pods", "PodMetrics", true)},
	}
}

// selected returns the label and field selectors of a request.
func selected(r *http.Request) metav1.ListOptions {
	q := r.URL.Query()
	return metav1.ListOptions{LabelSelector: q.Get("labelSelector"), FieldSelector: q.Get("fieldSelector"),
		ResourceVersion: "0"}
}

func (h *handler) listNodes(r *http.Request) (any, error) {
	nodes, err := h.client.CoreV1().Nodes().List(r.Context(), selected(r))
	if err != nil {
		return nil, err
	}
	return &v1beta1.NodeMetricsList{TypeMeta: typeOf("NodeMetricsList"),
		Items: h.nodeMetrics(r.Context(), nodes.Items)}, nil
}

func (h *handler) getNode(r *http.Request) (any, error) {
	name := r.PathValue("name")
	node, err := h.client.CoreV1().Nodes().Get(r.Context(), name, metav1.GetOptions{ResourceVersion: "0"})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	if err == nil {
		if list := h.nodeMetrics(r.Context(), []corev1.Node{*node}); len(list) > 0 {
			return withType(&list[0], &list[0].TypeMeta, "NodeMetrics"), nil
		}
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: GroupVersion.Group, Resource: "nodes"}, name)
}

func (h *handler) listPods(r *http.Request) (any, error) {
	pods, err := h.client.CoreV1().Pods(r.PathValue("namespace")).List(r.Context(), selected(r))
	if err != nil {
		return nil, err
	}
	return &v1beta1.PodMetricsList{TypeMeta: typeOf("PodMetricsList"), Items: h.podMetrics(r.Context(), pods.Items)}, nil
}

func (h *handler) getPod(r *http.Request) (any, error) {
	namespace, name := r.PathValue("namespace"), r.PathValue("name")
	pod, err := h.client.CoreV1().Pods(namespace).Get(r.Context(), name, metav1.GetOptions{ResourceVersion: "0"})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	if err == nil {
		if list := h.podMetrics(r.Context(), []corev1.Pod{*pod}); len(list) > 0 {
			return withType(&list[0], &list[0].TypeMeta, "PodMetrics"), nil
		}
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: GroupVersion.Group, Resource: "pods"},
		fmt.Sprintf("%s/%s", namespace, name))
}

func typeOf(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: kind, APIVersion: GroupVersion.String()}
}

func withType(obj any, t *metav1.TypeMeta, kind string) any {
	*t = typeOf(kind)
	return obj
}

// nodeMetrics returns the metrics of the nodes whose kubelets answer.
func (h *handler) nodeMetrics(ctx context.Context, nodes []corev1.Node) []v1beta1.NodeMetrics {
	names := make([]string, 0, len(nodes))
	for i := range nodes {
		names = append(names, nodes[i].Name)
	}
	said := h.all(ctx, names)
	out := make([]v1beta1.NodeMetrics, 0, len(nodes))
	for i := range nodes {
		if summary := said[nodes[i].Name]; summary != nil {
			if u, ok := usageOf(summary.Node.CPU, summary.Node.Memory); ok {
				out = append(out, v1beta1.NodeMetrics{
					ObjectMeta: h.metadata(&nodes[i].ObjectMeta), Timestamp: u.at, Window: window, Usage: u.list,
				})
			}
		}
	}
	return out
}
