// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestMetrics checks that the stable metrics exist. Users base alerts on them.
func TestMetrics(t *testing.T) {
	s := testserver.Start(t, testserver.Options{Etcd: true})
	// read a deprecated API, so that the metric of deprecated APIs has a value
	if _, err := s.Client.CoreV1().ComponentStatuses().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	w, err := s.Client.CoreV1().PodTemplates("default").Watch(t.Context(), metav1.ListOptions{
		SendInitialEvents: new(true), AllowWatchBookmarks: true,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if _, err := s.Client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{
		FieldSelector: "spec.nodeName=n"}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`apiserver_storage_objects{resource="namespaces"} 4`,
		`# HELP apiserver_storage_objects [STABLE] [DEPRECATED, consider using apiserver_resource_objects ` +
			`instead] Number of stored objects`,
		`apiserver_storage_objects{resource="deployments.apps"} 0`, // a resource that no client has used
		`apiserver_storage_objects{resource="flowschemas.flowcontrol.apiserver.k8s.io"} 11`,
		`kubernetes_feature_enabled{name="APIResponseCompression",stage="BETA"} 1`,
		`kubernetes_feature_enabled{name="AllAlpha",stage="ALPHA"} 0`,
		`apiserver_storage_size_bytes{storage_cluster_id="etcd-0"} `,
		`apiserver_response_sizes_count{component="apiserver",group="",resource="componentstatuses",` +
			`scope="cluster",subresource="",verb="LIST",version="v1"} 1`,
		`apiserver_requested_deprecated_apis{group="",removed_release="",resource="componentstatuses",` +
			`subresource="",version="v1"} 1`,
		`apiserver_current_inflight_requests{request_kind="readOnly"}`,
		`apiserver_storage_events_received_total{group="",resource="namespaces"} `,
		`apiserver_watch_list_duration_seconds_count{group="",resource="podtemplates",scope="namespace",version="v1"} 1`,
		`apiserver_watch_events_total{group="",resource="podtemplates",version="v1"} 1`,
		`apiserver_watch_events_sizes_count{group="",resource="podtemplates",version="v1"} 1`,
		`apiserver_request_sli_duration_seconds_count{component="apiserver",group="",resource="componentstatuses",` +
			`scope="cluster",subresource="",verb="LIST",version="v1"} 1`,
		`etcd_requests_total{group="",operation="create",resource="namespaces"} `,
		`etcd_request_duration_seconds_count{group="apps",operation="list",resource="deployments"} `,
		`apiserver_storage_list_total{group="",index="",resource="podtemplates",storage="etcd"} 1`,
		`apiserver_storage_list_evaluated_objects_total{group="",resource="podtemplates",storage="etcd"} 0`,
		`apiserver_storage_list_total{group="",index="f:spec.nodeName",resource="pods",storage="watchcache"} 1`,
		`apiserver_storage_list_fetched_objects_total{group="",index="f:spec.nodeName",resource="pods",` +
			`storage="watchcache"} 0`,
		`apiserver_storage_list_returned_objects_total{group="",resource="pods",storage="watchcache"} `,
		`apiserver_request_filter_duration_seconds_count{filter="authentication"} `,
		`apiserver_request_filter_duration_seconds_count{filter="priorityandfairness"} `,
		`registered_metrics_total{`,
		`apiserver_flowcontrol_nominal_limit_seats{`,
	} {
		poll(t, want, func(context.Context) bool { // a request may be counted shortly after its answer was sent
			_, metrics := answerTo(t, s.Config, "/metrics")
			return strings.Contains(metrics, want)
		})
	}
	if body, err := s.Client.CoreV1().RESTClient().Delete().AbsPath("/metrics").DoRaw(
		t.Context()); err != nil || string(body) != "metrics reset\n" {
		t.Errorf("reset: %s, %v", body, err)
	}
	_, metrics := answerTo(t, s.Config, "/metrics")
	if !strings.Contains(metrics, "apiserver_requested_deprecated_apis{") ||
		strings.Contains(metrics, "apiserver_watch_list_duration_seconds_count{") {
		t.Error("gauges are to stay, what was counted is to be forgotten")
	}
}

// TestMetricsHeaders checks that answers with metrics have a header with the start time of the
// process, and no header Vary.
func TestMetricsHeaders(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	client, err := rest.HTTPClientFor(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/metrics", "/metrics/slis"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.Config.Host+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if vary, since := resp.Header.Values("Vary"),
			resp.Header.Get("Process-Start-Time-Unix"); len(vary) > 0 || since == "" {
			t.Errorf("%s: Vary %q, counted since %q", path, vary, since)
		}
	}
}
