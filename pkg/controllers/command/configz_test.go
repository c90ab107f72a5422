// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"

	"keelson.dev/keelson/pkg/daemon"
)

// TestConfigz checks that the configuration uses Kubernetes' field names, contains the values of
// flags that are set, and Kubernetes' defaults for the other flags.
func TestConfigz(t *testing.T) {
	o, err := parse([]string{
		"--kubeconfig=/k", "--concurrent-job-syncs=7", "--controllers=*,-ttl",
		"--node-monitor-grace-period=20s", "--service-cluster-ip-range=10.96.0.0/16,fd00::/108",
		"--leader-elect=false", "--profiling=false", "--horizontal-pod-autoscaler-tolerance=0.2",
		"--enable-garbage-collector=false",
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	rc := &rest.Config{}
	o.connect(rc)
	answer := httptest.NewRecorder()
	daemon.Configz(configName, o.configuration(rc)).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/configz", nil))
	if got := answer.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("content type %q", got)
	}
	var all map[string]map[string]any
	if err := json.Unmarshal(answer.Body.Bytes(), &all); err != nil || len(all) != 1 {
		t.Fatalf("%v: %s", err, answer.Body)
	}
	for _, want := range []struct {
		path  []string
		value any
	}{
		{[]string{"kind"}, "KubeControllerManagerConfiguration"},
		{[]string{"apiVersion"}, "kubecontrollermanager.config.k8s.io/v1alpha1"},
		{[]string{"JobController", "ConcurrentJobSyncs"}, 7.0},
		{[]string{"DeploymentController", "ConcurrentDeploymentSyncs"}, 5.0},
		{[]string{"Generic", "Port"}, 10257.0},
		{[]string{"Generic", "ClientConnection", "kubeconfig"}, "/k"},
		{[]string{"Generic", "LeaderElection", "leaderElect"}, false},
		{[]string{"Generic", "LeaderElection", "leaseDuration"}, "15s"},
		{[]string{"Generic", "Debugging", "enableProfiling"}, false},
		{[]string{"NodeLifecycleController", "NodeMonitorGracePeriod"}, "20s"},
		{[]string{"NodeLifecycleController", "NodeStartupGracePeriod"}, "1m0s"},
		{[]string{"NodeIPAMController", "SecondaryServiceCIDR"}, "fd00::/108"},
		{[]string{"HPAController", "HorizontalPodAutoscalerTolerance"}, 0.2},
		{[]string{"GarbageCollectorController", "EnableGarbageCollector"}, false},
		{[]string{"PodGCController", "TerminatedPodGCThreshold"}, 12500.0},
	} {
		var at any = all["kubecontrollermanager.config.k8s.io"]
		for _, key := range want.path {
			in, _ := at.(map[string]any)
			at = in[key]
		}
		if at != want.value {
			t.Errorf("%v: %v, want %v", want.path, at, want.value)
		}
	}
}

// TestWorkersAreTold checks that the values of all flags for numbers of workers appear in the
// configuration.
func TestWorkersAreTold(t *testing.T) {
	var args []string
	for _, k := range upstream {
		if k.flag != "" {
			args = append(args, "--"+k.flag+"=4321")
		}
	}
	o, err := parse(args, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(o.configuration(&rest.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	var decoded any
	if err := json.Unmarshal(b, &decoded); err != nil {
		t.Fatal(err)
	}
	if got := count(decoded, 4321); got != len(args) {
		t.Errorf("%d of %d are in the configuration", got, len(args))
	}
}

// count returns how often the number n occurs in a decoded JSON value.
func count(in any, n float64) int {
	found := 0
	switch v := in.(type) {
	case map[string]any:
		for _, e := range v {
			found += count(e, n)
		}
	case float64:
		if v == n {
			found++
		}
	}
	return found
}
