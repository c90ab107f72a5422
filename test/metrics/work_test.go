// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
)

var codec = scheme.Codecs.WithoutConversion()

// deadline is how long the work waits for each step.
const deadline = 3 * time.Minute

// worker does the work of TestWork.
type worker struct {
	t      *testing.T
	rest   *rest.Config
	client kubernetes.Interface
}

// TestWork lets the control plane of KUBECONFIG work, and writes the metrics of its processes to a file. TestBeside
// runs it in a process of its own for each control plane.
func TestWork(t *testing.T) {
	file := os.Getenv(workFile)
	if file == "" {
		return // TestBeside does not run it
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{t: t, rest: cfg, client: client}
	w.eventually("service accounts exist", func() bool {
		_, err := client.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	w.apply("testdata/nodes.yaml")
	go func() {
		defer close(ended)
		w.kubelets(ctx)
	}()
	defer func() {
		stop()
		<-ended
	}()
	w.apply("testdata/work.yaml")
	w.pods()
	w.requests()
	w.workloads()
	data, err := json.Marshal(scrape(t, w.token()))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// eventually calls ok repeatedly until it returns true.
func (w *worker) eventually(what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(deadline); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("still waiting after %v: %s", deadline, what)
		}
	}
}

// apply creates the objects of a YAML file.
func (w *worker) apply(file string) {
	w.t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		w.t.Fatal(err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(w.client.Discovery()))
	client, err := dynamic.NewForConfig(w.rest)
	if err != nil {
		w.t.Fatal(err)
	}
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(string(data)), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); err != nil {
			return // the end of the file
		}
		kind := object.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			w.t.Fatal(err)
		}
		// Some objects need others that controllers create first.
		w.eventually(kind.Kind+" "+object.GetName()+" is created", func() bool {
			_, err := client.Resource(mapping.Resource).Namespace(object.GetNamespace()).Create(w.t.Context(), object,
				metav1.CreateOptions{})
			return err == nil
		})
	}
}

// kubelets does the work of the kubelets of n1 and n2 until ctx ends. n3 has no kubelet. Pods with the label result end
// with this result; others become ready.
func (w *worker) kubelets(ctx context.Context) {
	for ctx.Err() == nil {
		// An error is a conflict with a controller, or the end of ctx; the next iteration repeats the call.
		for _, node := range []string{"n1", "n2"} {
			_ = w.renew(ctx, node)
		}
		pods, err := w.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		for i := range pods.Items {
			_ = w.run(ctx, &pods.Items[i])
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// renew renews the lease of a node.
func (w *worker) renew(ctx context.Context, node string) error {
	leases := w.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	spec := coordinationv1.LeaseSpec{
		HolderIdentity: &node, LeaseDurationSeconds: ptr.To(int32(40)), RenewTime: ptr.To(metav1.NowMicro()),
	}
	patch, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return err
	}
	if _, err = leases.Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{}); err == nil {
		return nil
	}
	_, err = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: spec},
		metav1.CreateOptions{})
	return err
}

// run reports a pod as ready or ended, or removes it if it is being deleted.
func (w *worker) run(ctx context.Context, p *corev1.Pod) error {
	pods := w.client.CoreV1().Pods(p.Namespace)
	phase := corev1.PodPhase(p.Labels["result"])
	if phase == "" {
		phase = corev1.PodRunning
	}
	switch {
	case p.Spec.NodeName == "":
		return nil
	case p.DeletionTimestamp != nil:
		return pods.Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))})
	case p.Status.Phase == phase:
		return nil
	}
	p.Status.Phase, p.Status.StartTime = phase, ptr.To(metav1.Now())
	status := corev1.ContainerStatus{Name: p.Spec.Containers[0].Name, Image: "i", ImageID: "i", ContainerID: "x://1"}
	switch phase {
	case corev1.PodRunning:
		status.Ready, status.State.Running = true, &corev1.ContainerStateRunning{StartedAt: metav1.Now()}
		p.Status.PodIP = fmt.Sprintf("10.244.0.%d", 2+time.Now().UnixNano()%250)
		p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
		p.Status.Conditions = append(p.Status.Conditions,
			corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
	case corev1.PodFailed:
		status.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", FinishedAt: metav1.Now()}
	default:
		status.State.Terminated = &corev1.ContainerStateTerminated{Reason: "Completed", FinishedAt: metav1.Now()}
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{status}
	_, err := pods.UpdateStatus(ctx, p, metav1.UpdateOptions{})
	return err
}

// condition reports whether a pod has a condition with a status.
func (w *worker) condition(pod string, kind corev1.PodConditionType, status corev1.ConditionStatus) bool {
	p, err := w.client.CoreV1().Pods("work").Get(w.t.Context(), pod, metav1.GetOptions{})
	if err != nil {
		return false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c.Status == status
		}
	}
	return false
}

