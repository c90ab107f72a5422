// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/apiserver/config"
)

// TestSystemPriorityClasses checks that the two system priority classes cannot be deleted. Without
// them, system pods could not be created until an API server restarts.
func TestSystemPriorityClasses(t *testing.T) {
	lab := newLab(t, nil)
	api := lab.Client.SchedulingV1().PriorityClasses()
	for _, name := range []string{"system-cluster-critical", "system-node-critical"} {
		selector := metav1.ListOptions{FieldSelector: "metadata.name=" + name}
		want := `priorityclasses.scheduling.k8s.io "` + name +
			`" is forbidden: this is a system priority class and cannot be deleted`
		for way, remove := range map[string]func() error{
			"delete":     func() error { return api.Delete(t.Context(), name, metav1.DeleteOptions{}) },
			"dry run":    func() error { return api.Delete(t.Context(), name, metav1.DeleteOptions{DryRun: []string{"All"}}) },
			"collection": func() error { return api.DeleteCollection(t.Context(), metav1.DeleteOptions{}, selector) },
		} {
			if err := remove(); !apierrors.IsForbidden(err) || err.Error() != want {
				t.Errorf("%s of %s: %v, want %s", way, name, err, want)
			}
		}
		if _, err := api.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
}

// TestEscalationByAnyAuthorizer checks that roles cannot grant rights that their author does not
// have, even if an authorizer other than RBAC permits writing roles.
func TestEscalationByAnyAuthorizer(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review authorizationv1.SubjectAccessReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		verb := ""
		if a := review.Spec.ResourceAttributes; a != nil {
			verb = a.Verb
		}
		review.Status.Allowed = verb != "escalate" && verb != "bind"
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "webhook.kubeconfig")
	check(t, os.WriteFile(file, fmt.Appendf(nil, "apiVersion: v1\nkind: Config\ncurrent-context: "+
		"c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"+
		"users: [{name: u}]\nclusters: [{name: c, cluster: {server: %q}}]\n", s.URL), 0o600))
	lab := newLab(t, func(c *config.Config) {
		c.AuthorizationModes = []string{config.ModeWebhook}
		c.Authorization.Webhook.ConfigFile, c.Authorization.Webhook.Version = file, "v1"
	})
	eve := lab.as(t, "eve").RbacV1()
	_, err := eve.ClusterRoles().Create(t.Context(),
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}}, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), "is attempting to grant RBAC permissions not currently held") {
		t.Errorf("a role with all rights: %v", err)
	}
	_, err = eve.ClusterRoleBindings().Create(t.Context(),
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "all"},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}},
		metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("a binding to cluster-admin: %v", err)
	}
	// A role without rules grants nothing, so the user may write it.
	_, err = eve.ClusterRoles().Create(t.Context(),
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "none"}}, metav1.CreateOptions{})
	check(t, err)
}

