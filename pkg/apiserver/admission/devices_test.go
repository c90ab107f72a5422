// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

func TestAdminAccess(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
			Requests: []resourcev1.DeviceRequest{
				{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "c", AdminAccess: ptr.To(true)}}},
		}}}
	api := s.Client.ResourceV1().ResourceClaims("default")
	_, err := api.Create(t.Context(), claim, metav1.CreateOptions{})
	want := "ResourceClaim.resource.k8s.io \"a\" is invalid: spec.devices.requests[0].adminAccess: " +
		"Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label " +
		"on the containing namespace"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if _, err := s.Client.CoreV1().Namespaces().Patch(t.Context(), "default", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"resource.kubernetes.io/admin-access":"true"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
}

// TestClaimStatus checks which rights a user needs to change the allocation of a claim, and the
// status of devices of a driver.
func TestClaimStatus(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	ctx := t.Context()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "claims"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{resourcev1.GroupName},
			Resources: []string{"resourceclaims", "resourceclaims/status"}, Verbs: []string{"*"}},
	}}
	role, err := s.Client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "claims"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "claims"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "jane"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(s.UserConfig(t, "jane"))
	if err != nil {
		t.Fatal(err)
	}
	jane := client.ResourceV1().ResourceClaims("default")
	var claim *resourcev1.ResourceClaim
	allowed := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, 3*time.Minute, true,
		func(ctx context.Context) (bool, error) {
			claim, err = jane.Create(ctx, &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "a"},
				Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
					Requests: []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "c"}}},
				}}}, metav1.CreateOptions{})
			return err == nil, nil
		})
	if allowed != nil {
		t.Fatal(err)
	}
	allocated := claim.DeepCopy()
	allocated.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
		Results: []resourcev1.DeviceRequestAllocationResult{{Request: "r", Driver: "d.example.com", Pool: "p", Device: "x"}},
	}}
	_, err = jane.UpdateStatus(ctx, allocated, metav1.UpdateOptions{})
	wantForbidden(t, err, `status.allocation: Forbidden: changing status.allocation or status.reservedFor `+
		`requires resource="resourceclaims/binding", verb="update" permission: `)
	claim, err = s.Client.ResourceV1().ResourceClaims("default").UpdateStatus(ctx, allocated, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	told := claim.DeepCopy()
	told.Status.Devices = []resourcev1.AllocatedDeviceStatus{{Driver: "d.example.com", Pool: "p", Device: "x"}}
	_, err = jane.UpdateStatus(ctx, told, metav1.UpdateOptions{})
	wantForbidden(t, err, `status.devices: Forbidden: changing status.devices requires `+
		`resource="resourceclaims/driver", verb="[arbitrary-node:update]" permission: `)
	role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{resourcev1.GroupName},
		Resources: []string{"resourceclaims/driver"}, ResourceNames: []string{"d.example.com"},
		Verbs: []string{"arbitrary-node:update"}})
	if _, err := s.Client.RbacV1().ClusterRoles().Update(ctx, role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	allowed = wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, 3*time.Minute, true,
		func(ctx context.Context) (bool, error) {
			claim, err = jane.UpdateStatus(ctx, told, metav1.UpdateOptions{})
			return err == nil, nil
		})
	if allowed != nil {
		t.Fatal(err)
	}

	free := claim.DeepCopy()
	free.Status.Allocation = nil
	if claim, err = s.Client.ResourceV1().ResourceClaims("default").UpdateStatus(ctx, free,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if len(claim.Status.Devices) > 0 {
		t.Errorf("devices of a claim without allocation: %v", claim.Status.Devices)
	}
}

func wantForbidden(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
