// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"

	"keelson.dev/apiserver/rest"
	"keelson.dev/apiserver/table"
	"keelson.dev/apiserver/wire"
)

const (
	asProto     = "application/vnd.kubernetes.protobuf"
	asTable     = "application/json;as=Table;g=meta.k8s.io;v=v1"
	asMetadata  = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	asMetaProto = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// get reads a list twice, uncompressed and compressed, and returns its text.
func (e *env) get(t *testing.T, path, accept string) string {
	t.Helper()
	plain := e.must(t, "GET", path, "", "Accept", accept)
	zipped := e.must(t, "GET", path, "", "Accept", accept, "Accept-Encoding", "gzip")
	if large := len(plain.body) > 128<<10; large != (zipped.header.Get("Content-Encoding") == "gzip") {
		t.Errorf("%s as %s: %d bytes, encoding %q", path, accept, len(plain.body), zipped.header.Get("Content-Encoding"))
	}
	text := zipped.body
	if zipped.header.Get("Content-Encoding") == "gzip" {
		r, err := gzip.NewReader(strings.NewReader(zipped.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Multistream(false)
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		text = string(b)
	}
	if text != plain.body {
		t.Errorf("%s as %s: %d bytes compressed, %d plain", path, accept, len(text), len(plain.body))
	}
	return plain.body
}

// checkPretty compares an indented list with the same list without indentation.
func (e *env) checkPretty(t *testing.T, path, accept string) {
	t.Helper()
	plain, pretty := e.get(t, path, accept), path+"?pretty=1"
	if strings.Contains(path, "?") {
		pretty = path + "&pretty=1"
	}
	var want bytes.Buffer
	if err := json.Indent(&want, []byte(strings.TrimSpace(plain)), "", "  "); err != nil {
		t.Fatal(err)
	}
	if got := e.get(t, pretty, accept); got != want.String() {
		t.Errorf("%s as %s for people: %d bytes, want %d", path, accept, len(got), want.Len())
	}
}

// checkPods checks that lists of pods in every form equal the output of Kubernetes' encoders.
func (e *env) checkPods(t *testing.T, path string, now time.Time) int {
	t.Helper()
	var list corev1.PodList
	doc := e.get(t, path, "application/json")
	if err := json.Unmarshal([]byte(doc), &list); err != nil {
		t.Fatal(err)
	}
	equal := func(form, got string, want []byte, err error) {
		t.Helper()
		if err != nil || got != string(want) {
			t.Errorf("%s as %s: %d bytes, want %d, %v", path, form, len(got), len(want), err)
		}
	}
	var again bytes.Buffer
	err := json.NewEncoder(&again).Encode(&list)
	equal("JSON", doc, again.Bytes(), err)
	e.checkPretty(t, path, "application/json")
	e.checkPretty(t, path, asTable)
	want, err := wire.NewHeader("v1", "PodList").Marshal(&list)
	equal("protobuf", e.get(t, path, asProto), want, err)

	metas := &metav1.PartialObjectMetadataList{ListMeta: list.ListMeta}
	rows, err := table.AppendHead(nil, "v1", list.ListMeta, podRow().Columns)
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		p := &list.Items[i]
		metas.Items = append(metas.Items, metav1.PartialObjectMetadata{ObjectMeta: p.ObjectMeta})
		meta := metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata",
			APIVersion: "meta.k8s.io/v1"}, ObjectMeta: p.ObjectMeta}
		object, err := json.Marshal(&meta)
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			rows = append(rows, ',')
		}
		if rows, err = table.AppendRow(rows, table.LineOf(podRow(), p, now), object); err != nil {
			t.Fatal(err)
		}
	}
	equal("Table", e.get(t, path, asTable), append(table.AppendTail(rows), '\n'), nil)
	want, err = wire.NewHeader("meta.k8s.io/v1", "PartialObjectMetadataList").Marshal(metas)
	equal("metadata in protobuf", e.get(t, path, asMetaProto), want, err)
	for i := range metas.Items {
		metas.Items[i].TypeMeta = metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"}
	}
	metas.TypeMeta = metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"}
	again.Reset()
	err = json.NewEncoder(&again).Encode(metas)
	equal("metadata", e.get(t, path, asMetadata), again.Bytes(), err)
	return len(list.Items)
}

