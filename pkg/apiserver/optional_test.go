// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"keelson.dev/keelson/pkg/apiserver"
	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/features"
)

// TestOptionalAPIs checks that APIs that are off by default can be turned on, with the roles of
// their controllers.
func TestOptionalAPIs(t *testing.T) {
	for name, tc := range map[string]struct {
		asked  map[string]bool
		turned features.Turned
		there  bool
	}{
		"by default": {},
		"asked for": {map[string]bool{"api/all": true},
			features.Turned{features.StorageVersionAPI: true, features.StorageVersionMigrator: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := testserver.Start(t,
				testserver.Options{Configure: func(c *config.Config) { c.RuntimeConfig, c.Features.Turned = tc.asked, tc.turned }})
			ctx := t.Context()
			_, migrations := s.Client.StoragemigrationV1().StorageVersionMigrations().List(ctx, metav1.ListOptions{})
			_, versions := s.Client.InternalV1alpha1().StorageVersions().List(ctx, metav1.ListOptions{})
			_, role := s.Client.RbacV1().ClusterRoles().Get(ctx,
				"system:controller:storage-version-migrator-controller", metav1.GetOptions{})
			_, other := s.Client.RbacV1().ClusterRoles().Get(ctx,
				"system:controller:storage-version-garbage-collector", metav1.GetOptions{})
			_, claims := s.Client.ResourceV1beta1().ResourceClaims("").List(ctx, metav1.ListOptions{})
			_, ranges := s.Client.NetworkingV1beta1().ServiceCIDRs().List(ctx, metav1.ListOptions{})
			_, attributes := s.Client.StorageV1beta1().VolumeAttributesClasses().List(ctx, metav1.ListOptions{})
			groups, err := s.Client.Discovery().ServerGroups()
			if err != nil {
				t.Fatal(err)
			}
			listed := false
			for _, g := range groups.Groups {
				listed = listed || g.Name == "storagemigration.k8s.io"
			}
			doc, err := s.Client.Discovery().RESTClient().Get().AbsPath("/openapi/v2").DoRaw(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(doc), "StorageVersionMigration") {
				t.Error("migrations are not described")
			}
			for what, err := range map[string]error{"migrations": migrations, "role": role} {
				if err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
			for what, err := range map[string]error{"ranges": ranges, "attributes": attributes} {
				if !apierrors.IsNotFound(err) {
					t.Errorf("%s of a removed version: %v", what, err)
				}
			}
			for what, err := range map[string]error{"versions": versions, "other role": other, "claims": claims} {
				if (err == nil) != tc.there || err != nil && !apierrors.IsNotFound(err) {
					t.Errorf("%s: %v, want them: %v", what, err, tc.there)
				}
			}
			ready, err := s.Client.Discovery().RESTClient().Get().AbsPath("/readyz").Param("verbose", "").DoRaw(ctx)
			if err != nil || strings.Contains(string(ready),
				"[+]poststarthook/built-in-resources-storage-version-updater ok") != tc.there {
				t.Errorf("ready: %s, %v", ready, err)
			}
			if !listed {
				t.Error("the group of migrations is not listed")
			}
		})
	}
}

// TestStorageVersionsPublished checks that two servers publish their storage versions, once for
// each stored resource.
func TestStorageVersionsPublished(t *testing.T) {
	configure := func(host string) func(*config.Config) {
		return func(c *config.Config) {
			c.RuntimeConfig = map[string]bool{"internal.apiserver.k8s.io/v1alpha1": true}
			c.Features.Turned = features.Turned{features.StorageVersionAPI: true}
			c.AdvertiseAddress = host
		}
	}
	first := testserver.Start(t, testserver.Options{Configure: configure("127.0.0.1")})
	second := testserver.Start(t, testserver.Options{Configure: configure("127.0.0.2"), KV: first.KV, Dir: first.Dir})
	ctx := context.Background()
	told := map[string]bool{}
	for name, want := range map[string]string{
		"core.pods": "v1", "apps.deployments": "apps/v1", "core.events": "v1",
		"autoscaling.horizontalpodautoscalers":                   "autoscaling/v2",
		"admissionregistration.k8s.io.mutatingadmissionpolicies": "admissionregistration.k8s.io/v1",
	} {
		// A server publishes its versions after it has become ready.
		var v *apiserverinternalv1alpha1.StorageVersion
		err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 3*time.Minute, true,
			func(ctx context.Context) (bool, error) {
				var err error
				v, err = second.Client.InternalV1alpha1().StorageVersions().Get(ctx, name, metav1.GetOptions{})
				return err == nil && len(v.Status.StorageVersions) == 2, nil
			})
		if err != nil {
			t.Errorf("%s: %+v: %v", name, v, err)
			continue
		}
		if c := v.Status.CommonEncodingVersion; c == nil || *c != want {
			t.Errorf("%s: %+v, want %s of two servers", name, v.Status, want)
		}
		for _, s := range v.Status.StorageVersions {
			told[s.APIServerID] = true
		}
	}
	leases := map[string]bool{}
	list, err := second.Client.CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx,
		metav1.ListOptions{LabelSelector: "apiserver.kubernetes.io/identity=kube-apiserver"})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range list.Items {
		leases[l.Name] = true
	}
	if len(leases) != 2 || !maps.Equal(told, leases) {
		t.Errorf("published by %v, leases of %v", told, leases)
	}
	if _, err := second.Client.InternalV1alpha1().StorageVersions().Get(ctx, "events.k8s.io.events",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a storage version is published twice: %v", err)
	}
}

