// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestExtendersThatFail checks that a pod whose extender fails gets a condition with the error,
// that other pods are bound, and that nothing stays reserved for the pod.
func TestExtendersThatFail(t *testing.T) {
	// The server notices that the client has closed the connection only after it has read the body.
	hang := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}
	for name, c := range map[string]struct {
		config configv1.Extender
		answer http.HandlerFunc
		want   string
	}{
		"filter hangs": {
			configv1.Extender{FilterVerb: "do", HTTPTimeout: metav1.Duration{Duration: 50 * time.Millisecond}},
			hang, "Client.Timeout exceeded",
		},
		"bind hangs": {
			configv1.Extender{BindVerb: "do", HTTPTimeout: metav1.Duration{Duration: 50 * time.Millisecond}},
			hang, "Client.Timeout exceeded",
		},
		"bind fails": {configv1.Extender{BindVerb: "do"},
			func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(`{"Error":"no"}`))
			}, "binding rejected: no"},
		"unknown node": {configv1.Extender{FilterVerb: "do", NodeCacheCapable: true},
			func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(`{"NodeNames":["x"]}`))
			}, "not found in the input node list"},
		"not JSON": {configv1.Extender{FilterVerb: "do"},
			func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`<html>`)) }, "answer to do"},
	} {
		t.Run(name, func(t *testing.T) {
			ext := httptest.NewServer(c.answer)
			t.Cleanup(ext.Close)
			c.config.URLPrefix = ext.URL
			c.config.ManagedResources = []configv1.ExtenderManagedResource{{Name: "example.com/x", IgnoredByScheduler: true}}
			server := testserver.Start(t, testserver.Options{})
			followWith(t, server.Client, &configv1.KubeSchedulerConfiguration{Extenders: []configv1.Extender{c.config}})
			addAccount(t, server.Client)
			addNode(t, server.Client, "a", nil)
			create(t, server.Client, pod("asks", func(p *v1.Pod) {
				cpu("2")(p)
				one := v1.ResourceList{"example.com/x": resource.MustParse("1")}
				p.Spec.Containers[0].Resources.Limits,
					p.Spec.Containers[0].Resources.Requests["example.com/x"] = one, one["example.com/x"]
			}))
			await(t, server.Client, "asks", "condition with "+c.want, func(p *v1.Pod) bool {
				for _, cond := range p.Status.Conditions {
					if cond.Type == v1.PodScheduled && cond.Reason == "SchedulerError" && strings.Contains(cond.Message, c.want) {
						return true
					}
				}
				return false
			})
			create(t, server.Client, pod("plain", cpu("2"))) // needs all CPUs of the node
			await(t, server.Client, "plain", "bound", bound)
		})
	}
}