// pods waits until a pod that fits no node is rejected, and until a pod has preempted one of lower priority.
func (w *worker) pods() {
	w.t.Helper()
	w.eventually("a pod fits nowhere", func() bool {
		return w.condition("nowhere", corev1.PodScheduled, corev1.ConditionFalse)
	})
	w.eventually("the large pod runs", func() bool { return w.condition("low", corev1.PodReady, corev1.ConditionTrue) })
	w.apply("testdata/urgent.yaml")
	w.eventually("the urgent pod runs", func() bool {
		return w.condition("urgent", corev1.PodReady, corev1.ConditionTrue)
	})
}

// workloads waits for the results of jobs and of a dead node.
func (w *worker) workloads() {
	w.t.Helper()
	ctx := w.t.Context()
	w.eventually("the Deployment is ready", func() bool {
		d, err := w.client.AppsV1().Deployments("work").Get(ctx, "web", metav1.GetOptions{})
		return err == nil && d.Status.ReadyReplicas == *d.Spec.Replicas
	})
	w.eventually("jobs have ended", func() bool {
		jobs, err := w.client.BatchV1().Jobs("work").List(ctx, metav1.ListOptions{})
		ended := 0
		for _, j := range jobs.Items {
			for _, c := range j.Status.Conditions {
				if c.Status == corev1.ConditionTrue && (c.Type == "Complete" || c.Type == "Failed") {
					ended++
				}
			}
		}
		return err == nil && ended >= 3 // two Jobs, and one of the CronJob
	})
	w.eventually("n3 is found dead", func() bool {
		n, err := w.client.CoreV1().Nodes().Get(ctx, "n3", metav1.GetOptions{})
		if err != nil {
			return false
		}
		for _, taint := range n.Spec.Taints {
			if taint.Key == corev1.TaintNodeUnreachable && taint.Effect == corev1.TaintEffectNoExecute {
				return true
			}
		}
		return false
	})
	if err := w.client.CoreV1().Namespaces().Delete(ctx, "gone", metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.eventually("a namespace is gone", func() bool {
		_, err := w.client.CoreV1().Namespaces().Get(ctx, "gone", metav1.GetOptions{})
		return err != nil
	})
}

// requests sends requests of many kinds. Some of them must fail.
func (w *worker) requests() {
	w.t.Helper()
	ctx, maps := w.t.Context(), w.client.CoreV1().ConfigMaps("work")
	must := func(err error) {
		w.t.Helper()
		if err != nil {
			w.t.Fatal(err)
		}
	}
	_, err := maps.Patch(ctx, "data", types.MergePatchType, []byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{})
	must(err)
	_, err = maps.Patch(ctx, "data", types.ApplyPatchType,
		[]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"data"},"data":{"c":"d"}}`),
		metav1.PatchOptions{FieldManager: "work"})
	must(err)
	_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "dry"}},
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	must(err)
	if _, err := maps.Get(ctx, "missing", metav1.GetOptions{}); err == nil {
		w.t.Error("a missing object exists")
	}
	w.eventually("the policy rejects objects", func() bool {
		_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "forbidden-"}},
			metav1.CreateOptions{})
		return err != nil && strings.Contains(err.Error(), "forbidden by the policy")
	})
	//nolint:staticcheck // the point is that this API is deprecated
	_, err = w.client.CoreV1().Endpoints("work").List(ctx, metav1.ListOptions{})
	must(err)
	watch, err := maps.Watch(ctx, metav1.ListOptions{SendInitialEvents: ptr.To(true), AllowWatchBookmarks: true,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, TimeoutSeconds: ptr.To(int64(1))})
	must(err)
	for range watch.ResultChan() {
		continue // until the server ends the watch
	}
	account := rest.AnonymousClientConfig(w.rest)
	account.BearerToken = w.token()
	other, err := kubernetes.NewForConfig(account)
	must(err)
	_, err = other.CoreV1().ConfigMaps("work").List(ctx, metav1.ListOptions{Limit: 1})
	must(err)
	account.BearerToken = "none"
	other, err = kubernetes.NewForConfig(account)
	must(err)
	if _, err := other.CoreV1().Pods("work").List(ctx, metav1.ListOptions{}); err == nil {
		w.t.Error("a client with a wrong token may list pods")
	}
	must(maps.Delete(ctx, "data", metav1.DeleteOptions{}))
}

// token returns a token of a service account that may do everything.
func (w *worker) token() string {
	w.t.Helper()
	out, err := w.client.CoreV1().ServiceAccounts("work").CreateToken(w.t.Context(), "reader",
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return out.Status.Token
}
