// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"runtime"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

// TestFlowControl checks that the defaults are created, and that changed or deleted defaults are
// restored. While the informers have all defaults, FlowControl must send no requests.
func TestFlowControl(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	client := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	known := factory.Flowcontrol().V1()
	ensure := func() {
		t.Helper()
		if err := FlowControl(ctx, client, known); err != nil {
			t.Fatal(err)
		}
	}
	ensure() // the informers have not been started
	api := client.FlowcontrolV1()
	all, err := api.FlowSchemas().List(ctx, metav1.ListOptions{})
	if want := len(bootstrap.MandatoryFlowSchemas) + len(bootstrap.SuggestedFlowSchemas); err != nil ||
		len(all.Items) != want {
		t.Fatalf("%d flow schemas, want %d, %v", len(all.Items), want, err)
	}

	defer factory.Shutdown()
	defer cancel()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	eventually := func(what string, is func() bool) {
		t.Helper()
		for !is() {
			if ctx.Err() != nil {
				t.Fatal(what)
			}
			runtime.Gosched()
		}
	}
	eventually("nobody watches", func() bool { // changes before the watch would be missed by the fake
		watched := map[string]bool{}
		for _, a := range client.Actions() {
			watched[a.GetResource().Resource] = watched[a.GetResource().Resource] || a.GetVerb() == "watch"
		}
		return watched["flowschemas"] && watched["prioritylevelconfigurations"]
	})
	client.ClearActions()
	ensure()
	for _, a := range client.Actions() {
		if a.GetVerb() != "watch" {
			t.Errorf("asked without need: %s %s", a.GetVerb(), a.GetResource().Resource)
		}
	}

	if err := api.FlowSchemas().Delete(ctx, "catch-all", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	level, err := api.PriorityLevelConfigurations().Get(ctx, "catch-all", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	level.Spec.Limited.NominalConcurrencyShares = new(int32)
	if _, err := api.PriorityLevelConfigurations().Update(ctx, level, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	old := &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: "of-old",
		Annotations: map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: "true"}}}
	if _, err := api.FlowSchemas().Create(ctx, old, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually("changes are not known", func() bool {
		_, gone := known.FlowSchemas().Lister().Get("catch-all")
		_, unseen := known.FlowSchemas().Lister().Get("of-old")
		level, err := known.PriorityLevelConfigurations().Lister().Get("catch-all")
		return apierrors.IsNotFound(gone) && unseen == nil && err == nil && *level.Spec.Limited.NominalConcurrencyShares == 0
	})
	ensure()
	if _, err := api.FlowSchemas().Get(ctx, "catch-all", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := api.FlowSchemas().Get(ctx, "of-old", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Error("a default of another version stays", err)
	}
	if level, err := api.PriorityLevelConfigurations().Get(ctx, "catch-all", metav1.GetOptions{}); err != nil ||
		*level.Spec.Limited.NominalConcurrencyShares == 0 {
		t.Error("a mandatory level is not mended", err)
	}
}
