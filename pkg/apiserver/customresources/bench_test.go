// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package customresources_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"keelson.dev/apiserver/store/kv/etcd/embedded"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

const definitions = 1000

// BenchmarkEstablish creates a thousand definitions and waits until all are established. It reports
// the time for the creates, the time from the last create until all are established, and the CPU
// time and heap per definition.
func BenchmarkEstablish(b *testing.B) {
	for name, opts := range map[string]testserver.Options{"memory": {}, "etcd": {Etcd: embedded.Start}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				e, crds := newEnv(b, opts), many(b)
				before := heap()
				watch, err := e.crds.ApiextensionsV1().CustomResourceDefinitions().Watch(b.Context(), metav1.ListOptions{})
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				start, used := time.Now(), cpu(b)
				e.applyMany(b, crds)
				applied := time.Now()
				awaitMany(b, watch)
				b.ReportMetric(applied.Sub(start).Seconds(), "s-to-apply")
				b.ReportMetric(time.Since(applied).Seconds(), "s-to-establish")
				b.ReportMetric((cpu(b)-used).Seconds()/definitions*1000, "CPU-ms/definition")
				b.StopTimer()
				watch.Stop()
				b.ReportMetric(float64(heap()-before)/definitions/1024, "KiB/idle-definition")
				e.Stop(b)
				b.StartTimer()
			}
		})
	}
}

// BenchmarkDocuments reads discovery and OpenAPI documents with a thousand definitions: for the
// first time, again without a change, and after a change of one definition.
func BenchmarkDocuments(b *testing.B) {
	e := newEnv(b, testserver.Options{})
	watch, err := e.crds.ApiextensionsV1().CustomResourceDefinitions().Watch(b.Context(), metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	e.applyMany(b, many(b))
	awaitMany(b, watch)
	watch.Stop()
	const v2 = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
	for _, doc := range []struct{ name, path, accept string }{
		{"discovery", "/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"},
		{"v3-index", "/openapi/v3", "application/json"},
		{"v3-group", "/openapi/v3/apis/g7.example.com/v1", "application/json"},
		{"v2", "/openapi/v2", "application/json"},
		{"v2-protobuf", "/openapi/v2", v2},
	} {
		get := func(b *testing.B) {
			body, err := e.Client.CoreV1().RESTClient().Get().AbsPath(doc.path).SetHeader("Accept",
				doc.accept).DoRaw(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(len(body))/1e6, "MB")
		}
		b.Run(doc.name+"/first", func(b *testing.B) {
			for b.Loop() {
				get(b)
			}
		})
		b.Run(doc.name+"/changed", func(b *testing.B) {
			for n := 0; b.Loop(); n++ {
				b.StopTimer()
				e.changeOne(b, fmt.Sprint(doc.name, n))
				b.StartTimer()
				get(b)
			}
		})
	}
}

// changeOne sets a schema description in the first definition to the given text, and waits until
// the OpenAPI document of its group contains the text.
func (e *env) changeOne(b *testing.B, what string) {
	const path = "/openapi/v3/apis/g0.example.com/v1"
	patch := fmt.Sprintf(
		`[{"op":"replace","path":"/spec/versions/0/schema/openAPIV3Schema/description","value":%q}]`, what)
	if _, err := e.crds.ApiextensionsV1().CustomResourceDefinitions().Patch(b.Context(),
		"crontab0s.g0.example.com", types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		b.Fatal(err)
	}
	for {
		doc, err := e.Client.CoreV1().RESTClient().Get().AbsPath(path).DoRaw(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if strings.Contains(string(doc), what) {
			return
		}
	}
}

// many returns a thousand definitions in 50 groups.
func many(b *testing.B) (crds []*apiextensionsv1.CustomResourceDefinition) {
	const groups = 50
	for i := range definitions {
		doc := strings.NewReplacer(
			"stable.example.com", fmt.Sprintf("g%d.example.com", i%groups), "[ct]", "[]",
			"crontab", fmt.Sprintf("crontab%d", i), "CronTab", fmt.Sprintf("CronTab%d", i),
		).Replace(crontabs)
		crds = append(crds, parse[apiextensionsv1.CustomResourceDefinition](b, doc))
	}
	return crds
}

// applyMany creates the CustomResourceDefinitions with 16 concurrent clients.
func (e *env) applyMany(b *testing.B, crds []*apiextensionsv1.CustomResourceDefinition) {
	const clients = 16
	var wg sync.WaitGroup
	queue := make(chan *apiextensionsv1.CustomResourceDefinition)
	for range clients {
		wg.Go(func() {
			for crd := range queue {
				if _, err := e.crds.ApiextensionsV1().CustomResourceDefinitions().Create(b.Context(), crd,
					metav1.CreateOptions{}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for _, crd := range crds {
		queue <- crd
	}
	close(queue)
	wg.Wait()
}

func awaitMany(b *testing.B, w watch.Interface) {
	established := make(map[string]bool)
	for len(established) < definitions {
		ev, ok := <-w.ResultChan()
		if !ok {
			b.Fatal("watch ended")
		}
		if crd, ok := ev.Object.(*apiextensionsv1.CustomResourceDefinition); ok &&
			apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
			established[crd.Name] = true
		}
	}
}

// cpu returns the CPU time of the process, which includes server and clients.
func cpu(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkCreate measures the creation of one object by one client.
func BenchmarkCreate(b *testing.B) {
	e := newEnv(b, testserver.Options{})
	e.define(b, crontabs)
	tabs := e.dynamic.Resource(crontabResource()).Namespace("default")
	n := 0
	for b.Loop() {
		n++
		if _, err := tabs.Create(b.Context(),
			crontab(b, fmt.Sprint("a", n), `{cronSpec: "* *", replicas: 3, tags: [a, b]}`), metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}