// TestLists reads lists of more than one block in every form, and reads them again after changes.
// Cached parts of one list must not appear in another.
func TestLists(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Now())
	e := newEnv(t, func(c *rest.Config) { c.Clock = clk })
	pod := func(ns string, i int) string {
		return fmt.Sprintf(`{"metadata":{"name":"p%03d","namespace":%q,"labels":{"n":"%d","odd":"%d"},`+
			`"annotations":{"x":"<é&>\u2028"}},"spec":{"nodeName":"n%d","containers":[{"name":"c","image":"i"}]}}`,
			i, ns, i, i%2, i%7)
	}
	for i := range 300 {
		for _, ns := range []string{"t", "u"} {
			e.must(t, "POST", "/api/v1/namespaces/"+ns+"/pods", pod(ns, i))
		}
	}
	paths := map[string]int{
		"/api/v1/pods": 600, pods: 300, pods + "?limit=280": 280, pods + "?labelSelector=odd=1": 150,
		"/api/v1/pods?fieldSelector=spec.nodeName%3Dn3": 86, pods + "?labelSelector=n=17": 1,
		pods + "?labelSelector=n=none": 0,
	}
	check := func() {
		t.Helper()
		for path, want := range paths {
			if n := e.checkPods(t, path, clk.Now()); n != want {
				t.Errorf("%s: %d items, want %d", path, n, want)
			}
		}
	}
	check()
	clk.Step(3 * time.Hour)
	e.must(t, "PATCH", pods+"/p170", `{"metadata":{"annotations":{"a":"<b>"}}}`, "Content-Type", merge)
	e.must(t, "DELETE", pods+"/p171?gracePeriodSeconds=0", "")
	paths["/api/v1/pods"], paths[pods], paths[pods+"?labelSelector=odd=1"],
		paths["/api/v1/pods?fieldSelector=spec.nodeName%3Dn3"] = 599, 299, 149, 85
	check()

	first := e.must(t, "GET", pods+"?limit=70", "")
	var page corev1.PodList
	if err := json.Unmarshal([]byte(first.body), &page); err != nil {
		t.Fatal(err)
	}
	e.must(t, "PATCH", pods+"/p100", `{"metadata":{"annotations":{"a":"c"}}}`, "Content-Type", merge)
	if n := e.checkPods(t, pods+"?limit=220&continue="+page.Continue, clk.Now()); n != 220 {
		t.Errorf("second page of %d", n)
	}
}

// TestListsOfConversions reads a list in a version that is not the storage version, so that each
// object has to be converted.
func TestListsOfConversions(t *testing.T) {
	e := newEnv(t, nil)
	const path = "/apis/autoscaling/v1/namespaces/t/horizontalpodautoscalers"
	for i := range 70 {
		e.must(t, "POST", path,
			fmt.Sprintf(
				`{"metadata":{"name":"a%d"},"spec":{"maxReplicas":%d,"scaleTargetRef":{"kind":"K","name":"n"}}}`, i, i+1))
	}
	var list autoscalingv1.HorizontalPodAutoscalerList
	doc := e.get(t, path, "application/json")
	if err := json.Unmarshal([]byte(doc), &list); err != nil || len(list.Items) != 70 {
		t.Fatal(len(list.Items), err)
	}
	var again bytes.Buffer
	if err := json.NewEncoder(&again).Encode(&list); err != nil || again.String() != doc {
		t.Errorf("%q, want %q, %v", doc, again.String(), err)
	}
	want, err := wire.NewHeader("autoscaling/v1", "HorizontalPodAutoscalerList").Marshal(&list)
	if got := e.get(t, path, asProto); err != nil || got != string(want) {
		t.Errorf("protobuf: %q, want %q, %v", got, want, err)
	}
}
