// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package command_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/daemon"
	"keelson.dev/keelson/pkg/scheduler/command"
	"keelson.dev/keelson/pkg/scheduler/profile"
	"keelson.dev/scheduling"
)

// newRejecting returns a plugin that rejects every node. The reason is in its arguments.
func newRejecting(args []byte) (scheduling.Plugin, error) {
	var a struct{ Reason string }
	if err := json.Unmarshal(args, &a); err != nil {
		return scheduling.Plugin{}, err
	}
	status := &scheduling.Status{Code: scheduling.Unresolvable, Plugin: "Rejecting", Reasons: []string{a.Reason}}
	return scheduling.Plugin{Name: "Rejecting", Filter: &scheduling.FilterPoint{
		Events: scheduling.NodeAdded,
		Compile: func(scheduling.View, *scheduling.Pod) (scheduling.Filter, *scheduling.Status) {
			return scheduling.Filter{Check: func(*scheduling.Node) *scheduling.Status { return status }}, nil
		},
	}}, nil
}

// plugins returns the plugins that the schedulers of these tests have besides the built-in ones.
// They are disabled by default.
func plugins() profile.Registry { return profile.Registry{"Rejecting": newRejecting} }

// ExampleNew shows the main function of a scheduler with a plugin that is not built in.
func ExampleNew() { //nolint:testableexamples // a scheduler does not end
	daemon.Main("scheduler", command.New(profile.Registry{"Rejecting": newRejecting}))
}

// rejectingConfiguration enables the plugin of ExampleNew.
const rejectingConfiguration = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {multiPoint: {enabled: [{name: Rejecting}]}}
  pluginConfig: [{name: Rejecting, args: {reason: node(s) are not wanted}}]
`

// TestPlugin checks that a scheduler runs a plugin that its main function registers and its
// configuration file enables.
func TestPlugin(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	ctx := t.Context()
	if _, err := s.Client.CoreV1().ServiceAccounts("default").Create(ctx,
		&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	addNode(t, s.Client, "n0", 10)
	createPods(ctx, t, s.Client, 1)
	proxy := front(t, s)
	defer proxy.Close()
	config := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(config, []byte(rejectingConfiguration), 0o600); err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(ctx)
	scheduler := process(t, kubeconfig(t, proxy.URL), "--config="+config)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		_ = scheduler.Wait() // Wait returns an error because the process was killed
		stop()
	})
	defer waiting.Wait()
	defer func() { _ = scheduler.Process.Kill() }()
	followPods(running, t, s.Client, func(pod *v1.Pod) bool {
		if pod.Spec.NodeName != "" {
			t.Errorf("the pod is on node %s", pod.Spec.NodeName)
			return false
		}
		return !slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
			return c.Type == v1.PodScheduled && strings.Contains(c.Message, "1 node(s) are not wanted")
		})
	})
}
