// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"maps"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestBookmarksOfApps checks that bookmarks of apps/v1 contain the fields that Kubernetes encodes
// even for an empty object, such as spec.replicas.
func TestBookmarksOfApps(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	apps := s.Client.AppsV1()
	options := metav1.ListOptions{SendInitialEvents: new(true), AllowWatchBookmarks: true,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}
	first := func(w watch.Interface, err error) watch.Event {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		return <-w.ResultChan()
	}
	if d, ok := first(apps.Deployments("").Watch(t.Context(), options)).Object.(*appsv1.Deployment); !ok ||
		d.Spec.Replicas == nil || *d.Spec.Replicas != 0 {
		t.Errorf("deployment: %+v", d)
	}
	want := map[string]string{appsv1.DeprecatedTemplateGeneration: "0", metav1.InitialEventsAnnotationKey: "true"}
	if d, ok := first(apps.DaemonSets("").Watch(t.Context(), options)).Object.(*appsv1.DaemonSet); !ok ||
		!maps.Equal(d.Annotations, want) {
		t.Errorf("daemon set: %+v", d)
	}
}
