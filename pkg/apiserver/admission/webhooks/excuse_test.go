// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
)

func TestExcused(t *testing.T) {
	var (
		admin   = &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}}
		server  = &user.DefaultInfo{Name: user.APIServerUser}
		node    = &user.DefaultInfo{Name: "system:node:a", Groups: []string{user.NodesGroup}}
		posing  = &user.DefaultInfo{Name: "system:node:a"}
		account = &user.DefaultInfo{Name: "system:serviceaccount:kube-system:daemon-set-controller"}
		other   = &user.DefaultInfo{Name: "system:serviceaccount:default:kube-system"}
		proxy   = &user.DefaultInfo{Name: "system:kube-proxy:a", Groups: []string{"keelson:proxies"}}
		shared  = &user.DefaultInfo{Name: user.KubeProxy}
		manager = &user.DefaultInfo{Name: user.KubeControllerManager}
	)
	plain, mirrored := &corev1.Pod{},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"}}}
	ended := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}}}
	type what struct {
		op        admission.Operation
		resource  string
		namespace string
		obj       runtime.Object
	}
	lease := what{admission.Update, "leases/.coordination.k8s.io", "anywhere", nil}
	for name, tc := range map[string]struct {
		user *user.DefaultInfo
		what
		want excuse
	}{
		"object in the webhook's namespace": {admin, what{admission.Create, "secrets/", "hooks", nil}, ownNamespace},
		"the webhook's namespace itself": {admin,
			what{admission.Update, "namespaces/", "hooks", nil}, ownNamespace},
		"another namespace":        {admin, what{admission.Create, "secrets/", "default", nil}, ""},
		"another namespace itself": {admin, what{admission.Update, "namespaces/", "default", nil}, ""},
		"user in kube-system":      {admin, what{admission.Create, "pods/", "kube-system", plain}, ""},
		"node written by a user":   {admin, what{admission.Update, "nodes/", "", nil}, ""},
		"API server": {server,
			what{admission.Create, "ipaddresses/.networking.k8s.io", "", nil}, serverItself},
		"a node's heartbeat":            {node, lease, systemObjects},
		"a node's status":               {node, what{admission.Update, "nodes/status", "", nil}, systemObjects},
		"user with a node's name only":  {posing, lease, ""},
		"an event of a node's proxy":    {proxy, what{admission.Create, "events/", "default", nil}, ""},
		"a node's proxy in kube-system": {proxy, what{admission.Create, "events/", "kube-system", nil}, ""},
		"shared proxy account":          {shared, what{admission.Create, "events/", "kube-system", nil}, ""},
		"a node in kube-system":         {node, what{admission.Create, "pods/eviction", "kube-system", nil}, ""},
		"a node's lease": {node,
			what{admission.Update, "leases/.coordination.k8s.io", "kube-node-lease", nil}, systemObjects},
		"an event of a controller": {account,
			what{admission.Create, "events/.events.k8s.io", "default", nil}, systemObjects},
		"account with a similar name": {other, what{admission.Create, "events/", "default", nil}, ""},
		"a pod of kube-system": {account,
			what{admission.Create, "pods/", "kube-system", plain}, systemSpace},
		"endpoints of kube-system": {manager,
			what{admission.Update, "endpointslices/.discovery.k8s.io", "kube-system", nil}, systemSpace},
		"pod of a controller in another namespace": {account, what{admission.Create, "pods/", "default", plain}, ""},
		"status of a pod by its node": {node,
			what{admission.Update, "pods/status", "default", plain}, nodesPods},
		"status of a pod by a controller":           {account, what{admission.Update, "pods/status", "default", plain}, ""},
		"a mirror pod":                              {node, what{admission.Create, "pods/", "default", mirrored}, nodesPods},
		"pod of a node that is no mirror":           {node, what{admission.Create, "pods/", "default", plain}, ""},
		"mirror pod by a user":                      {admin, what{admission.Create, "pods/", "default", mirrored}, ""},
		"completed deletion of a pod":               {node, what{admission.Delete, "pods/", "default", ended}, nodesPods},
		"deletion of a mirror pod":                  {node, what{admission.Delete, "pods/", "default", mirrored}, nodesPods},
		"deletion of a pod that is not terminating": {node, what{admission.Delete, "pods/", "default", plain}, ""},
		"a token for a pod": {node,
			what{admission.Create, "serviceaccounts/token", "default", nil}, nodesPods},
		"service account by a node": {node, what{admission.Create, "serviceaccounts/", "default", nil}, ""},
		"an eviction by a node":     {node, what{admission.Create, "pods/eviction", "default", nil}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			gvr, sub := parse(tc.resource)
			object, old := tc.obj, runtime.Object(nil)
			if tc.op == admission.Delete {
				object, old = nil, tc.obj
			}
			objectName := "x"
			if gvr.Resource == "namespaces" {
				objectName = tc.namespace
			}
			a := admission.NewAttributesRecord(object, old, schema.GroupVersionKind{}, tc.namespace, objectName,
				gvr, sub, tc.op, nil, false, tc.user)
			if got := excused(a, "hooks"); got != tc.want {
				t.Errorf("excused because %q, want %q", got, tc.want)
			}
			if got := excused(a, ""); got == ownNamespace {
				t.Errorf("excused because %q where there is no service", got)
			}
		})
	}
}

// parse parses a resource in the form RESOURCE/SUBRESOURCE.GROUP.
func parse(s string) (schema.GroupVersionResource, string) {
	head, group := s, ""
	for i := range s {
		if s[i] == '.' {
			head, group = s[:i], s[i+1:]
			break
		}
	}
	for i := range head {
		if head[i] == '/' {
			return schema.GroupVersionResource{Group: group, Version: "v1", Resource: head[:i]}, head[i+1:]
		}
	}
	return schema.GroupVersionResource{}, ""
}
