// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// settings is an AdmissionConfiguration that enforces a pod security standard in namespaces without
// labels.
const settings = `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: baseline, enforce-version: latest}
`

// pluginServer runs a server with the plugins that most tests of this package need.
func pluginServer(t *testing.T) *testserver.Server {
	t.Helper()
	file := filepath.Join(t.TempDir(), "admission.yaml")
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	s := testserver.Start(t, testserver.Options{Configure: func(c *config.Config) {
		c.EnableAdmission = append(c.EnableAdmission, "ExtendedResourceToleration")
		c.DisableAdmission = append(c.DisableAdmission, "ServiceAccount")
		c.AdmissionConfig = file
	}})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{
		corev1.LabelTopologyZone: "z", corev1.LabelTopologyRegion: "r", "other": "x",
	}}}
	if _, err := s.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return s
}

func pod(name string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	if change != nil {
		change(p)
	}
	return p
}

// TestPodPlugins checks that pods get labels for their zone, and tolerations for the extended
// resources that they request. It also checks that settings from the configuration file are
// enforced.
func TestPodPlugins(t *testing.T) {
	s := pluginServer(t)
	pods := s.Client.CoreV1().Pods("default")
	labels := map[string]string{corev1.LabelTopologyZone: "z", corev1.LabelTopologyRegion: "r"}
	t.Run("a pod that is bound", func(t *testing.T) {
		eventually(t, "labels of the node", func(ctx context.Context) bool {
			const name = "bound"
			_ = pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
			if _, err := pods.Create(ctx, pod(name, nil), metav1.CreateOptions{}); err != nil {
				return false
			}
			if err := pods.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: name},
				Target: corev1.ObjectReference{Kind: "Node", Name: "n"}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			got, err := pods.Get(ctx, name, metav1.GetOptions{})
			return err == nil && cmp.Equal(got.Labels, labels)
		})
	})
	t.Run("a pod that comes with its node", func(t *testing.T) {
		got, err := pods.Create(t.Context(), pod("placed", func(p *corev1.Pod) {
			p.Spec.NodeName, p.Labels = "n", map[string]string{corev1.LabelTopologyZone: "mine"}
		}), metav1.CreateOptions{})
		if err != nil || !cmp.Equal(got.Labels, labels) {
			t.Errorf("labels %v, error %v", got.Labels, err)
		}
	})
	t.Run("a pod that asks for devices", func(t *testing.T) {
		got, err := pods.Create(t.Context(), pod("devices", func(p *corev1.Pod) {
			list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"),
				"b.example.com/gpu": resource.MustParse("1"), "a.example.com/fpga": resource.MustParse("2")}
			p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list, Limits: list}
		}), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var keys []string
		for _, x := range got.Spec.Tolerations {
			if x.Effect == corev1.TaintEffectNoSchedule && x.Operator == corev1.TolerationOpExists {
				keys = append(keys, x.Key)
			}
		}
		if diff := cmp.Diff([]string{"a.example.com/fpga", "b.example.com/gpu"}, keys); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("a pod below the standard", func(t *testing.T) {
		_, err := pods.Create(t.Context(), pod("host", func(p *corev1.Pod) { p.Spec.HostNetwork = true }),
			metav1.CreateOptions{})
		if want := `pods "host" is forbidden: violates PodSecurity "baseline:latest": host namespaces ` +
			`(hostNetwork=true)`; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		metrics, err := s.Client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		const denied = `pod_security_evaluations_total{decision="deny",mode="enforce",` +
			`policy_level="baseline",policy_version="latest",request_operation="create",resource="pod",subresource=""}`
		if !strings.Contains(string(metrics), denied) {
			t.Errorf("no %s", denied)
		}
	})
}

// TestQuotaUnderLoad checks that 50 concurrent clients can create exactly as many objects as the
// quota allows, and that no create fails with a conflict, while another client changes the quota.
func TestQuotaUnderLoad(t *testing.T) {
	const clients, each, hard = 50, 3, 40
	s := testserver.Start(t, testserver.Options{})
	quotas := s.Client.CoreV1().ResourceQuotas("default")
	q, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			"count/configmaps": *resource.NewQuantity(hard, resource.DecimalSI), "count/secrets": resource.MustParse("0"),
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// Set the status, as the quota controller does in a cluster.
	q.Status = corev1.ResourceQuotaStatus{Hard: q.Spec.Hard, Used: corev1.ResourceList{
		"count/configmaps": resource.MustParse("0"), "count/secrets": resource.MustParse("0"),
	}}
	if _, err := quotas.UpdateStatus(t.Context(), q, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	// Wait for a rejection, which shows that the plugin has the quota. A success would not show it:
	// the plugin may have cached that the namespace has no quota.
	eventually(t, "the quota is known", func(ctx context.Context) bool {
		_, err := s.Client.CoreV1().Secrets("default").Create(ctx,
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}, metav1.CreateOptions{DryRun: []string{"All"}})
		return err != nil && strings.Contains(err.Error(), "exceeded quota: q")
	})
	var made, refused atomic.Int64
	var wg, writer sync.WaitGroup
	done := make(chan struct{})
	writer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			change := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/change":"%d"}}}`, i)
			if _, err := quotas.Patch(t.Context(), "q", types.MergePatchType, change,
				metav1.PatchOptions{}); err != nil && !apierrors.IsConflict(err) {
				t.Error(err)
				return
			}
		}
	})
	for i := range clients {
		cfg := s.UserConfig(t, fmt.Sprint("user-", i), "system:masters")
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for j := range each {
				_, err := client.CoreV1().ConfigMaps("default").Create(t.Context(),
					configMap(fmt.Sprintf("c-%d-%d", i, j), nil), metav1.CreateOptions{})
				switch {
				case err == nil:
					made.Add(1)
				case apierrors.IsForbidden(err) &&
					strings.Contains(err.Error(), "exceeded quota: q, requested: count/configmaps=1, used: "+
						"count/configmaps=40, limited: count/configmaps=40"):
					refused.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	close(done)
	writer.Wait()
	list, err := s.Client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if q, err = quotas.Get(t.Context(), "q", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	used := q.Status.Used["count/configmaps"]
	if made.Load() != hard || len(list.Items) != hard || used.Value() != hard || refused.Load() != clients*each-hard {
		t.Errorf("%d made, %d there, %d charged, %d refused; the quota is %d", made.Load(), len(list.Items),
			used.Value(), refused.Load(), hard)
	}
}
