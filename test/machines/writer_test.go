// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"keelson.dev/keelson/test/machines/lab"
)

// Environment variables that make this program write instead of testing: the kubeconfig, and the path of the
// writer's files without their endings.
const (
	writerConfig = "KEELSON_WRITER"
	writerFiles  = "KEELSON_WRITER_FILES"
)

func TestMain(m *testing.M) {
	for name, run := range map[string]func(string) error{writerConfig: write, informerConfig: inform,
		observerServers: observe, bucketServer: serveBucket} {
		if value := os.Getenv(name); value != "" {
			if err := run(value); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

const (
	writerProgram = "/root/writer"
	// stopEnding is the ending of the file whose existence ends a writer.
	stopEnding = ".stop"
	// acknowledgedEnding is the ending of the file that has a line for each acknowledged write.
	acknowledgedEnding = ".acknowledged"
	// writerLabel is the label of the objects of a writer. Its value differs between writers.
	writerLabel = "machines.test/writer"
	// requestLimit is how long a request of the writer may take.
	requestLimit = 30 * time.Second
	// patience is how long the writer waits at its end until its watch has shown all writes.
	patience = time.Minute
)

// writes has what a writer has seen.
type writes struct {
	Done   int      // acknowledged writes
	Failed []string // errors of requests
	// Gap is the longest time between the ends of two writes that succeeded, in seconds, and Slowest the
	// longest request.
	Gap, Slowest float64
	// Lost are the acknowledged writes that are not in the store at the end, and Unnoticed those that a watch
	// has not shown which began before the first write.
	Lost, Unnoticed []string
}

// writer creates ConfigMaps one after the other, as a client with the defaults of client-go, and watches them.
type writer struct {
	client       kubernetes.Interface
	id           string // value of writerLabel
	files        string // path of its files, without their endings
	seen         writes
	acknowledged []string // names
}

// write runs a writer until its file with stopEnding exists. Then it prints what it has seen, and deletes its
// objects.
func write(kubeconfig string) error {
	rc, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w := &writer{client: client, id: string(uuid.NewUUID()), files: os.Getenv(writerFiles)}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(metav1.NamespaceDefault),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = w.selector() }))
	watched := factory.Core().V1().ConfigMaps().Informer()
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), watched.HasSynced) {
		return ctx.Err()
	}
	if err := w.writeUntilStopped(ctx); err != nil {
		return err
	}
	if err := w.check(ctx, watched.GetStore()); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(w.seen)
}

func (w *writer) selector() string { return writerLabel + "=" + w.id }

// writeUntilStopped creates objects until the file with stopEnding exists. Each has another name, because the
// outcome of a request that has failed is not known.
func (w *writer) writeUntilStopped(ctx context.Context) error {
	progress, err := os.Create(w.files + acknowledgedEnding)
	if err != nil {
		return err
	}
	defer progress.Close()
	maps, last := w.client.CoreV1().ConfigMaps(metav1.NamespaceDefault), time.Now()
	for n := 0; ; n++ {
		if _, err := os.Stat(w.files + stopEnding); err == nil {
			return nil
		}
		name := fmt.Sprintf("writer-%.8s-%d", w.id, n)
		began := time.Now()
		request, cancel := context.WithTimeout(ctx, requestLimit)
		_, err := maps.Create(request, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{writerLabel: w.id}}}, metav1.CreateOptions{})
		cancel()
		now := time.Now()
		w.seen.Slowest = max(w.seen.Slowest, now.Sub(began).Seconds())
		if err != nil {
			w.seen.Failed = append(w.seen.Failed, fmt.Sprintf("%s after %.3f s: %v", now.UTC().Format("15:04:05.000"),
				now.Sub(began).Seconds(), err))
			continue
		}
		w.seen.Gap = max(w.seen.Gap, now.Sub(last).Seconds())
		last = now
		w.seen.Done++
		w.acknowledged = append(w.acknowledged, name)
		if _, err := fmt.Fprintln(progress, name); err != nil {
			return err
		}
	}
}

