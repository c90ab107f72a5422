// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/rest"
	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/store/kv/memory"
)

// Book is the kind of this example. None of its code is generated.
type Book struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              BookSpec `json:"spec"`
}

// BookSpec describes a Book.
type BookSpec struct {
	Title string `json:"title"`
	Pages int    `json:"pages,omitempty"`
}

// BookList is a list of Books.
type BookList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Book `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (b *Book) DeepCopyObject() runtime.Object {
	out := *b
	b.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// DeepCopyObject implements runtime.Object.
func (l *BookList) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = make([]Book, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*Book)
	}
	return &out
}

var bookVersion = schema.GroupVersion{Group: "library.example.com", Version: "v1"}

// asJSON is a codec that stores Books as JSON. Kinds with generated protobuf code need no codec.
type asJSON struct{}

// Lossy implements store.Codec.
func (asJSON) Lossy() bool { return false }

func (asJSON) Encode(obj store.Object) ([]byte, error) { return json.Marshal(obj) }

func (asJSON) Decode(data []byte, revision int64) (store.Object, error) {
	book := &Book{}
	if err := json.Unmarshal(data, book); err != nil {
		return nil, fmt.Errorf("stored book: %w", err)
	}
	book.TypeMeta = metav1.TypeMeta{}
	book.ResourceVersion = strconv.FormatInt(revision, 10)
	return book, nil
}

// books returns the row of the kind table (package resource) that declares the kind: its defaults,
// its validation and its columns in a table.
func books() *resource.Row {
	row := resource.Of[BookList](resource.Kind[*Book]{
		Group: bookVersion.Group, Version: bookVersion.Version, Resource: "books", Kind: "Book", Namespaced: true,
		AllowUnconditionalUpdate: true,
		Default: func(b *Book) {
			if b.Spec.Pages == 0 {
				b.Spec.Pages = 100
			}
		},
		Validate: func(_ context.Context, b *Book) field.ErrorList {
			if b.Spec.Title == "" {
				return field.ErrorList{field.Required(field.NewPath("spec", "title"), "a book has a title")}
			}
			return nil
		},
		Columns: []metav1.TableColumnDefinition{{Name: "Name", Type: "string"}, {Name: "Title", Type: "string"}},
		Cells:   func(b *Book, _ resource.CellEnv) []any { return []any{b.Name, b.Spec.Title} },
	})
	row.Codec = asJSON{}
	return row
}

// newLibrary makes a server with its kind table and a store for each resource. The handler that it
// returns sets the user of each request and then calls the server.
func newLibrary(ctx context.Context) (http.Handler, error) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(bookVersion, &Book{}, &BookList{})
	metav1.AddToGroupVersion(scheme, bookVersion)
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		return nil, fmt.Errorf("scheme: %w", err)
	}

	// This store is in memory. Package store/kv/etcd stores data in etcd, embedded or external.
	clk := clock.Real()
	backend := store.NewBackend(store.BackendConfig{KV: memory.New(clk), Clock: clk, Log: slog.New(slog.DiscardHandler)})
	go func() { _ = backend.Run(ctx) }()

	server, err := rest.New(rest.Config{
		Rows: []*resource.Row{books()}, Scheme: scheme, Clock: clk,
		Store: func(row *resource.Row) store.Interface {
			return store.New(store.Config{
				Backend: backend, Prefix: row.StoragePrefix, GroupResource: row.GroupResource(),
				Codec: registry.Codec(row), Attrs: registry.Attrs(row),
			})
		},
	})
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	paths := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api")}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, err := paths.NewRequestInfo(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		ctx := request.WithRequestInfo(r.Context(), info)
		server.ServeHTTP(w, r.WithContext(request.WithUser(ctx, &user.DefaultInfo{Name: "reader"})))
	}), nil
}

// This is a server for a kind of your own. kubectl, client-go and informers can use it.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	library, err := newLibrary(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	ask := func(method, path, body string, header ...string) string {
		r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		for i := 0; i+1 < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		library.ServeHTTP(w, r)
		answer, err := io.ReadAll(w.Body)
		if err != nil {
			return err.Error()
		}
		return string(answer)
	}
	show := func(answer string, of func(map[string]any) any) {
		var object map[string]any
		if err := json.Unmarshal([]byte(answer), &object); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(of(object))
	}
	const shelf = "/apis/library.example.com/v1/namespaces/home/books"

	show(ask("POST", shelf, `{"metadata":{"name":"moby"},"spec":{"title":"Moby-Dick"}}`),
		func(o map[string]any) any { return o["spec"] })
	show(ask("POST", shelf, `{"metadata":{"name":"blank"}}`), func(o map[string]any) any { return o["message"] })
	show(ask("PATCH", shelf+"/moby", `{"spec":{"pages":635}}`, "Content-Type", "application/merge-patch+json"),
		func(o map[string]any) any { return o["spec"] })
	show(ask("GET", shelf, "", "Accept", "application/json;as=Table;g=meta.k8s.io;v=v1"), func(o map[string]any) any {
		return o["rows"].([]any)[0].(map[string]any)["cells"]
	})
	show(ask("GET", "/apis/library.example.com/v1", ""), func(o map[string]any) any {
		return o["resources"].([]any)[0].(map[string]any)["name"]
	})
	// Output:
	// map[pages:100 title:Moby-Dick]
	// Book.library.example.com "blank" is invalid: spec.title: Required value: a book has a title
	// map[pages:635 title:Moby-Dick]
	// [moby Moby-Dick]
	// books
}
