// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	clientrest "k8s.io/client-go/rest"

	"keelson.dev/apiserver/loopback"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/rest"
	"keelson.dev/apiserver/store"
)

func clientset(t *testing.T, e *env, contentType string) kubernetes.Interface {
	t.Helper()
	cfg := &clientrest.Config{Host: "http://server", Transport: loopback.RoundTripper{Handler: e.handler}, QPS: -1}
	cfg.ContentType = contentType
	if contentType != "application/json" {
		cfg.AcceptContentTypes = contentType + ",application/json"
	}
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestClient uses the server with client-go, in JSON and in protobuf.
func TestClient(t *testing.T) {
	for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		t.Run(contentType, func(t *testing.T) {
			e, ctx := newEnv(t, nil), context.Background()
			maps := clientset(t, e, contentType).CoreV1().ConfigMaps("t")
			made, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"},
				Data: map[string]string{"x": "1"}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			w, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: made.ResourceVersion})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			made.Data["x"] = "2"
			updated, err := maps.Update(ctx, made, metav1.UpdateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := maps.Update(ctx, made, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
				t.Errorf("stale update: %v", err)
			}
			list, err := maps.List(ctx, metav1.ListOptions{})
			if err != nil || len(list.Items) != 1 || list.Items[0].ResourceVersion != updated.ResourceVersion ||
				list.Items[0].Data["x"] != "2" {
				t.Errorf("list %+v, %v", list, err)
			}
			if err := maps.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := maps.Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("after delete: %v", err)
			}
			for _, want := range []watch.EventType{watch.Modified, watch.Deleted} {
				ev := <-w.ResultChan()
				cm, ok := ev.Object.(*corev1.ConfigMap)
				if ev.Type != want || !ok || cm.Data["x"] != "2" {
					t.Errorf("event %v %+v, want %v", ev.Type, ev.Object, want)
				}
			}
		})
	}
}

// TestInformer runs client-go's informers in the server's process, without a network.
func TestInformer(t *testing.T) {
	e := newEnv(t, nil)
	client := clientset(t, e, "application/vnd.kubernetes.protobuf")
	e.must(t, "POST", configMaps, `{"metadata":{"name":"a"}}`)
	factory := informers.NewSharedInformerFactory(client, 0)
	lister := factory.Core().V1().ConfigMaps().Lister()
	ctx, cancel := context.WithCancel(context.Background())
	defer factory.Shutdown()
	defer cancel()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if cm, err := lister.ConfigMaps("t").Get("a"); err != nil || cm.Name != "a" {
		t.Errorf("%+v, %v", cm, err)
	}
}

// broken is a response writer that accepts no data.
type broken struct{ header http.Header }

func (b broken) Header() http.Header       { return b.header }
func (b broken) WriteHeader(int)           {}
func (b broken) Write([]byte) (int, error) { return 0, http.ErrHandlerTimeout }
func (b broken) Flush()                    {}

// TestBrokenWatch checks that data that a watch could not send does not appear in another response.
func TestBrokenWatch(t *testing.T) {
	e := newEnv(t, nil)
	e.must(t, "POST", configMaps, `{"metadata":{"name":"secret"}}`)
	watched, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://server"+configMaps+
		"?watch=true&resourceVersion=0", nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		e.handler.ServeHTTP(broken{http.Header{}}, watched.Clone(t.Context()))
		answer := httptest.NewRecorder()
		e.handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet,
			"http://server/api/v1/nodes", nil))
		if body := answer.Body.String(); !strings.HasPrefix(body, `{"kind":"NodeList"`) {
			t.Fatalf("answer: %s", body)
		}
	}
}

// event is one event of a watch in JSON.
type event struct {
	Type   string
	Object json.RawMessage
}

// follow opens a watch and returns functions that read its next event and that stop it.
func follow(t *testing.T, e *env, path string, header ...string) (next func() event, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://server"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := e.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(resp.Body)
	next = func() event {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return event{Type: err.Error()}
		}
		var ev event
		if err := json.Unmarshal(line, &ev); err != nil {
			t.Fatal(err)
		}
		return ev
	}
	return next, func() {
		cancel()
		_ = resp.Body.Close()
	}
}

