// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// auditPolicy records only metadata for secrets, and everything except managed fields for config
// maps.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: [admin, "system:apiserver"]
- level: Metadata
  resources: [{resources: [secrets, serviceaccounts/token]}]
- level: RequestResponse
  omitManagedFields: true
  resources: [{resources: [configmaps]}, {group: apps}]
- level: RequestResponse
  resources: [{resources: [pods/eviction]}, {group: autoscaling}]
- level: RequestResponse
  nonResourceURLs: [/api]
- level: Request
  resources: [{resources: [services]}]
- level: Metadata
`

// auditEvents reads an audit log.
func auditEvents(t *testing.T, path string) (events []auditv1.Event) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		var e auditv1.Event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		events = append(events, e)
	}
	return events
}

// TestAudit checks which events the audit log has for requests on several kinds of objects, and
// which of their fields the policy omits.
func TestAudit(t *testing.T) {
	dir := t.TempDir()
	log, policy := filepath.Join(dir, "log", "audit.log"), filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	s := testserver.Start(t, testserver.Options{Configure: func(c *config.Config) {
		c.Audit.PolicyFile, c.Audit.Log.Path = policy, log
	}})
	makeAdmin(t, s, "bob")
	bob := kubernetes.NewForConfigOrDie(s.UserConfig(t, "bob")).CoreV1()
	ctx := t.Context()
	if _, err := bob.Secrets("default").Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"k": "hush-hush"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := bob.Secrets("default").List(ctx, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := bob.ConfigMaps("default").Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: map[string]string{"k": "v"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := bob.ConfigMaps("default").Patch(ctx, "c", types.MergePatchType, []byte(`{"data":{"k":"w"}}`),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := bob.Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	as := func(accept string) {
		t.Helper()
		client, err := rest.HTTPClientFor(s.UserConfig(t, "bob"))
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet,
			s.Config.Host+"/api/v1/namespaces/default/configmaps/c", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", accept)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	as("application/json;as=Table;g=meta.k8s.io;v=v1")
	as("text/html")
	if resp, _ := answerTo(t, s.UserConfig(t, "bob"), "/api"); resp.StatusCode != http.StatusOK {
		t.Fatalf("/api: %d", resp.StatusCode)
	}
	if _, err := kubernetes.NewForConfigOrDie(s.UserConfig(t, "bob")).AppsV1().Deployments(
		"default").UpdateScale(ctx, "none", &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: "none"}, Spec: autoscalingv1.ScaleSpec{Replicas: 7},
	}, metav1.UpdateOptions{}); err == nil {
		t.Fatal("what is not there was scaled")
	}
	if _, err := bob.Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := bob.ServiceAccounts("default").Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	if _, err := bob.Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := bob.Pods("default").Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Target: corev1.ObjectReference{Name: "n"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	old := &policyv1beta1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "none", Namespace: "default"}}
	if err := bob.Pods("default").EvictV1beta1(ctx, old); !apierrors.IsNotFound(err) {
		t.Fatalf("eviction of nothing: %v", err)
	}
	if _, err := bob.Endpoints("default").List(ctx, metav1.ListOptions{}); err != nil {
		//nolint:staticcheck // it is deprecated
		t.Fatal(err)
	}
	scaler := &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "h"},
		Spec: autoscalingv1.HorizontalPodAutoscalerSpec{
			MaxReplicas: 3, ScaleTargetRef: autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1",
				Kind: "Deployment", Name: "d"},
		}}
	scalers := kubernetes.NewForConfigOrDie(s.UserConfig(t, "bob")).AutoscalingV1().HorizontalPodAutoscalers("default")
	if _, err := scalers.Create(ctx, scaler, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := scalers.List(ctx, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := bob.ConfigMaps("default").Delete(ctx, "c", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	nobody := s.UserConfig(t, "eve")
	if resp, _ := answerTo(t, nobody, "/api/v1/namespaces/default/secrets/s"); resp.StatusCode != http.StatusForbidden {
		t.Fatalf("eve was answered with %d", resp.StatusCode)
	}
	if resp, _ := answerTo(t, s.TokenConfig("wrong"), "/api/v1/nodes"); resp.StatusCode != http.StatusUnauthorized {
		t.Fatalf("a wrong token was answered with %d", resp.StatusCode)
	}
	like := rest.CopyConfig(s.UserConfig(t, "bob"))
	like.Impersonate = rest.ImpersonationConfig{UserName: "eve"}
	if resp, _ := answerTo(t, like, "/api/v1/namespaces/default/pods"); resp.StatusCode != http.StatusForbidden {
		t.Fatalf("bob as eve was answered with %d", resp.StatusCode)
	}
	s.Stop(t)

	find := func(user, verb, resource string) *auditv1.Event {
		t.Helper()
		for _, e := range auditEvents(t, log) {
			if e.User.Username == user && e.Verb == verb && e.ObjectRef != nil &&
				e.ObjectRef.Resource == resource && e.Stage != auditv1.StageRequestReceived {
				return &e
			}
		}
		t.Fatalf("nothing of %s %s by %q", verb, resource, user)
		return nil
	}
	if e := find("bob", "create", "secrets"); e.Level != auditv1.LevelMetadata || e.RequestObject != nil ||
		e.ResponseObject != nil || e.ResponseStatus.Code != 201 || e.AuditID == "" {
		t.Errorf("secret: %+v", e)
	}
	e := find("bob", "create", "configmaps")
	if e.Level != auditv1.LevelRequestResponse || !strings.Contains(string(e.RequestObject.Raw), `"k":"v"`) ||
		!strings.Contains(string(e.ResponseObject.Raw), `"uid":"`) ||
		strings.Contains(string(e.ResponseObject.Raw), "managedFields") ||
		e.Annotations["authorization.k8s.io/decision"] != "allow" {
		t.Errorf("config map: %+v", e)
	}
	if e.StageTimestamp.Before(&e.RequestReceivedTimestamp) || len(e.SourceIPs) != 1 || e.SourceIPs[0] != "127.0.0.1" {
		t.Errorf("config map: %v %v %v", e.RequestReceivedTimestamp, e.StageTimestamp, e.SourceIPs)
	}
	if e := find("bob", "patch", "configmaps"); string(e.RequestObject.Raw) != `{"data":{"k":"w"}}` ||
		!strings.Contains(string(e.ResponseObject.Raw), `"k":"w"`) {
		t.Errorf("patch: %+v", e)
	}
	if e := find("bob", "get", "configmaps"); !strings.HasPrefix(string(e.ResponseObject.Raw),
		`{"kind":"Table","apiVersion":"meta.k8s.io/v1"`) ||
		!strings.Contains(string(e.ResponseObject.Raw), `"object":{"kind":"PartialObjectMetadata"`) ||
		strings.Contains(string(e.ResponseObject.Raw), "managedFields") {
		t.Errorf("table: %s", e.ResponseObject.Raw)
	}
	if e := find("bob", "update", "deployments"); e.RequestObject == nil ||
		!strings.HasPrefix(string(e.RequestObject.Raw), `{"kind":"Scale","apiVersion":"autoscaling/v1"`) {
		t.Errorf("scale: %+v", e)
	}
	evicted := slices.IndexFunc(auditEvents(t, log), func(e auditv1.Event) bool {
		return e.ObjectRef != nil &&
			e.ObjectRef.Subresource == "eviction"
	})
	if evicted < 0 || !strings.HasPrefix(string(auditEvents(t, log)[evicted].RequestObject.Raw),
		`{"kind":"Eviction","apiVersion":"policy/v1beta1"`) {
		t.Errorf("eviction: event %d", evicted)
	}
	bound := slices.IndexFunc(auditEvents(t, log), func(e auditv1.Event) bool {
		return e.ObjectRef != nil &&
			e.ObjectRef.Subresource == "binding"
	})
	if bound < 0 || auditEvents(t, log)[bound].ResponseStatus.Status != metav1.StatusSuccess {
		t.Errorf("binding: event %d", bound)
	}
	if e := find("bob", "list", "endpoints"); e.Annotations["k8s.io/deprecated"] != "true" {
		t.Errorf("endpoints: %+v", e.Annotations)
	}
	made, listed := find("bob", "create", "horizontalpodautoscalers"), find("bob", "list", "horizontalpodautoscalers")
	for _, obj := range []*runtime.Unknown{made.RequestObject, made.ResponseObject, listed.ResponseObject} {
		if obj == nil || !strings.Contains(string(obj.Raw), `"targetCPUUtilizationPercentage":80`) {
			t.Errorf("scaler: %s", obj)
		}
	}
	var codes, documents int
	for _, e := range auditEvents(t, log) {
		if e.ResponseStatus != nil && e.ResponseStatus.Code == http.StatusNotAcceptable &&
			e.ResponseStatus.Reason == "" && e.ResponseObject == nil {
			codes++
		}
		if e.RequestURI == "/api" && e.ResponseObject != nil &&
			strings.HasPrefix(string(e.ResponseObject.Raw), `{"kind":"APIVersions","versions":["v1"]`) {
			documents++
		}
	}
	if codes != 1 || documents != 1 {
		t.Errorf("%d codes of what is not acceptable, %d documents", codes, documents)
	}
	if e := find("bob", "delete", "configmaps"); !strings.HasPrefix(string(e.RequestObject.Raw),
		`{"kind":"DeleteOptions","apiVersion":"meta.k8s.io/__internal"`) {
		t.Errorf("options: %s", e.RequestObject.Raw)
	}
	if e := find("bob", "create", "services"); !strings.Contains(string(e.RequestObject.Raw),
		`"sessionAffinity":"None"`) || e.ResponseObject != nil {
		t.Errorf("service, its defaults filled in: %s", e.RequestObject.Raw)
	}
	if e := find("bob", "create", "secrets"); e.ObjectRef.Name != "s" {
		t.Errorf("secret: %+v", e.ObjectRef)
	}
	if e := find("eve", "get", "secrets"); e.ResponseStatus.Code != 403 ||
		e.ResponseStatus.Reason != metav1.StatusReasonForbidden ||
		e.Annotations["authorization.k8s.io/decision"] != "forbid" {
		t.Errorf("forbidden: %+v", e)
	}
	if e := find("", "list", "nodes"); e.ResponseStatus.Code != 401 {
		t.Errorf("unauthorized: %+v", e.ResponseStatus)
	}
	if e := find("bob", "list", "pods"); e.ImpersonatedUser == nil || e.ImpersonatedUser.Username != "eve" {
		t.Errorf("impersonation: %+v", e)
	}
	raw, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(raw), "aHVzaC1odXNo") || strings.Contains(string(raw), "hush-hush") ||
		strings.Contains(string(raw), "wrong") {
		t.Error("the log has the secret")
	}
	if strings.Contains(string(raw), `"username":"admin"`) || strings.Contains(string(raw), `"stage":"RequestReceived"`) {
		t.Error("the log has what the policy leaves out")
	}
	if info, err := os.Stat(log); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("log: %v %v", info.Mode(), err)
	}
}
