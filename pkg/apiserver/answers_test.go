// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// Parts of the requests of TestAnswers. caller.expand replaces {ns} by the name of the case's
// namespace. Cases also use that name for their cluster-scoped objects.
const (
	coreAPI        = "/api/v1/namespaces/{ns}/"
	jobsAPI        = "/apis/batch/v1/namespaces/{ns}/jobs"
	deploymentsAPI = "/apis/apps/v1/namespaces/{ns}/deployments"
	scalersAPI     = "/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers"
	networkAPI     = "/apis/networking.k8s.io/v1/"

	podSpec = `"spec":{"containers":[{"name":"c","image":"i"}]}`
)

// answer is a case of TestAnswers: a request and the answer of Kubernetes 1.37 to it.
type answer struct {
	name               string
	given              string // names of the fixtures that are sent before the request, in this order
	method, path, body string
	code               int
	want               string // part of the answer's body
	warning            string // part of the answer's warning; if empty, there is no warning
}

// fixture is a request that has to succeed before the request of a case is sent.
type fixture struct{ method, path, body string }

// fixtures returns the fixtures by name.
func fixtures() map[string]fixture {
	return map[string]fixture{
		"revised": {"PATCH", coreAPI + "configmaps/revised?fieldManager=f",
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"revised","resourceVersion":"5"}}`},
		"revisedUnknownVersion": {"PUT", coreAPI + "configmaps/revised",
			`{"metadata":{"name":"revised","managedFields":[{"manager":"a","operation":"Update","apiVersion":"x","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:a":{}}}},{"manager":"b","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:immutable":{}}}]},"data":{"a":"b"},"immutable":false}`},
		"deploymentScale": {"PATCH", deploymentsAPI + "/d/scale", `{"bogus":1}`},
		// In the namespace default, an event may be about an object without a namespace.
		"eventDefault": {"POST", "/api/v1/namespaces/default/events",
			`{"metadata":{"name":"{ns}"},"involvedObject":{"kind":"Pod","name":"p","namespace":"default"},"reason":"R","message":"m"}`},
		"map": {"POST", coreAPI + "configmaps", `{"metadata":{"name":"m"}}`},
		"templateA": {"POST", coreAPI + "podtemplates", `{"metadata":{"name":"{ns}",` +
			`"labels":{"a":"b"}},"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}`},
		"templateB": {"POST", coreAPI + "podtemplates",
			`{"metadata":{"name":"{ns}-b"},"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}`},
		// This list reads events from the store. Afterwards, the cache has all events.
		"eventsRead": {"GET", coreAPI + "events", ""},
		"event1": {"POST", coreAPI + "events",
			`{"metadata":{"name":"e1"},"involvedObject":{"namespace":"{ns}"}}`},
		"event2": {"POST", coreAPI + "events",
			`{"metadata":{"name":"e2"},"involvedObject":{"namespace":"{ns}"}}`},
		"event": {"POST", coreAPI + "events", `{"metadata":{"name":"e"},` +
			`"involvedObject":{"kind":"Pod","name":"p","namespace":"{ns}"},"reason":"R","message":"m"}`},
		"orphaning": {"POST", coreAPI + "events", `{"metadata":{"name":"orphaning",` +
			`"finalizers":["orphan"]},"involvedObject":{"namespace":"{ns}"},"type":"Normal"}`},
		"going":           {"POST", "/api/v1/namespaces", `{"metadata":{"name":"{ns}-going"}}`},
		"goingForeground": {"DELETE", "/api/v1/namespaces/{ns}-going?orphanDependents=false", ``},
		"secret":          {"POST", coreAPI + "secrets", `{"metadata":{"name":"ordered"}}`},
		"deployment": {"POST", deploymentsAPI, `{"metadata":{"name":"d"},` +
			`"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},` + podSpec + `}}}`},
		"autoscaler": {"POST", scalersAPI, `{"metadata":{"name":"h"},"spec":{"maxReplicas":2,` +
			`"scaleTargetRef":{"apiVersion":"apps/v1","kind":"D","name":"d"},"metrics":[{"type":"Resource","resource":{"name":"memory","target":{"type":"Utilization","averageUtilization":5}}}]}}`},
		"job": {"POST", jobsAPI, `{"metadata":{"name":"j"},` +
			`"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`},
		"manualJob": {"POST", jobsAPI, `{"metadata":{"name":"manual"},` +
			`"spec":{"manualSelector":true,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`},
		"daemonSet": {"POST", "/apis/apps/v1/namespaces/{ns}/daemonsets",
			`{"metadata":{"name":"g"},"spec":{"selector":{"matchLabels":{"a":"b"}},` +
				`"template":{"metadata":{"labels":{"a":"b"}},` + podSpec + `}}}`},
		"controllerRevision": {"POST", "/apis/apps/v1/namespaces/{ns}/controllerrevisions",
			`{"metadata":{"name":"r"},"revision":1,"data":{"b": 1}}`},
		"controller": {"POST", coreAPI + "replicationcontrollers",
			`{"metadata":{"name":"r"},"spec":{"template":{"metadata":{"labels":{"a":"b"}},` + podSpec + `}}}`},
		"controllerDeprecated": {"PATCH", coreAPI + "replicationcontrollers/r",
			`{"spec":{"template":{"spec":{"nodeSelector":{"beta.kubernetes.io/os":"x"}}}}}`},
		"counted": {"POST", scalersAPI, `{"metadata":{"name":"counted"},` +
			`"spec":{"maxReplicas":2,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"D","name":"d"}}}`},
		"countedMore": {"PATCH", scalersAPI + "/counted", `{"spec":{"maxReplicas":3}}`},
		"podP":        {"POST", coreAPI + "pods", `{"metadata":{"name":"p"},` + podSpec + `}`},
		"podQ":        {"POST", coreAPI + "pods", `{"metadata":{"name":"q"},` + podSpec + `}`},
		"lost": {"POST", coreAPI + "pods",
			`{"metadata":{"name":"lost"},"spec":{"nodeName":"nowhere","containers":[{"name":"c","image":"i"}]}}`},
		"podOnNone": {"POST", coreAPI + "pods",
			`{"metadata":{"name":"o"},"spec":{"nodeName":"none","containers":[{"name":"c","image":"i"}]}}`},
		"node": {"POST", "/api/v1/nodes", `{"metadata":{"name":"{ns}"}}`},
		"claim": {"POST", coreAPI + "persistentvolumeclaims",
			`{"metadata":{"name":"c"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`},
		"volume": {"POST", "/api/v1/persistentvolumes",
			`{"metadata":{"name":"{ns}"},"spec":{"accessModes":["ReadWriteOnce"],"capacity":{"storage":"1"},"hostPath":{"path":"/x"}}}`},
		"driver": {"POST", "/apis/storage.k8s.io/v1/csidrivers",
			`{"metadata":{"name":"{ns}.d.x"},"spec":{"attachRequired":true}}`},
		"attachment": {"POST", "/apis/storage.k8s.io/v1/volumeattachments",
			`{"metadata":{"name":"{ns}"},"spec":{"attacher":"d.x","nodeName":"n","source":{"persistentVolumeName":"v"}}}`},
		"class": {"POST", "/apis/resource.k8s.io/v1/deviceclasses",
			`{"metadata":{"name":"{ns}"},"spec":{"config":[{"opaque":{"driver":"d","parameters":{"b": 1,"a": 2}}}]}}`},
		"classPatched":      {"PATCH", "/apis/resource.k8s.io/v1/deviceclasses/{ns}", `{"metadata":{"labels":{"a":"b"}}}`},
		"classPatchedAgain": {"PATCH", "/apis/resource.k8s.io/v1/deviceclasses/{ns}", `{"metadata":{"labels":{"a":"c"}}}`},
		"runtimeClass":      {"POST", "/apis/node.k8s.io/v1/runtimeclasses", `{"metadata":{"name":"{ns}"},"handler":"h"}`},
		"defaultClass": {"POST", "/apis/storage.k8s.io/v1/storageclasses", `{"metadata":{"name":"{ns}",` +
			`"annotations":{"storageclass.kubernetes.io/is-default-class":"true"}},"provisioner":"d.x"}`},
		"headless": {"POST", coreAPI + "services",
			`{"metadata":{"name":"headless"},"spec":{"clusterIP":"None"}}`},
		"balanced": {"POST", coreAPI + "services", `{"metadata":{"name":"balanced"},` +
			`"spec":{"type":"LoadBalancer","externalTrafficPolicy":"Local","ports":[{"port":1}]}}`},
		"emptyService": {"POST", coreAPI + "services",
			`{"metadata":{"name":"empty"},"spec":{"ports":[{"port":80}]}}`},
		"range": {"POST", networkAPI + "servicecidrs",
			`{"metadata":{"name":"{ns}"},"spec":{"cidrs":["192.168.0.0/24"]}}`},
		"roleBinding": {"POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
			`{"metadata":{"name":"{ns}"},"roleRef":{"kind":"ClusterRole","name":"view"}}`},
		"role": {"POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles",
			`{"metadata":{"name":"r"},"rules":[]}`},
		"linked": {"POST", "/apis/y.example.com/v1/namespaces/{ns}/bs",
			`{"apiVersion":"y.example.com/v1","kind":"B","metadata":{"name":"linked"}}`},
		"linkedLabel": {"PATCH", "/apis/y.example.com/v1/namespaces/{ns}/bs/linked",
			`{"metadata":{"selfLink":"/x","labels":{"a":"b"}}}`},
		"podSucceeded": {"PATCH", coreAPI + "pods/p/status", `{"status":{"phase":"Succeeded"}}`},
		"daemonSetAnnotated": {"POST", "/apis/apps/v1/namespaces/{ns}/daemonsets",
			`{"metadata":{"name":"d","annotations":{"a":"b"}},"spec":{"selector":{"matchLabels":{"a":"b"}},` +
				`"template":{"metadata":{"labels":{"a":"b"}},` + podSpec + `}}}`},
		"bs": {"POST", "/apis/y.example.com/v1/namespaces/{ns}/bs/x",
			`{"apiVersion":"y.example.com/v1","kind":"B","metadata":{"name":"{ns}"}}`},
	}
}