// TestWatchSelector checks that a watch with a selector sends ADDED when an object begins to match,
// and DELETED when it no longer matches.
func TestWatchSelector(t *testing.T) {
	e := newEnv(t, nil)
	next, stop := follow(t, e, pods+"?watch=1&fieldSelector=spec.nodeName=n")
	defer stop()
	e.must(t, "POST", pods, `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	e.must(t, "PATCH", pods+"/p", `{"spec":{"nodeName":"n"}}`, "Content-Type", merge)
	e.must(t, "PATCH", pods+"/p", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", merge)
	e.must(t, "PATCH", pods+"/p", `{"spec":{"nodeName":"m"}}`, "Content-Type", merge)
	for _, want := range []string{"ADDED", "MODIFIED", "DELETED"} {
		if ev := next(); ev.Type != want {
			t.Errorf("event %s %s, want %s", ev.Type, ev.Object, want)
		}
	}
}

// TestWatchTogether checks that each of many watches in several forms receives every change.
func TestWatchTogether(t *testing.T) {
	e := newEnv(t, nil)
	e.must(t, "POST", pods, boundPod)
	const metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	var watches []func() event
	for _, w := range []struct{ query, accept string }{
		{"", ""}, {"", ""}, {"", ""}, {"", metadata}, {"", metadata},
		{"&labelSelector=step=1", ""}, {"&labelSelector=step=1", metadata},
	} {
		next, stop := follow(t, e, pods+"?watch=1"+w.query, "Accept", w.accept)
		defer stop()
		watches = append(watches, next)
	}
	for _, next := range watches[:5] {
		if ev := next(); ev.Type != "ADDED" {
			t.Fatalf("first event %s", ev.Type)
		}
	}
	for _, step := range []string{"1", "2"} {
		e.must(t, "PATCH", pods+"/p", `{"metadata":{"labels":{"step":"`+step+`"}}}`, "Content-Type", merge)
		for i, next := range watches {
			want, label := "MODIFIED", step
			if i >= 5 && step == "1" {
				want = "ADDED"
			} else if i >= 5 {
				want, label = "DELETED", "1" // the object is in its last state that matched
			}
			var p metav1.PartialObjectMetadata
			ev := next()
			if err := json.Unmarshal(ev.Object, &p); err != nil {
				t.Fatal(err)
			}
			kind := "Pod"
			if i == 3 || i == 4 || i == 6 {
				kind = "PartialObjectMetadata"
			}
			if ev.Type != want || p.Labels["step"] != label || p.Kind != kind {
				t.Errorf("step %s, watch %d: %s %s", step, i, ev.Type, ev.Object)
			}
		}
	}
}

// TestWatchTable checks that a watch sends the column definitions of a Table only once.
func TestWatchTable(t *testing.T) {
	e := newEnv(t, nil)
	e.must(t, "POST", pods, boundPod)
	next, stop := follow(t, e, pods+"?watch=1", "Accept", "application/json;as=Table;g=meta.k8s.io;v=v1")
	defer stop()
	e.must(t, "PATCH", pods+"/p", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", merge)
	for i, columns := range []int{3, 0} {
		var table metav1.Table
		ev := next()
		if err := json.Unmarshal(ev.Object, &table); err != nil {
			t.Fatal(err)
		}
		if len(table.ColumnDefinitions) != columns || len(table.Rows) != 1 || table.Rows[0].Cells[1] != "n" {
			t.Errorf("event %d: %s", i, ev.Object)
		}
	}
}

// dynamicRow returns a row of the kind table for objects without a Go type.
func dynamicRow() *resource.Row {
	return &resource.Row{
		Group: "example.com", Versions: []resource.Version{{Name: "v1"}}, Version: "v1", Resource: "widgets",
		Singular: "widget",
		Kind:     "Widget", Namespaced: true, StoragePrefix: "example.com/widgets", Codec: dynamicCodec{},
		New:                      func() resource.Object { return &unstructured.Unstructured{} },
		NewList:                  func() runtime.Object { return &unstructured.UnstructuredList{} },
		AllowUnconditionalUpdate: true,
	}
}

type dynamicCodec struct{}

// Lossy implements store.Codec.
func (dynamicCodec) Lossy() bool { return false }

func (dynamicCodec) Encode(obj store.Object) ([]byte, error) {
	u := obj.DeepCopyObject().(*unstructured.Unstructured)
	u.SetResourceVersion("")
	return u.MarshalJSON()
}

func (dynamicCodec) Decode(data []byte, rev int64) (store.Object, error) {
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(data); err != nil {
		return nil, err
	}
	if rev != 0 {
		u.SetResourceVersion(metav1.ObjectMeta{}.ResourceVersion)
		u.SetResourceVersion(strconv.FormatInt(rev, 10))
	}
	return u, nil
}

// TestDynamic adds and removes a resource while the server runs.
func TestDynamic(t *testing.T) {
	e := newEnv(t, nil)
	const path = "/apis/example.com/v1/namespaces/t/widgets"
	if r := e.do(t, "GET", path, ""); r.code != 404 || e.server.Serves(path) {
		t.Fatalf("before: %d %s", r.code, r.body)
	}
	structure := func(_ string, obj resource.Object, unknown bool) ([]error, error) {
		u := obj.(*unstructured.Unstructured)
		if _, ok := u.Object["junk"]; ok && unknown {
			delete(u.Object, "junk")
			return []error{errJunk}, nil
		}
		return nil, nil
	}
	if err := e.server.Add(dynamicRow(), rest.RowOptions{Structure: structure}); err != nil {
		t.Fatal(err)
	}
	const widget = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":1}}`
	r := e.must(t, "POST", path, `{"junk":1,`+widget[1:])
	if strings.Contains(r.body, "junk") || r.header.Get("Warning") == "" {
		t.Errorf("created %s, warning %q", r.body, r.header.Get("Warning"))
	}
	got := parse[object](t, e.must(t, "PATCH", path+"/w", `{"spec":{"size":2}}`, "Content-Type", merge))
	if got.Spec["size"] != 2.0 || got.Kind != "Widget" {
		t.Errorf("patched %+v", got)
	}
	if r := e.do(t, "PATCH", path+"/w", `{}`, "Content-Type", "application/strategic-merge-patch+json"); r.code != 415 {
		t.Errorf("strategic patch: %d %s", r.code, r.body)
	}
	next, stop := follow(t, e, path+"?watch=1")
	defer stop()
	if ev := next(); ev.Type != "ADDED" {
		t.Errorf("event %s %s", ev.Type, ev.Object)
	}
	if !e.server.Serves(path) {
		t.Error("not served")
	}
	if list := parse[struct{ Items []object }](t, e.must(t, "GET", path, "")); len(list.Items) != 1 ||
		list.Items[0].Kind != "Widget" {
		t.Errorf("list %+v", list)
	}
	e.server.Remove(schema.GroupResource{Group: "example.com", Resource: "widgets"})
	if ev := next(); ev.Type != "EOF" {
		t.Errorf("after removal: %s %s", ev.Type, ev.Object)
	}
	if r := e.do(t, "GET", path, ""); r.code != 404 {
		t.Errorf("after removal: %d", r.code)
	}
}

var errJunk = &junkError{}

type junkError struct{}

func (*junkError) Error() string { return `unknown field "junk"` }
