// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// storedBy137 has objects with and without parts that 1.36 does not have. Those with names that begin
// with "new" have such parts.
const storedBy137 = `
{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: old.example.com}}
{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: new.example.com},
  spec: {preventPodSchedulingIfMissing: true}}
{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: old, namespace: default}, spec: {selector: {matchLabels: {a: b}},
  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}
{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: new, namespace: default}, spec: {selector: {matchLabels: {a: b}},
  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}],
    volumes: [{name: v, projected: {sources: [{clusterTrustBundle: {name: b, path: p}}]}}]}},
  updateStrategy: {rollingUpdate: {maxUnavailable: 2}}}}
{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: old, namespace: default},
  spec: {minReplicas: 1, maxReplicas: 2, scaleTargetRef: {kind: Deployment, name: d, apiVersion: apps/v1}}}
{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: new, namespace: default},
  spec: {minReplicas: 0, maxReplicas: 2, scaleTargetRef: {kind: Deployment, name: d, apiVersion: apps/v1},
    metrics: [{type: External, external: {metric: {name: m}, target: {type: Value, value: "1"}}}]}}
{apiVersion: resource.k8s.io/v1, kind: DeviceTaintRule, metadata: {name: new},
  spec: {taint: {key: example.com/a, effect: NoSchedule}}}
{apiVersion: storagemigration.k8s.io/v1, kind: StorageVersionMigration, metadata: {name: new},
  spec: {resource: {resource: secrets}}}
`

var plurals = map[string]string{"CSIDriver": "csidrivers", "StatefulSet": "statefulsets",
	"HorizontalPodAutoscaler": "horizontalpodautoscalers", "DeviceTaintRule": "devicetaintrules",
	"StorageVersionMigration": "storageversionmigrations"}

// onePerPage is a transport that makes each page of a list have one object.
type onePerPage struct {
	http.RoundTripper
	lists int
}

func (p *onePerPage) RoundTrip(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	if query.Get("limit") == "500" {
		p.lists++
		query.Set("limit", "1")
		r = r.Clone(r.Context())
		r.URL.RawQuery = query.Encode()
	}
	return p.RoundTripper.RoundTrip(r)
}

// TestCheckDowngrade checks which objects of an API server "ctl check-downgrade" lists.
func TestCheckDowngrade(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	check := func() (table string, err error) {
		t.Helper()
		cfg, pages := rest.CopyConfig(s.Config), &onePerPage{}
		cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { pages.RoundTripper = rt; return pages })
		found, err := unsupported(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if pages.lists == 0 {
			t.Error("no list has a limit of 500")
		}
		var out bytes.Buffer
		err = printUnsupported(&out, found)
		return out.String(), err
	}
	if table, err := check(); err != nil || table != "Kubernetes 1.36 supports all objects.\n" {
		t.Errorf("empty cluster: %v\n%s", err, table)
	}
	client, err := dynamic.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.SplitSeq(strings.TrimSpace(storedBy137), "\n{") {
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte("{"+strings.TrimPrefix(text, "{")), &obj.Object); err != nil {
			t.Fatal(err)
		}
		resource := obj.GroupVersionKind().GroupVersion().WithResource(plurals[obj.GetKind()])
		if _, err := into(client, resource, obj.GetNamespace()).Create(t.Context(), obj, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	table, err := check()
	const none = "does not serve it by default"
	var got [][]string
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		got = append(got, append(fields[:3:3], strings.Join(fields[3:], " ")))
	}
	want := [][]string{
		{"RESOURCE", "NAMESPACE", "NAME", "WHAT KUBERNETES 1.36 DOES"},
		{"statefulsets.apps", "default", "new", "drops spec.updateStrategy.rollingUpdate.maxUnavailable"},
		{"statefulsets.apps", "default", "new", "drops sources clusterTrustBundle of projected volumes"},
		{"horizontalpodautoscalers.autoscaling", "default", "new", "rejects spec.minReplicas: 0 in new objects"},
		{"csidrivers.storage.k8s.io", "-", "new.example.com", "drops spec.preventPodSchedulingIfMissing"},
		{"devicetaintrules.resource.k8s.io", "-", "new", none},
		{"storageversionmigrations.storagemigration.k8s.io", "-", "new", none},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err == nil || err.Error() != "Kubernetes 1.36 does not support 5 objects" {
		t.Errorf("error: %v", err)
	}
}

func into(client dynamic.Interface, resource schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return client.Resource(resource)
	}
	return client.Resource(resource).Namespace(namespace)
}

// TestCheckDowngradeEmulated checks that "ctl check-downgrade" fails if the API server emulates the
// previous release, because such a server does not serve some of the objects.
func TestCheckDowngradeEmulated(t *testing.T) {
	s := testserver.Start(t, testserver.Options{Configure: func(c *config.Config) { c.Features.Emulated = 36 }})
	_, err := unsupported(t.Context(), s.Config)
	if err == nil || !strings.Contains(err.Error(), "emulates Kubernetes 1.36") {
		t.Errorf("error: %v", err)
	}
}
