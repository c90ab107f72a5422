// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestNodesAskForTokens checks that a kubelet can read the service accounts of its pods, and can
// request tokens only for audiences that the pods mount or that it has a right to.
func TestNodesAskForTokens(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	mustCreateAccount(t, s)
	if _, err := s.Client.CoreV1().ServiceAccounts("default").Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pods := map[string]*corev1.Pod{}
	for name, on := range map[string]string{"p": "n1", "q": "n2", "claims": "n1", "disk": "n1"} {
		p := pod(name, on)
		p.Spec.Volumes = []corev1.Volume{
			{Name: "v", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{
					{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "t", Audience: "mounted"}}},
			}}}}
		switch name {
		case "disk": // a volume of an in-tree plugin that has been replaced by a CSI driver
			p.Spec.Volumes = append(p.Spec.Volumes,
				corev1.Volume{Name: "d",
					VolumeSource: corev1.VolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "x"}}})
		case "claims":
			p.Spec.Volumes = append(p.Spec.Volumes,
				corev1.Volume{Name: "c",
					VolumeSource: corev1.VolumeSource{
						PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "gone"}}})
		}
		var err error
		if pods[name], err = s.Client.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	node := clientFor(t, s.UserConfig(t, "system:node:n1", "system:nodes"))
	poll(t, "the account of its pod", func(ctx context.Context) bool {
		_, err := node.CoreV1().ServiceAccounts("default").Get(ctx, "robot", metav1.GetOptions{})
		return err == nil
	})
	if _, err := node.CoreV1().ServiceAccounts("default").Get(t.Context(), "other",
		metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("an account of none of its pods: %v", err)
	}
	if _, err := node.CoreV1().ServiceAccounts("default").List(t.Context(),
		metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("all accounts: %v", err)
	}
	token := func(pod string, audiences ...string) error {
		_, err := node.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "robot",
			&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
				Audiences: audiences, BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1",
					Kind: "Pod", Name: pod, UID: pods[pod].UID},
			}}, metav1.CreateOptions{})
		return err
	}
	for _, name := range []string{"p", "claims"} {
		if err := token(name, "mounted"); err != nil {
			t.Errorf("for what %s mounts: %v", name, err)
		}
	}
	for _, tc := range []struct {
		pod, want string
		audiences []string
	}{
		{"p", `system:node:n1 is not authorized to request tokens for audience "reg"`, []string{"reg"}},
		{"p", `system:node:n1 is not authorized to request tokens for audience "secrets"`, []string{"secrets"}},
		{"p", `node may only request 0 or 1 audiences`, []string{"mounted", "reg"}},
		{"claims", `error validating audience "reg": persistentvolumeclaim "gone" not found`, []string{"reg"}},
		{"disk", `error validating audience "reg": csidriver.storage.k8s.io "pd.csi.storage.gke.io" not found`,
			[]string{"reg"}},
		{"q", `node requested token bound to a pod scheduled on a different node`, []string{"mounted"}},
	} {
		if err := token(tc.pod, tc.audiences...); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s for %q: %v, want %s", tc.pod, tc.audiences, err, tc.want)
		}
	}
	pods["no/pod"] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1"}}
	if err := token("no/pod"); !apierrors.IsNotFound(err) || err.Error() != `pod "no/pod" not found` {
		t.Errorf("for what cannot be a pod: %v", err)
	}
	err := node.CoreV1().Pods("default").EvictV1(t.Context(),
		&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "nope"}})
	if !apierrors.IsNotFound(err) || err.Error() != `pod "nope" not found` {
		t.Errorf("eviction of no pod: %v", err)
	}
	for i, names := range [][]string{{"other"}, {"robot"}} {
		allowAudience(t, s, fmt.Sprint("reg-", i), "reg", names...)
	}
	poll(t, "a token that it may ask for", func(context.Context) bool { return token("p", "reg") == nil })
	// The pods' volumes cannot be resolved to a CSI driver, which must not cause a rejection.
	for _, name := range []string{"claims", "disk"} {
		if err := token(name, "reg"); err != nil {
			t.Errorf("a token that it may ask for, for %s: %v", name, err)
		}
	}
	if err := token("p", "reg2"); !apierrors.IsForbidden(err) {
		t.Errorf("for another audience: %v", err)
	}
}

// TestNodesWriteStatusOfClaims checks that a node may update the status of its pods' claims, and
// that the error for a change of any other field contains the difference.
func TestNodesWriteStatusOfClaims(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	mustCreateAccount(t, s)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}}
	if _, err := s.Client.CoreV1().PersistentVolumeClaims("default").Create(t.Context(), claim,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p := pod("p", "n1")
	p.Spec.Volumes = []corev1.Volume{
		{Name: "c", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
	if _, err := s.Client.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	node := clientFor(t, s.UserConfig(t, "system:node:n1", "system:nodes"))
	patch := func(ctx context.Context, data string) error {
		_, err := node.CoreV1().PersistentVolumeClaims("default").Patch(ctx, "c", types.MergePatchType,
			[]byte(data), metav1.PatchOptions{}, "status")
		return err
	}
	poll(t, "the claim of its pod",
		func(ctx context.Context) bool { return patch(ctx, `{"status":{"capacity":{"storage":"1Gi"}}}`) == nil })
	err := patch(t.Context(), `{"status":{"phase":"Bound"}}`)
	want := `persistentvolumeclaims "c" is forbidden: node "n1" is not allowed to update fields other than ` +
		`status.quantity and status.conditions: ` +
		"@@ -20,6 +20,6 @@\n   \"volumeMode\": \"Filesystem\"\n  },\n  \"status\": {\n" +
		"-  \"phase\": \"Pending\"\n+  \"phase\": \"Bound\"\n  }\n }\n"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// allowAudience gives nodes the right to tokens of service accounts for an audience.
func allowAudience(t *testing.T, s *testserver.Server, name, audience string, accounts ...string) {
	t.Helper()
	allowGroup(t, s, name, "system:nodes", rbacv1.PolicyRule{
		Verbs: []string{"request-serviceaccounts-token-audience"}, APIGroups: []string{""},
		Resources: []string{audience}, ResourceNames: accounts,
	})
}

// allowGroup gives the users of a group the rights of a rule, by a role and a binding called name.
func allowGroup(t *testing.T, s *testserver.Server, name, group string, rule rbacv1.PolicyRule) {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{rule}}
	if _, err := s.Client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: group}},
	}
	if _, err := s.Client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
