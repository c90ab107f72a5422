// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// loadNamespace is the namespace of the pods that run during the whole test, and of the objects that
// clients write.
const loadNamespace = "load"

// workload has a Deployment, a StatefulSet with volumes, and their Services.
const workload = `
apiVersion: v1
kind: Namespace
metadata: {name: load}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: load}
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: nginx:1.27
        readinessProbe: {httpGet: {path: /, port: 80}, periodSeconds: 2}
        livenessProbe: {httpGet: {path: /, port: 80}, periodSeconds: 2}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: load}
spec:
  selector: {app: web}
  ports: [{port: 80}]
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: load}
spec:
  clusterIP: None
  selector: {app: db}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: load}
spec:
  replicas: 2
  serviceName: db
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: db
        image: busybox:1.36
        command: [sleep, infinity]
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec:
      accessModes: [ReadWriteOnce]
      resources: {requests: {storage: 16Mi}}
`

// podsReady waits until the pods of the load and of the cluster's DNS server are ready.
func (u *upgrade) podsReady() {
	u.t.Helper()
	u.eventually("all pods are ready", func(ctx context.Context) error {
		for namespace, want := range map[string]int{loadNamespace: 6, metav1.NamespaceSystem: 1} {
			list, err := u.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			for _, p := range list.Items {
				if !slices.ContainsFunc(p.Status.Conditions,
					func(c v1.PodCondition) bool { return c.Type == v1.PodReady && c.Status == v1.ConditionTrue }) {
					return fmt.Errorf("pod %s/%s is not ready", namespace, p.Name)
				}
			}
			if len(list.Items) < want {
				return fmt.Errorf("%d pods in %s, want %d", len(list.Items), namespace, want)
			}
		}
		return nil
	})
}

// containers returns, for each container of the load and of the cluster's DNS server, its ID, the time
// of its start and the number of its restarts.
func (u *upgrade) containers() map[string]string {
	u.t.Helper()
	out := map[string]string{}
	for _, namespace := range []string{loadNamespace, metav1.NamespaceSystem} {
		list, err := u.client.CoreV1().Pods(namespace).List(u.t.Context(), metav1.ListOptions{})
		if err != nil {
			u.t.Fatal(err)
		}
		for _, p := range list.Items {
			for _, c := range p.Status.ContainerStatuses {
				started := "not running"
				if c.State.Running != nil {
					started = c.State.Running.StartedAt.UTC().String()
				}
				out[fmt.Sprintf("%s/%s %s %s", namespace, p.Name, p.UID, c.Name)] =
					fmt.Sprintf("%s, started %s, %d restarts", c.ContainerID, started, c.RestartCount)
			}
		}
	}
	return out
}

// sameContainers checks that the containers are the same as before, and were not restarted.
func (u *upgrade) sameContainers(before map[string]string) {
	u.t.Helper()
	now := u.containers()
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if now[name] != before[name] {
			u.t.Errorf("%v: container %s: %s before, %s now", u.at(), name, before[name], now[name])
		}
	}
	if len(now) != len(before) {
		u.t.Errorf("%v: %d containers before, %d now: %v", u.at(), len(before), len(now), now)
	}
}

// controllersWork checks that the scheduler and the controllers work: a new pod runs, the dependent
// of a deleted owner is collected, and a deleted namespace is removed.
func (u *upgrade) controllersWork() {
	u.t.Helper()
	client, ctx := u.client.CoreV1(), u.t.Context()
	made, err := client.Namespaces().Create(ctx,
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "works-"}}, metav1.CreateOptions{})
	if err != nil {
		u.t.Fatal(err)
	}
	ns := made.Name
	u.eventually("a pod is created", func(ctx context.Context) error {
		_, err := client.Pods(ns).Create(ctx, &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p"},
			Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicyNever,
				Containers: []v1.Container{{Name: "c", Image: "busybox:1.36", Command: []string{"true"}}}},
		}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	u.eventually("a pod runs", func(ctx context.Context) error {
		p, err := client.Pods(ns).Get(ctx, "p", metav1.GetOptions{})
		if err == nil && p.Status.Phase != v1.PodSucceeded {
			err = fmt.Errorf("phase %s, conditions %v", p.Status.Phase, p.Status.Conditions)
		}
		return err
	})
	owner := u.configMap(ns, "owner")
	u.configMap(ns, "dependent", refer(owner.ObjectMeta, "v1", "ConfigMap"))
	u.delete("owner", client.ConfigMaps(ns).Delete(ctx, "owner", metav1.DeleteOptions{}))
	u.gone("dependent", func(ctx context.Context) error {
		_, err := client.ConfigMaps(ns).Get(ctx, "dependent", metav1.GetOptions{})
		return err
	})
	u.removeNamespace(ns)
}

// removeNamespace deletes a namespace and waits until it is gone.
func (u *upgrade) removeNamespace(name string) {
	u.t.Helper()
	client := u.client.CoreV1().Namespaces()
	u.delete("namespace "+name, client.Delete(u.t.Context(), name, metav1.DeleteOptions{}))
	u.gone("namespace "+name, func(ctx context.Context) error {
		_, err := client.Get(ctx, name, metav1.GetOptions{})
		return err
	})
}

func (u *upgrade) delete(what string, err error) {
	u.t.Helper()
	if err != nil {
		u.t.Fatalf("%v: delete %s: %v", u.at(), what, err)
	}
}

// gone waits until a read returns the error NotFound.
func (u *upgrade) gone(what string, read func(ctx context.Context) error) {
	u.t.Helper()
	u.eventually(what+" is gone", func(ctx context.Context) error {
		err := read(ctx)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there, or %w", err)
	})
}

// configMap creates a ConfigMap.
func (u *upgrade) configMap(namespace, name string, owners ...metav1.OwnerReference) *v1.ConfigMap {
	u.t.Helper()
	made, err := u.client.CoreV1().ConfigMaps(namespace).Create(u.t.Context(),
		&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners}}, metav1.CreateOptions{})
	if err != nil {
		u.t.Fatal(err)
	}
	return made
}

// refer returns an owner reference that blocks the deletion of the owner in the foreground.
func refer(o metav1.ObjectMeta, version, kind string) metav1.OwnerReference {
	blocks := true
	return metav1.OwnerReference{APIVersion: version, Kind: kind, Name: o.Name, UID: o.UID, BlockOwnerDeletion: &blocks}
}