// TestAPIsTurnedOff checks that an API that is turned off is neither served nor listed in discovery
// and OpenAPI documents, and that other APIs still are.
func TestAPIsTurnedOff(t *testing.T) {
	s := testserver.Start(t, testserver.Options{Configure: func(c *config.Config) {
		c.RuntimeConfig = map[string]bool{"apps/v1/daemonsets": false, "autoscaling/v1": false,
			"policy/v1": false, "events.k8s.io/v1": false}
	}})
	ctx := t.Context()
	ask := func(path string) (string, error) {
		body, err := s.Client.Discovery().RESTClient().Get().AbsPath(path).DoRaw(ctx)
		return string(body), err
	}
	for path, want := range map[string]string{
		"/apis/apps/v1/daemonsets":                                 "the server could not find the requested resource",
		"/apis/apps/v1/deployments":                                "",
		"/apis/autoscaling/v1":                                     "the server could not find the requested resource",
		"/apis/autoscaling/v2/horizontalpodautoscalers":            "",
		"/apis/policy/v1/poddisruptionbudgets":                     "404 page not found",
		"/apis/policy":                                             "404 page not found",
		"/apis/events.k8s.io/v1/events":                            "404 page not found",
		"/api/v1/events":                                           "",
		"/apis/apiregistration.k8s.io/v1/apiservices/v1.policy":    "not found",
		"/apis/apiregistration.k8s.io/v1/apiservices/v1.apps":      "",
		"/apis/internal.apiserver.k8s.io/v1alpha1/storageversions": "404 page not found",
	} {
		body, err := ask(path)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", path, err)
		case want != "" && (!apierrors.IsNotFound(err) || !strings.Contains(body, want)):
			t.Errorf("%s: %s (%v), want %q", path, body, err, want)
		}
	}
	for _, path := range []string{"/apis", "/apis/apps/v1", "/openapi/v3", "/"} {
		body, err := ask(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, gone := range []string{"policy/v1", "daemonsets", "autoscaling/v1", "events.k8s.io"} {
			if strings.Contains(body, gone) {
				t.Errorf("%s lists %s", path, gone)
			}
		}
	}
}

