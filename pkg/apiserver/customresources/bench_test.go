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

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

const definitions = 1000

// BenchmarkEstablish creates a thousand definitions at once and waits until all
// are established. It tells how long after the last create that was, and what
// an idle definition keeps of the heap.
func BenchmarkEstablish(b *testing.B) {
	for name, etcd := range map[string]bool{"memory": false, "etcd": true} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				e := newEnv(b, testserver.Options{Etcd: etcd})
				before := heap()
				watch, err := e.crds.ApiextensionsV1().CustomResourceDefinitions().Watch(b.Context(), metav1.ListOptions{})
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				start := time.Now()
				e.applyMany(b)
				applied := time.Now()
				awaitMany(b, watch)
				b.ReportMetric(applied.Sub(start).Seconds(), "s-to-apply")
				b.ReportMetric(time.Since(applied).Seconds(), "s-to-establish")
				b.StopTimer()
				watch.Stop()
				b.ReportMetric(float64(heap()-before)/definitions/1024, "KiB/idle-definition")
				e.Stop(b)
				b.StartTimer()
			}
		})
	}
}

// applyMany creates the definitions, in fifty groups.
func (e *env) applyMany(b *testing.B) {
	const clients, groups = 16, 50
	var wg sync.WaitGroup
	queue := make(chan int)
	for range clients {
		wg.Go(func() {
			for i := range queue {
				doc := strings.NewReplacer(
					"stable.example.com", fmt.Sprintf("g%d.example.com", i%groups), "[ct]", "[]",
					"crontab", fmt.Sprintf("crontab%d", i), "CronTab", fmt.Sprintf("CronTab%d", i),
				).Replace(crontabs)
				crd := parse[apiextensionsv1.CustomResourceDefinition](b, doc)
				if _, err := e.crds.ApiextensionsV1().CustomResourceDefinitions().Create(b.Context(), crd, metav1.CreateOptions{}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for i := range definitions {
		queue <- i
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
		if crd, ok := ev.Object.(*apiextensionsv1.CustomResourceDefinition); ok && apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
			established[crd.Name] = true
		}
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkCreate is one object made by one client, everything included.
func BenchmarkCreate(b *testing.B) {
	e := newEnv(b, testserver.Options{})
	e.define(b, crontabs)
	tabs := e.dynamic.Resource(crontabResource()).Namespace("default")
	n := 0
	for b.Loop() {
		n++
		if _, err := tabs.Create(b.Context(), crontab(b, fmt.Sprint("a", n), `{cronSpec: "* *", replicas: 3, tags: [a, b]}`), metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}
