// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package static

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/kubelet/source"
)

const manifest = `
apiVersion: v1
kind: Pod
metadata:
  name: web
  annotations: {a: b}
spec:
  containers:
  - name: c
    image: img
`

func TestDecode(t *testing.T) {
	pod, err := decode([]byte(manifest), origin{source.File, "f"}, "n1")
	if err != nil {
		t.Fatal(err)
	}
	if pod.Name != "web-n1" || pod.Namespace != "default" || pod.Spec.NodeName != "n1" || pod.UID == "" ||
		pod.Status.Phase != v1.PodPending {
		t.Errorf("%+v", pod.ObjectMeta)
	}
	if a := pod.Annotations; a[source.AnnotationHash] != string(pod.UID) ||
		a[source.AnnotationSource] != "file" || a["a"] != "b" {
		t.Errorf("annotations %v", pod.Annotations)
	}
	if pod.Spec.RestartPolicy != v1.RestartPolicyAlways || pod.Spec.Containers[0].TerminationMessagePath == "" {
		t.Error("defaults are missing")
	}
	if n := len(pod.Spec.Tolerations); n != 1 || pod.Spec.Tolerations[0].Effect != v1.TaintEffectNoExecute {
		t.Errorf("tolerations %v", pod.Spec.Tolerations)
	}
	again, _ := decode([]byte(manifest), origin{source.File, "f"}, "n1")
	other, _ := decode([]byte(strings.Replace(manifest, "img", "new", 1)), origin{source.File, "f"}, "n1")
	elsewhere, _ := decode([]byte(manifest), origin{source.File, "f"}, "n2")
	if again.UID != pod.UID || other.UID == pod.UID || elsewhere.UID == pod.UID {
		t.Errorf("UIDs: %s, the same %s, changed %s, elsewhere %s", pod.UID, again.UID, other.UID, elsewhere.UID)
	}
	for text, want := range map[string]string{
		strings.Replace(manifest, "kind: Pod", "kind: Service",
			1): `is "v1" "Service", not v1 Pod`,
		strings.Replace(manifest, "name: web", "labels: {}",
			1): "invalid pod: name is needed for the pod",
		strings.Replace(manifest, "spec:", "spec:\n  nonsense: 1",
			1): "nonsense",
		strings.Replace(manifest, "image: img", "image: img\n    ports: [{containerPort: 100000}]",
			1): "invalid pod: spec.containers[0].ports[0].containerPort",
		strings.Replace(manifest, "image: img", "image: img\n    envFrom: [{secretRef: {name: s}}]",
			1): "static pods may not reference secrets",
		strings.Replace(manifest, "spec:", "spec:\n  serviceAccountName: x",
			1): "static pods may not reference serviceaccounts",
		strings.Replace(manifest, "spec:", "spec:\n  volumes: [{name: v, configMap: {name: c}}]",
			1): "static pods may not reference configmaps",
		strings.Replace(manifest, "spec:",
			"spec:\n  volumes: [{name: v, persistentVolumeClaim: {claimName: c}}]",
			1): "static pods may not reference persistentvolumeclaims",
		strings.Replace(manifest, "spec:", "spec:\n  volumes: [{name: v, csi: {driver: d}}]",
			1): "static pods may not reference csidrivers (via CSI volumes)",
		strings.Replace(manifest, "spec:", "spec:\n  volumes: [{name: v, ephemeral: {volumeClaimTemplate: "+
			"{spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}]",
			1): "static pods may not reference persistentvolumeclaims (via ephemeral volumes)",
		// A name that becomes a part of a directory name must not lead to another directory.
		strings.Replace(manifest, "name: web", "name: ../../../etc/x",
			1): "invalid pod: metadata.name: Invalid value",
		strings.Replace(manifest, "name: web", "name: web\n  namespace: ../../etc",
			1): "invalid pod: metadata.namespace: Invalid value",
		strings.Replace(manifest, "name: web", "name: web\n  uid: ../../../etc",
			1): "invalid pod: metadata.uid: Invalid value",
	} {
		if _, err := decode([]byte(text), origin{source.File, "f"}, "n1"); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// fakePool is a Pool that records the pods that were added to it. The test decides when a pod ends.
type fakePool struct {
	mu      sync.Mutex
	pods    map[types.UID]*v1.Pod
	removed map[types.UID]bool
}

func newPool() *fakePool {
	return &fakePool{pods: map[types.UID]*v1.Pod{}, removed: map[types.UID]bool{}}
}

func (p *fakePool) Set(pod *v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pods[pod.UID] = pod
}

func (p *fakePool) Remove(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removed[uid] = true
}

func (p *fakePool) HasWorker(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pods[uid] != nil
}

func (p *fakePool) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid := range p.removed {
		delete(p.pods, uid)
	}
}

func (p *fakePool) images() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for _, pod := range p.pods {
		out = append(out, pod.Spec.Containers[0].Image)
	}
	return strings.Join(out, ",")
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestFollower checks that the new version of a pod starts after the old version has ended.
func TestFollower(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "web.yaml"), manifest)
	write(t, filepath.Join(dir, ".hidden.yaml"), strings.Replace(manifest, "name: web", "name: hidden", 1))
	write(t, filepath.Join(dir, "bad.yaml"), "{")
	m, pool := New(Config{Path: dir, NodeName: "n1", Log: slog.New(slog.DiscardHandler)}), newPool()
	m.Start(pool)
	if got := pool.images(); got != "img" {
		t.Fatalf("pool has %q", got)
	}
	write(t, filepath.Join(dir, "web.yaml"), strings.Replace(manifest, "img", "new", 1))
	m.read()
	m.apply()
	if got := pool.images(); got != "img" || len(pool.removed) != 1 {
		t.Errorf("pool has %q, %d removed", got, len(pool.removed))
	}
	pool.end()
	m.apply()
	if got := pool.images(); got != "new" {
		t.Errorf("pool has %q", got)
	}
	if err := os.Remove(filepath.Join(dir, "web.yaml")); err != nil {
		t.Fatal(err)
	}
	m.read()
	m.apply()
	pool.end()
	m.apply()
	if got := pool.images(); got != "" || len(m.Pods()) != 0 {
		t.Errorf("pool has %q, manager %d", got, len(m.Pods()))
	}
}