// TestRefused checks that the API server rejects requests that Kubernetes rejects even for
// administrators. These checks are in strategies, storages and plugins that are part of every API
// server.
func TestRefused(t *testing.T) {
	lab := newLab(t, nil)
	lab.namespace(t, "a")
	account(t, lab.Client, "a")
	api := lab.Client.CoreV1().RESTClient()
	const (
		core    = "/api/v1/namespaces/a/"
		pod     = `"spec":{"containers":[{"name":"c","image":"i"}]}`
		crdSpec = `"scope":"Namespaced","names":{"plural":"things","singular":"thing","kind":"Thing",` +
			`"listKind":"ThingList"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]`
	)
	for name, tc := range map[string]struct {
		path   string
		create string // object to create at path before the attack; may be empty
		patch  string // patch to send for the object; if empty, the object is deleted
		sub    string
		code   int
		want   string
	}{
		"delete default": {path: "/api/v1/namespaces", sub: "default", code: 403,
			want: "this namespace may not be deleted"},
		"delete kube-system": {path: "/api/v1/namespaces", sub: "kube-system", code: 403,
			want: "this namespace may not be deleted"},
		"delete kube-public": {path: "/api/v1/namespaces", sub: "kube-public", code: 403,
			want: "this namespace may not be deleted"},
		"delete namespaces": {path: "/api/v1/namespaces", code: 405, want: "not allow"},

		"role of a binding": {path: "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
			create: `{"metadata":{"name":"x"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io",` +
				`"kind":"ClusterRole","name":"view"}}`, patch: `{"roleRef":{"name":"edit"}}`, code: 422,
			want: "field is immutable"},
		"value of a priority class": {path: "/apis/scheduling.k8s.io/v1/priorityclasses",
			create: `{"metadata":{"name":"x"},"value":1}`, patch: `{"value":2}`, code: 422,
			want: "may not be changed in an update"},
		"system priority class": {path: "/apis/scheduling.k8s.io/v1/priorityclasses",
			create: `{"metadata":{"name":"system-x"},"value":1}`, code: 422,
			want: "system-x is not a known system priority class"},
		"priority of the system": {path: "/apis/scheduling.k8s.io/v1/priorityclasses",
			create: `{"metadata":{"name":"y"},"value":1000000001}`, code: 422, want: "maximum allowed value"},
		"the exempt flow": {path: "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", sub: "exempt",
			patch: `{"spec":{"matchingPrecedence":5}}`, code: 422, want: "must equal the fixed value"},
		"the level catch-all": {path: "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
			sub: "catch-all", patch: `{"spec":{"limited":{"nominalConcurrencyShares":9}}}`, code: 422,
			want: "must equal the fixed value"},
		"handler of a runtime": {path: "/apis/node.k8s.io/v1/runtimeclasses",
			create: `{"metadata":{"name":"x"},"handler":"a"}`, patch: `{"handler":"b"}`, code: 422, want: "field is immutable"},
		"controller of ingresses": {path: "/apis/networking.k8s.io/v1/ingressclasses",
			create: `{"metadata":{"name":"x"},"spec":{"controller":"a.io/b"}}`,
			patch:  `{"spec":{"controller":"a.io/c"}}`, code: 422, want: "field is immutable"},
		"range of services": {path: "/apis/networking.k8s.io/v1/servicecidrs",
			create: `{"metadata":{"name":"x"},"spec":{"cidrs":["10.9.0.0/24"]}}`,
			patch:  `{"spec":{"cidrs":["10.8.0.0/24"]}}`, code: 422, want: "field is immutable"},
		"an address": {path: "/apis/networking.k8s.io/v1/ipaddresses",
			create: `{"metadata":{"name":"10.9.0.9"},"spec":{"parentRef":{"resource":"services",` +
				`"namespace":"a","name":"s"}}}`, patch: `{"spec":{"parentRef":{"name":"t"}}}`, code: 422,
			want: "field is immutable"},
		"attachment": {path: "/apis/storage.k8s.io/v1/volumeattachments",
			create: `{"metadata":{"name":"x"},"spec":{"attacher":"a.io","nodeName":"n",` +
				`"source":{"persistentVolumeName":"v"}}}`, patch: `{"spec":{"nodeName":"m"}}`, code: 422,
			want: "field is immutable"},
		"provisioner": {path: "/apis/storage.k8s.io/v1/storageclasses",
			create: `{"metadata":{"name":"x"},"provisioner":"a.io/b"}`, patch: `{"provisioner":"a.io/c"}`,
			code: 422, want: "provisioner"},
		"driver that attaches": {path: "/apis/storage.k8s.io/v1/csidrivers",
			create: `{"metadata":{"name":"x.io"},"spec":{"attachRequired":true}}`,
			patch:  `{"spec":{"attachRequired":false}}`, code: 422, want: "field is immutable"},
		"driver of a slice": {path: "/apis/resource.k8s.io/v1/resourceslices",
			create: `{"metadata":{"name":"x"},"spec":{"driver":"a.io","nodeName":"n","pool":{"name":"p",` +
				`"generation":1,"resourceSliceCount":1}}}`, patch: `{"spec":{"nodeName":"m"}}`, code: 422,
			want: "field is immutable"},
		"what a claim asks for": {path: "/apis/resource.k8s.io/v1/namespaces/a/resourceclaims",
			create: `{"metadata":{"name":"x"},"spec":{"devices":{"requests":[{"name":"r",` +
				`"exactly":{"deviceClassName":"c"}}]}}}`,
			patch: `{"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"d"}}]}}}`,
			code:  422, want: "field is immutable"},
		"device of others": {path: "/apis/resource.k8s.io/v1/namespaces/a/resourceclaims",
			create: `{"metadata":{"name":"y"},"spec":{"devices":{"requests":[{"name":"r",` +
				`"exactly":{"deviceClassName":"c","adminAccess":true}}]}}}`, code: 422, want: "admin access to devices requires"},

		"type of a secret": {path: core + "secrets", create: `{"metadata":{"name":"x"},"type":"Opaque"}`,
			patch: `{"type":"bootstrap.kubernetes.io/token"}`, code: 422, want: "field is immutable"},
		"immutable secret": {path: core + "secrets",
			create: `{"metadata":{"name":"y"},"immutable":true}`, patch: `{"immutable":false}`, code: 422, want: "is set"},
		"type of slices": {path: "/apis/discovery.k8s.io/v1/namespaces/a/endpointslices",
			create: `{"metadata":{"name":"x"},"addressType":"IPv4","endpoints":[],"ports":[]}`,
			patch:  `{"addressType":"FQDN"}`, code: 422, want: "field is immutable"},
		"data of a revision": {path: "/apis/apps/v1/namespaces/a/controllerrevisions",
			create: `{"metadata":{"name":"x"},"data":{"a":1},"revision":1}`, patch: `{"data":{"a":2}}`,
			code: 422, want: "field is immutable"},
		"image of another pod": {path: core + "pods", create: `{"metadata":{"name":"x"},` + pod + `}`,
			patch: `{"spec":{"serviceAccountName":"root"}}`, code: 422, want: "pod updates may not change fields other than"},
		"ephemeral container": {path: core + "pods", create: `{"metadata":{"name":"y"},` +
			`"spec":{"containers":[{"name":"c","image":"i"}],"ephemeralContainers":[{"name":"d","image":"i"}]}}`,
			code: 422, want: "cannot be set on create"},
		"priority of a pod": {path: core + "pods",
			create: `{"metadata":{"name":"z"},"spec":{"priority":2000001000,"containers":[{"name":"c","image":"i"}]}}`,
			code:   403, want: "the integer value of priority (2000001000) must not be provided in pod spec"},
		"overhead without class": {path: core + "pods",
			create: `{"metadata":{"name":"z"},"spec":{"overhead":{"cpu":"1"},"containers":[{"name":"c","image":"i"}]}}`,
			code:   403, want: "Pod Overhead set without corresponding RuntimeClass defined Overhead"},
		"claim that is not bound": {path: core + "persistentvolumeclaims",
			create: `{"metadata":{"name":"x"},"spec":{"storageClassName":"s",` +
				`"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`,
			patch: `{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`, code: 422,
			want: "spec is immutable after creation except"},
		"address of a service": {path: core + "services",
			create: `{"metadata":{"name":"x"},"spec":{"ports":[{"port":1}]}}`,
			patch:  `{"spec":{"clusterIP":"10.96.0.77","clusterIPs":["10.96.0.77"]}}`, code: 422,
			want: "may not change once set"},
		"external address": {path: core + "services",
			create: `{"metadata":{"name":"y"},"spec":{"ports":[{"port":1}],"externalIPs":["192.0.2.1"]}}`,
			code:   403, want: "Use of external IPs is denied by admission control"},
		"selector": {path: "/apis/apps/v1/namespaces/a/deployments",
			create: `{"metadata":{"name":"x"},"spec":{"selector":{"matchLabels":{"a":"b"}},` +
				`"template":{"metadata":{"labels":{"a":"b","c":"d"}},` + pod + `}}}`,
			patch: `{"spec":{"selector":{"matchLabels":{"a":null,"c":"d"}}}}`, code: 422, want: "field is immutable"},
		"template of a job": {path: "/apis/batch/v1/namespaces/a/jobs",
			create: `{"metadata":{"name":"x"},"spec":{"template":{"spec":{"restartPolicy":"Never",` +
				`"containers":[{"name":"c","image":"i"}]}}}}`,
			patch: `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"j"}]}}}}`,
			code:  422, want: "field is immutable"},

		"protected group": {path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
			create: `{"metadata":{"name":"things.x.k8s.io"},"spec":{"group":"x.k8s.io",` + crdSpec + `}}`,
			code:   422, want: "protected groups must have approval annotation"},
		"APIService of a name": {path: "/apis/apiregistration.k8s.io/v1/apiservices",
			create: `{"metadata":{"name":"v1.x"},"spec":{"group":"y.io","version":"v1",` +
				`"groupPriorityMinimum":1,"versionPriority":1}}`, code: 422, want: "must be `spec.version+"},
		"token for a minute": {path: core + "serviceaccounts/default/token",
			create: `{"spec":{"expirationSeconds":60}}`, code: 422, want: "may not specify a duration less than 10 minutes"},
	} {
		t.Run(name, func(t *testing.T) {
			object := tc.sub
			if tc.create != "" {
				var meta metav1.PartialObjectMetadata
				check(t, json.Unmarshal([]byte(tc.create), &meta))
				object = meta.Name
				err := api.Post().AbsPath(tc.path).SetHeader("Content-Type",
					"application/json").Body([]byte(tc.create)).Do(t.Context()).Error()
				if tc.patch == "" {
					answered(t, err, tc.code, tc.want)
					return
				}
				check(t, err)
			}
			req := api.Delete().AbsPath(tc.path, object)
			if tc.patch != "" {
				req = api.Patch(types.MergePatchType).AbsPath(tc.path, object).Body([]byte(tc.patch))
			}
			answered(t, req.Do(t.Context()).Error(), tc.code, tc.want)
		})
	}
}

func answered(t *testing.T, err error, code int, want string) {
	t.Helper()
	var status apierrors.APIStatus
	if !errors.As(err, &status) || int(status.Status().Code) != code || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %d %s", err, code, want)
	}
}
