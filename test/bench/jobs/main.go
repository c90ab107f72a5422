// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command jobs measures the cost of Jobs for a control plane. It creates Node objects without
// machines, and reports each pod that is bound to such a node as succeeded. It prints how long it
// takes until all Jobs are complete, how long it takes to delete their namespace, and the CPU time
// of each process per pod.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
)

const atOnce = 16

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "jobs:", err)
		os.Exit(1)
	}
}

type load struct {
	client               kubernetes.Interface
	namespace            string
	jobs, indexes, nodes int
	processes            map[string]int
}

func run(ctx context.Context) error {
	l := load{namespace: fmt.Sprint("jobs-", time.Now().Unix()), processes: map[string]int{}}
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig file of the control plane, with administrator rights")
	pids := flag.String("pids", "", "processes whose CPU time is measured: NAME=PID,...")
	flag.IntVar(&l.jobs, "jobs", 1000, "number of Jobs")
	flag.IntVar(&l.indexes, "indexes", 10, "number of indexes (pods) of each Job")
	flag.IntVar(&l.nodes, "nodes", 100, "number of nodes")
	flag.Parse()
	for pair := range strings.SplitSeq(*pids, ",") {
		name, pid, _ := strings.Cut(pair, "=")
		n, err := strconv.Atoi(pid)
		if err != nil {
			return fmt.Errorf("--pids: %w", err)
		}
		l.processes[name] = n
	}
	rc, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	rc.QPS, rc.ContentType = -1, "application/vnd.kubernetes.protobuf"
	if l.client, err = kubernetes.NewForConfig(rc); err != nil {
		return err
	}
	return l.play(ctx)
}

func (l *load) play(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	ctx, done := context.WithCancel(ctx)
	defer done()
	if err := l.makeNodes(ctx); err != nil {
		return err
	}
	g.Go(func() error { return l.renew(ctx) })
	g.Go(func() error {
		defer done()
		if _, err := l.client.CoreV1().Namespaces().Create(ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: l.namespace}}, metav1.CreateOptions{}); err != nil {
			return err
		}
		if err := l.succeed(ctx); err != nil {
			return err
		}
		if err := l.phase("complete", func() error { return l.complete(ctx) }); err != nil {
			return err
		}
		return l.phase("namespace gone", func() error { return l.remove(ctx) })
	})
	if err := g.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// phase runs f, and prints how long it takes and how much CPU time the processes use.
func (l *load) phase(what string, f func() error) error {
	before, began := l.spent(), time.Now()
	if err := f(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	pods := float64(l.jobs * l.indexes)
	fmt.Printf("%s: %.1f s;", what, time.Since(began).Seconds())
	total := 0.0
	for name, s := range l.spent() {
		fmt.Printf(" %s %.2f ms,", name, (s-before[name])*1000/pods)
		total += s - before[name]
	}
	fmt.Printf(" together %.2f ms of CPU for each of %.0f pods\n", total*1000/pods, pods)
	return nil
}

// spent returns the CPU time that each process has used so far, in seconds.
func (l *load) spent() map[string]float64 {
	const hertz = 100 // /proc counts CPU time in units of 1/100 s
	out := map[string]float64{}
	for name, pid := range l.processes {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // the process has ended in the meantime
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		user, _ := strconv.ParseFloat(fields[11], 64)
		system, _ := strconv.ParseFloat(fields[12], 64)
		out[name] = (user + system) / hertz
	}
	return out
}

func (l *load) each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i := range n {
		g.Go(func() error { return f(ctx, i) })
	}
	return g.Wait()
}

func nodeName(i int) string { return fmt.Sprintf("hollow-%d", i) }

func (l *load) makeNodes(ctx context.Context) error {
	status := []byte(`{"status":{"capacity":{"cpu":"64","memory":"256Gi","pods":"1000"},` +
		`"allocatable":{"cpu":"64","memory":"256Gi","pods":"1000"},"conditions":[{"type":"Ready","status":"True"}]}}`)
	err := l.each(ctx, l.nodes, func(ctx context.Context, i int) error {
		nodes := l.client.CoreV1().Nodes()
		_, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i)}}, metav1.CreateOptions{})
		if err == nil || apierrors.IsAlreadyExists(err) {
			_, err = nodes.Patch(ctx, nodeName(i), types.MergePatchType, status, metav1.PatchOptions{}, "status")
		}
		return err
	})
	if err != nil {
		return err
	}
	return l.renewAll(ctx)
}