// TestSpecialFiles checks that the Manager skips what is not a regular file, such as a named pipe,
// which could not be opened before another process writes to it.
func TestSpecialFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "web.yaml"), manifest)
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(dir), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{dir: "img", pipe: ""} {
		m, pool := New(Config{Path: path, NodeName: "n1", Log: slog.New(slog.DiscardHandler)}), newPool()
		if m.Start(pool); pool.images() != want || m.Synced() != (want != "") {
			t.Errorf("%s: pool has %q, synced %t", path, pool.images(), m.Synced())
		}
	}
}

// TestFileReappears checks that a pod is restarted if its file was missing for a while, even if the
// file is back before the pod has ended.
func TestFileReappears(t *testing.T) {
	file := filepath.Join(t.TempDir(), "web.yaml")
	restarted := 0
	m, pool := New(Config{Path: filepath.Dir(file), NodeName: "n1", Log: slog.New(slog.DiscardHandler),
		Restarted: func() { restarted++ }}), newPool()
	write(t, file, manifest)
	m.Start(pool)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	m.read()
	m.apply()
	write(t, file, manifest)
	m.read()
	m.apply()
	if len(pool.removed) != 1 || len(pool.pods) != 1 || restarted != 0 {
		t.Errorf("%d end, %d are there, %d restarted", len(pool.removed), len(pool.pods), restarted)
	}
	pool.end()
	m.apply()
	m.apply()
	if got := pool.images(); got != "img" || restarted != 1 {
		t.Errorf("pool has %q, %d restarted", got, restarted)
	}
}

// TestMirrors checks that the Manager creates a mirror pod again after a client has deleted it, and
// deletes it after the file was removed.
func TestMirrors(t *testing.T) {
	client := testserver.Start(t, testserver.Options{}).Client
	node, err := client.CoreV1().Nodes().Create(t.Context(),
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "web.yaml")
	write(t, file, manifest)
	m := New(Config{
		Path: dir, NodeName: "n1", Client: client, Period: time.Hour, Clock: clock.Real(), Log: slog.New(slog.DiscardHandler),
		Node: func() *v1.Node { return node }, Reflect: func() {},
		Seen: func() ([]*v1.Pod, bool) {
			list, err := client.CoreV1().Pods("").List(context.Background(), metav1.ListOptions{})
			if err != nil {
				return nil, false
			}
			var out []*v1.Pod
			for i := range list.Items {
				out = append(out, &list.Items[i])
			}
			return out, true
		},
	})
	pool := newPool()
	m.Start(pool)
	sync := func() []v1.Pod {
		t.Helper()
		m.read()
		m.apply()
		if done, err := m.mirrors(t.Context()); !done || err != nil {
			t.Fatalf("done %t, %v", done, err)
		}
		return pods(t, client)
	}
	first := sync()
	if len(first) != 1 {
		t.Fatalf("%d mirrors", len(first))
	}
	got := first[0]
	static := m.Pods()[0]
	if got.Name != "web-n1" || got.UID == static.UID || got.Annotations[source.AnnotationMirror] != string(static.UID) ||
		len(got.OwnerReferences) != 1 || got.OwnerReferences[0].UID != node.UID || got.Spec.NodeName != "n1" {
		t.Errorf("mirror %+v", got.ObjectMeta)
	}
	seen, _ := m.cfg.Seen()
	if shown := Mirror(seen, static); shown == nil || shown.UID != got.UID {
		t.Errorf("mirror is not found: %v", shown)
	}
	// A client deletes the mirror pod with a grace period. The mirror pod has no containers that
	// could end, so the Manager must complete the deletion.
	if err := client.CoreV1().Pods("default").Delete(t.Context(), got.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	sync()
	if again := sync(); len(again) != 1 || again[0].UID == got.UID || again[0].DeletionTimestamp != nil {
		t.Errorf("after a deletion: %+v", again)
	}
	write(t, file, strings.Replace(manifest, "img", "new", 1))
	sync()
	pool.end()
	sync()
	if changed := sync(); len(changed) != 1 || changed[0].Spec.Containers[0].Image != "new" {
		t.Errorf("after a change: %+v", changed)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if left := sync(); len(left) != 0 {
		t.Errorf("%d mirrors without a file", len(left))
	}
}

func pods(t *testing.T, client kubernetes.Interface) []v1.Pod {
	t.Helper()
	list, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}