// TestAnswers compares code, message and warnings of answers with those of Kubernetes 1.37. Each
// case has a namespace of its own, so that it can run alone.
func TestAnswers(t *testing.T) {
	t.Parallel() // slow: waits for watches that end after a second
	c := newCaller(t)
	const definition = `{"metadata":{"name":"bs.y.example.com"},"spec":{"group":"y.example.com","scope":"Namespaced","names":{"plural":"bs","kind":"B"},
			"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"n":{"type":"integer"},
				"e":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}}}}},
			{"name":"v1beta1","served":true,"storage":false,"deprecated":true,"deprecationWarning":"use v1","schema":{"openAPIV3Schema":{"type":"object"}}}]}}`
	define(t, c.client, c.host, definition, "/apis/y.example.com/v1/bs")
	names := map[string]bool{}
	for i, tc := range slices.Concat(serverAnswers(), metaAnswers(), patchAnswers(), workloadAnswers(), podAnswers(),
		clusterAnswers(), serviceAnswers(), authAnswers(), customAnswers(), pathAnswers(), batchAnswers()) {
		if names[tc.name] {
			t.Errorf("two cases are named %q", tc.name)
		}
		names[tc.name] = true
		t.Run(tc.name, func(t *testing.T) {
			c := c.inNamespace(t, fmt.Sprintf("case-%d", i))
			c.prepare(t, tc.given)
			resp, body := c.send(t, tc.method, tc.path, tc.body, "")
			want, warning := c.expand(tc.want), resp.Header.Get("Warning")
			if resp.StatusCode != tc.code || !strings.Contains(body, want) ||
				!strings.Contains(warning, tc.warning) || tc.warning == "" && warning != "" {
				t.Errorf("%d %s (warning %q), want %d %s (warning %q)", resp.StatusCode, body, warning, tc.code, want, tc.warning)
			}
		})
	}
}

