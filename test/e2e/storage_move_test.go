// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// storeImage is an image archive with the program of test/walstore, a small database.
const storeImage = "../../.build/e2e-images/walstore.tar"

const storeManifest = `apiVersion: apps/v1
kind: StatefulSet
metadata: {name: store}
spec:
  serviceName: store
  persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete}
  selector: {matchLabels: {app: store}}
  template:
    metadata: {labels: {app: store}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: store
        image: keelson.dev/e2e/walstore:1
        imagePullPolicy: IfNotPresent
        volumeMounts: [{name: data, mountPath: /data}]
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec:
      accessModes: [ReadWriteOnce]
      storageClassName: csi
      resources: {requests: {storage: 64Mi}}
`

// storeWriter writes numbered records to the database one after the other, each record once, and
// remembers which the database acknowledged.
type storeWriter struct {
	mu    sync.Mutex
	acked []string
	stop  context.CancelFunc
	done  chan struct{}
}

func startStoreWriter(t *testing.T, ns string) *storeWriter {
	ctx, stop := context.WithCancel(t.Context())
	w := &storeWriter{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for i := 0; ctx.Err() == nil; i++ {
			record := fmt.Sprint("record-", i)
			try, cancel := context.WithTimeout(ctx, 2*time.Second)
			err := storeRequest(try, ns, "POST", record)
			cancel()
			if err == nil {
				w.mu.Lock()
				w.acked = append(w.acked, record)
				w.mu.Unlock()
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() {
		stop()
		<-w.done
	})
	return w
}

func storeRequest(ctx context.Context, ns, verb, body string) error {
	return shared.client.CoreV1().RESTClient().Verb(verb).AbsPath("/api/v1/namespaces", ns, "pods",
		"store-0:8080", "proxy/").Body([]byte(body)).Do(ctx).Error()
}

func (w *storeWriter) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acked)
}

// more waits until the database has acknowledged n more records.
func (w *storeWriter) more(t *testing.T, n int) {
	t.Helper()
	before := w.count()
	eventually(t, fmt.Sprintf("%d more records", n), func() bool { return w.count() >= before+n })
}

// TestMovedDatabase makes the node of a database unreachable and marks it as out of service. The
// database's pod must move to another node with its volume, and no acknowledged record may be lost.
func TestMovedDatabase(t *testing.T) {
	installDriver(t)
	image, err := filepath.Abs(storeImage)
	if err != nil {
		t.Fatal(err)
	}
	ctl(t, "cluster", "load", "--name", clusterName, "--data-dir", filepath.Join(shared.dir, "data"), image)
	ns := namespace(t, "store")
	if out, err := try(t, storeManifest, "-n", ns, "create", "-f", "-"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	eventually(t, "the store is ready", func() bool { return readyPods(t, ns, "app=store") == 1 })
	w := startStoreWriter(t, ns)
	w.more(t, 50)
	old := pods(t, ns, "app=store")[0].Spec.NodeName
	ctl(t, "cluster", "node", "kill", old, "--name", clusterName)
	eventually(t, old+" is not ready", func() bool { return readyNodes(t) == nodes-1 })
	ctl(t, "taint", "node", old, v1.TaintNodeOutOfService+"=killed:NoExecute")
	eventually(t, "the store is ready on another node", func() bool {
		p := pods(t, ns, "app=store")
		return len(p) == 1 && p[0].Spec.NodeName != old && ready(&p[0])
	})
	if on := attachments(t, "test.csi.keelson.dev"); len(on) != 1 || on[0] == old {
		t.Errorf("attached to %v", on)
	}
	w.more(t, 50)
	w.stop()
	<-w.done
	all, err := shared.client.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces", ns, "pods",
		"store-0:8080", "proxy/").Do(t.Context()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	for _, record := range strings.Split(string(all), "\n") {
		has[record] = true
	}
	for _, record := range w.acked {
		if !has[record] {
			t.Errorf("%s was acknowledged and is lost", record)
		}
	}
	ctl(t, "cluster", "node", "start", old, "--name", clusterName)
	awaitNodes(t, nodes)
	ctl(t, "taint", "node", old, v1.TaintNodeOutOfService+"-")
	ctl(t, "-n", ns, "delete", "statefulset", "store")
	eventually(t, "no volume is left", func() bool {
		return len(volumesOf(t, ns)) == 0 &&
			len(attachments(t, "test.csi.keelson.dev")) == 0
	})
	noMounts(t)
}