// TestPagesTurnedOff checks that the page of a disabled feature is neither served nor listed.
func TestPagesTurnedOff(t *testing.T) {
	s := testserver.Start(t, testserver.Options{Configure: func(c *config.Config) {
		c.Features.Turned = features.Turned{features.ComponentFlagz: false}
	}})
	ctx := t.Context()
	if body, err := s.Client.Discovery().RESTClient().Get().AbsPath("/flagz").DoRaw(ctx); !apierrors.IsNotFound(err) {
		t.Errorf("%s, %v", body, err)
	}
	body, err := s.Client.Discovery().RESTClient().Get().AbsPath("/statusz").DoRaw(ctx)
	if err != nil || strings.Contains(string(body), "flagz") ||
		!strings.Contains(string(body), "/metrics /readyz /statusz") {
		t.Errorf("%s, %v", body, err)
	}
	body, err = s.Client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if want := "kubernetes_feature_enabled{name=\"ComponentFlagz\",stage=\"BETA\"} 0"; err != nil ||
		!strings.Contains(string(body), want) {
		t.Errorf("no %s, %v", want, err)
	}
}

// TestReadyWithout checks that a server becomes ready even if some APIs are turned off, and that it
// has no health checks for the parts that need these APIs.
func TestReadyWithout(t *testing.T) {
	s := testserver.Start(t, testserver.Options{Configure: func(c *config.Config) {
		c.PriorityAndFairness = false
		c.RuntimeConfig = map[string]bool{"flowcontrol.apiserver.k8s.io/v1": false, "coordination.k8s.io/v1": false}
	}})
	body, err := s.Client.Discovery().RESTClient().Get().AbsPath("/readyz").Param("verbose", "").DoRaw(t.Context())
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	if text := string(body); strings.Contains(text, "priority-and-fairness-config-producer") ||
		!strings.Contains(text, "[+]poststarthook/start-kube-apiserver-identity-lease-controller ok") {
		t.Errorf("checks: %s", text)
	}
}

// TestStorageVersionHashTurnedOff checks that discovery has no storage version hashes if the
// feature is turned off.
func TestStorageVersionHashTurnedOff(t *testing.T) {
	s := testserver.Start(t, testserver.Options{Configure: func(c *config.Config) {
		c.Features.Turned = features.Turned{features.StorageVersionHash: false}
	}})
	for _, version := range []string{"v1", "apps/v1", "apiextensions.k8s.io/v1"} {
		list, err := s.Client.Discovery().ServerResourcesForGroupVersion(version)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if r.StorageVersionHash != "" {
				t.Errorf("%s %s: %s", version, r.Name, r.StorageVersionHash)
			}
		}
	}
}

// TestWatchListTurnedOff checks that without the feature WatchList, watches that request initial
// events are rejected, and that the server still becomes ready.
func TestWatchListTurnedOff(t *testing.T) {
	s := testserver.Start(t, testserver.Options{Configure: func(c *config.Config) {
		c.Features.Turned = features.Turned{features.WatchList: false}
	}})
	first := true
	for text, options := range map[string]metav1.ListOptions{
		"sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled": {
			SendInitialEvents: &first, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		},
		"": {AllowWatchBookmarks: true},
	} {
		w, err := s.Client.CoreV1().Namespaces().Watch(t.Context(), options)
		switch {
		case err == nil:
			w.Stop()
			if text != "" {
				t.Errorf("watched, want %q", text)
			}
		case text == "" || !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), text):
			t.Errorf("%v, want %q", err, text)
		}
	}
}

// TestUnknownAPIs checks that unknown APIs are rejected before any file is read.
func TestUnknownAPIs(t *testing.T) {
	cfg := config.Default()
	cfg.ServiceAccountIssuers, cfg.ServiceAccountKeyFiles, cfg.ServiceAccountSignKey = []string{"https://a"},
		[]string{"none"}, "none"
	cfg.RuntimeConfig = map[string]bool{"foo/v1": true}
	if _, err := apiserver.New(cfg, apiserver.Deps{}); err == nil || err.Error() != "unknown api groups foo/v1" {
		t.Errorf("%v", err)
	}
}
