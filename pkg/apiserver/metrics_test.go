// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"keelson.dev/apiserver/store/kv/etcd/embedded"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestMetrics checks that the stable metrics exist. Users base alerts on them.
func TestMetrics(t *testing.T) {
	s := testserver.Start(t, testserver.Options{Etcd: embedded.Start})
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

// TestCertificateDurations checks that the server counts a certificate that is issued for the
// duration that the signing request asks for, and that a dry run does not count.
func TestCertificateDurations(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	request, err := x509.CreateCertificateRequest(nil, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Unix(3600, 0)}
	issued, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	requests := s.Client.CertificatesV1().CertificateSigningRequests()
	r, err := requests.Create(t.Context(), &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}),
			SignerName: "example.com/s", ExpirationSeconds: new(int32(3600)),
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature},
		}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: issued})
	for _, dryRun := range [][]string{{"All"}, nil} {
		if _, err := requests.UpdateStatus(t.Context(), r, metav1.UpdateOptions{DryRun: dryRun}); err != nil {
			t.Fatal(err)
		}
	}
	_, metrics := answerTo(t, s.Config, "/metrics")
	for _, name := range []string{"requested", "honored"} {
		if want := `apiserver_certificates_registry_csr_` + name +
			`_duration_total{signerName="other"} 1`; !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
}