// renew renews the nodes' Leases periodically until ctx ends.
func (l *load) renew(ctx context.Context) error {
	for tick := time.Tick(10 * time.Second); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
			if err := l.renewAll(ctx); err != nil {
				return err
			}
		}
	}
}

func (l *load) renewAll(ctx context.Context) error {
	leases := l.client.CoordinationV1().Leases("kube-node-lease")
	return l.each(ctx, l.nodes, func(ctx context.Context, i int) error {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i)}, Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To(nodeName(i)), LeaseDurationSeconds: ptr.To(int32(40)),
			RenewTime: ptr.To(metav1.NewMicroTime(time.Now())),
		}}
		spec, err := json.Marshal(map[string]any{"spec": lease.Spec})
		if err != nil {
			return err
		}
		_, err = leases.Patch(ctx, lease.Name, types.MergePatchType, spec, metav1.PatchOptions{})
		if apierrors.IsNotFound(err) {
			_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
		}
		return err
	})
}

// succeed watches the namespace's pods, and reports each pod as succeeded once it is bound.
func (l *load) succeed(ctx context.Context) error {
	const queue = 100_000
	work := make(chan *corev1.Pod, queue)
	factory := informers.NewSharedInformerFactoryWithOptions(l.client, 0, informers.WithNamespace(l.namespace))
	look := func(o any) {
		if pod := o.(*corev1.Pod); pod.Spec.NodeName != "" && pod.Status.Phase == corev1.PodPending {
			work <- pod
		}
	}
	if _, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: look, UpdateFunc: func(_, o any) { look(o) },
	}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	status := []byte(`{"status":{"phase":"Succeeded","podIP":"10.0.0.1","containerStatuses":[{"name":"c",` +
		`"image":"i","imageID":"i","ready":false,"restartCount":0,"state":{"terminated":{"exitCode":0}}}]}}`)
	for range atOnce {
		go func() {
			for pod := range work {
				// Errors are ignored, because the pod may have been deleted or reported already.
				_, _ = l.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, status,
					metav1.PatchOptions{}, "status")
			}
		}()
	}
	return nil
}

func (l *load) complete(ctx context.Context) error {
	jobs := l.client.BatchV1().Jobs(l.namespace)
	done := make(chan struct{})
	left := map[string]bool{}
	for i := range l.jobs {
		left[fmt.Sprint("job-", i)] = true
	}
	factory := informers.NewSharedInformerFactoryWithOptions(l.client, 0, informers.WithNamespace(l.namespace))
	look := func(o any) {
		job := o.(*batchv1.Job)
		if job.Status.CompletionTime == nil || !left[job.Name] {
			return
		}
		if delete(left, job.Name); len(left) == 0 {
			close(done)
		}
	}
	if _, err := factory.Batch().V1().Jobs().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: look, UpdateFunc: func(_, o any) { look(o) },
	}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	n := int32(l.indexes)
	err := l.each(ctx, l.jobs, func(ctx context.Context, i int) error {
		_, err := jobs.Create(ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("job-", i)},
			Spec: batchv1.JobSpec{
				Completions: &n, Parallelism: &n, CompletionMode: ptr.To(batchv1.IndexedCompletion),
				Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: ptr.To(false),
					Containers: []corev1.Container{
						{Name: "c", Image: "i",
							Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("10m")}}}},
				}},
			}}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-done:
		return nil
	}
}

func (l *load) remove(ctx context.Context) error {
	namespaces := l.client.CoreV1().Namespaces()
	if err := namespaces.Delete(ctx, l.namespace, metav1.DeleteOptions{}); err != nil {
		return err
	}
	for tick := time.Tick(100 * time.Millisecond); ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick:
			if _, err := namespaces.Get(ctx, l.namespace, metav1.GetOptions{}); apierrors.IsNotFound(err) {
				return nil
			}
		}
	}
}