// caller sends the requests of test cases to a server.
type caller struct {
	client          *http.Client
	host, namespace string
}

func newCaller(t *testing.T) caller {
	t.Helper()
	s := testserver.Start(t, testserver.Options{})
	client, err := rest.HTTPClientFor(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	return caller{client: client, host: s.Config.Host}
}

// inNamespace returns a caller for a case that has a new namespace with its default service
// account.
func (c caller) inNamespace(t *testing.T, name string) caller {
	t.Helper()
	c.namespace = name
	c.must(t, fixture{"POST", "/api/v1/namespaces", `{"metadata":{"name":"{ns}"}}`})
	c.must(t, fixture{"POST", coreAPI + "serviceaccounts", `{"metadata":{"name":"default"}}`})
	return c
}

// expand replaces {ns} in s by the namespace of the case.
func (c caller) expand(s string) string { return strings.ReplaceAll(s, "{ns}", c.namespace) }

// prepare sends the fixtures whose names are in given, separated by spaces.
func (c caller) prepare(t *testing.T, given string) {
	t.Helper()
	all := fixtures()
	for name := range strings.FieldsSeq(given) {
		f, ok := all[name]
		if !ok {
			t.Fatalf("no fixture %s", name)
		}
		c.must(t, f)
	}
}

func (c caller) must(t *testing.T, f fixture) {
	t.Helper()
	if resp, body := c.send(t, f.method, f.path, f.body, ""); resp.StatusCode >= http.StatusMultipleChoices {
		t.Fatalf("%s %s: %d %s", f.method, c.expand(f.path), resp.StatusCode, body)
	}
}

// send sends a request and returns the response and its body. accept is the header Accept. The
// Content-Type of the request follows from method, path and body.
func (c caller) send(t *testing.T, method, path, body, accept string) (resp *http.Response, answered string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, c.host+c.expand(path), strings.NewReader(c.expand(body)))
	if err != nil {
		t.Fatal(err)
	}
	contentType := "application/json"
	switch {
	case strings.HasPrefix(body, "k8s\x00"):
		contentType = "application/vnd.kubernetes.protobuf"
	case strings.Contains(path, "fieldManager="):
		contentType = "application/apply-patch+yaml"
	case strings.HasPrefix(body, "["):
		contentType = "application/json-patch+json"
	case method == http.MethodPatch:
		contentType = "application/merge-patch+json"
	}
	req.Header.Set("Content-Type", contentType)
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	return testserver.Do(t, c.client, req)
}

// define creates the custom resource definition in definition, and waits until path is served.
func define(t *testing.T, client *http.Client, host, definition, path string) {
	t.Helper()
	resp, err := client.Post(host+"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "application/json",
		strings.NewReader(definition))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	err = wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 3*time.Minute, true,
		func(context.Context) (bool, error) {
			resp, err := client.Get(host + path)
			if err != nil {
				return false, err
			}
			_ = resp.Body.Close()
			return resp.StatusCode == http.StatusOK, nil
		})
	if err != nil {
		t.Fatal(err)
	}
}