// check compares the acknowledged writes with what the store has and with what the watch has shown. Then it
// deletes the objects.
func (w *writer) check(ctx context.Context, watched cache.Store) error {
	maps, stored := w.client.CoreV1().ConfigMaps(metav1.NamespaceDefault), map[string]bool{}
	own := metav1.ListOptions{LabelSelector: w.selector()}
	list, err := maps.List(ctx, own)
	if err != nil {
		return err
	}
	for _, m := range list.Items {
		stored[m.Name] = true
	}
	w.seen.Lost = slices.DeleteFunc(slices.Clone(w.acknowledged), func(name string) bool { return stored[name] })
	_ = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		w.seen.Unnoticed = slices.DeleteFunc(slices.Clone(w.acknowledged), func(name string) bool {
			_, noticed, _ := watched.GetByKey(metav1.NamespaceDefault + "/" + name)
			return noticed
		})
		return len(w.seen.Unnoticed) == 0, nil
	})
	return maps.DeleteCollection(ctx, metav1.DeleteOptions{}, own)
}

// startWriter runs a writer on a machine, and waits until it has written. The returned function ends it, checks
// that no acknowledged write is lost and that a watch has shown all of them, and returns what the writer has seen.
func (c *cell) startWriter(m *lab.Machine, kubeconfig string) (stop func() writes) {
	c.Helper()
	self, err := os.Executable()
	if err == nil {
		err = m.CopyIn(self, writerProgram)
	}
	if err != nil {
		c.Fatal(err)
	}
	files := "/root/writer-" + rand.Text()
	c.run(m, "> "+files+acknowledgedEnding)
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.Context()))
	type result struct {
		out []byte
		err error
	}
	ended := make(chan result, 1)
	go func() {
		out, err := m.Run(ctx, "env", writerConfig+"="+kubeconfig, writerFiles+"="+files, writerProgram)
		ended <- result{out, err}
	}()
	c.Cleanup(cancel)
	for c.run(m, "cat "+files+acknowledgedEnding) == "" {
		select {
		case r := <-ended:
			c.Fatalf("writer: %v\n%s", r.err, r.out)
		case <-time.After(100 * time.Millisecond):
		}
	}
	return func() (seen writes) {
		c.Helper()
		c.run(m, "touch "+files+stopEnding)
		r := <-ended
		if err := errors.Join(r.err, json.Unmarshal(r.out, &seen)); err != nil {
			c.Fatalf("writer: %v\n%s", err, r.out)
		}
		c.Logf("%s: %d writes, longest gap %.2f s, slowest request %.2f s, %d failed\n%s", m.Name(), seen.Done, seen.Gap,
			seen.Slowest, len(seen.Failed), strings.Join(seen.Failed, "\n"))
		if len(seen.Lost)+len(seen.Unnoticed) > 0 {
			c.Errorf("%s: acknowledged writes are lost: %q, or were not shown by a watch: %q", m.Name(), seen.Lost,
				seen.Unnoticed)
		}
		return seen
	}
}

// written waits until n more writes of the writers on a machine were acknowledged.
func (c *cell) written(m *lab.Machine, n int) {
	c.Helper()
	c.run(m, fmt.Sprintf("count() { cat /root/writer-*%s | wc -l; }; end=$(($(count) + %d))\n", acknowledgedEnding, n)+
		`until [ $(count) -ge $end ]; do sleep 0.1; done`)
}

// writes runs fault while a machine writes with /root/admin.conf, and then until ten more writes were
// acknowledged. It returns what the writer has seen.
func (c *cell) writes(m *lab.Machine, fault func()) writes {
	c.Helper()
	stop := c.startWriter(m, adminConfig)
	c.written(m, 10)
	fault()
	c.written(m, 10)
	return stop()
}

// adminConfig is the file to which makeAdmin writes.
const adminConfig = "/root/admin.conf"

// makeAdmin gives a machine the credentials of a control plane's administrator.
func (c *cell) makeAdmin(m, controlPlane *lab.Machine) {
	c.Helper()
	conf, err := controlPlane.Read("/etc/kubernetes/admin.conf")
	if err != nil {
		c.Fatal(err)
	}
	c.write(m, adminConfig, string(conf))
}
