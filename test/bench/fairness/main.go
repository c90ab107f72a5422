// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command fairness measures the effect of one tenant's load on another tenant. It measures the
// latency of a few small requests of one user, first without other load, and then while another
// user requests many large lists at the same time. It works with any server that is compatible with
// Kubernetes. It needs a kubeconfig with administrator rights, and removes the objects that it
// creates.
//
//	go run ./test/bench/fairness --kubeconfig FILE
//
// A separate process generates the load. That process gets CPU time only when no other process
// needs it, as if the load came from another machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

type options struct {
	kubeconfig            string
	objects, lists, quiet int
	duration, pause       time.Duration
	noise                 bool
	suffix                string
}

func main() {
	var o options
	flag.StringVar(&o.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig file with administrator rights")
	flag.IntVar(&o.objects, "objects", 2000, "number of ConfigMaps of 1 kB that the noisy tenant lists")
	flag.IntVar(&o.lists, "lists", 500, "number of concurrent list requests of the noisy tenant")
	flag.IntVar(&o.quiet, "quiet", 4, "number of concurrent requests of the quiet tenant")
	flag.DurationVar(&o.duration, "duration", 10*time.Second, "how long each measurement takes")
	flag.DurationVar(&o.pause, "pause", 10*time.Millisecond, "pause between requests of the quiet tenant")
	flag.BoolVar(&o.noise, "noise", false, "for internal use: run as the process of the noisy tenant")
	flag.StringVar(&o.suffix, "suffix", strconv.Itoa(os.Getpid()), "suffix of the names of the created objects")
	flag.Parse()
	if err := run(context.Background(), o); err != nil {
		fmt.Fprintln(os.Stderr, "fairness:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return err
	}
	cfg.QPS = -1
	if o.noise {
		return noise(ctx, cfg, o)
	}
	admin, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	defer clean(ctx, admin, o)
	if err := prepare(ctx, admin, o); err != nil {
		return err
	}
	alone, err := measure(ctx, cfg, o)
	if err != nil {
		return err
	}
	fmt.Println("alone:     ", alone)
	child := exec.Command(os.Args[0], append([]string{"--noise", "--suffix", o.suffix}, os.Args[1:]...)...)
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	in, err := child.StdinPipe()
	if err != nil {
		return err
	}
	if err := child.Start(); err != nil {
		return err
	}
	time.Sleep(2 * time.Second) // until all lists are in progress
	beside, err := measure(ctx, cfg, o)
	err = errors.Join(err, in.Close(), child.Wait())
	fmt.Println("with noise:", beside)
	fmt.Printf("p99: %.2f times\n", float64(beside.p99)/float64(alone.p99))
	return err
}

// noisyTenant and quietTenant return the names of the two users. Each user has a namespace with the
// same name.
func (o options) noisyTenant() string { return "fairness-noisy-" + o.suffix }
func (o options) quietTenant() string { return "fairness-quiet-" + o.suffix }

// as returns a client configuration that impersonates a tenant's user.
func as(cfg *rest.Config, tenant string) *rest.Config {
	out := rest.CopyConfig(cfg)
	out.Impersonate = rest.ImpersonationConfig{UserName: tenant, Groups: []string{"system:authenticated"}}
	return out
}

func prepare(ctx context.Context, admin kubernetes.Interface, o options) error {
	for tenant, n := range map[string]int{o.noisyTenant(): o.objects, o.quietTenant(): 10} {
		if _, err := admin.CoreV1().Namespaces().Create(ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant}},
			metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		if _, err := admin.RbacV1().RoleBindings(tenant).Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: tenant},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: tenant}},
		}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		for i := range n {
			if _, err := admin.CoreV1().ConfigMaps(tenant).Create(ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c-%d", i)},
				Data:       map[string]string{"k": strings.Repeat("x", 1000)},
			}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
				return err
			}
		}
	}
	return nil
}

func clean(ctx context.Context, admin kubernetes.Interface, o options) {
	for _, tenant := range []string{o.noisyTenant(), o.quietTenant()} {
		_ = admin.CoreV1().ConfigMaps(tenant).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		_ = admin.CoreV1().Namespaces().Delete(ctx, tenant, metav1.DeleteOptions{})
	}
}

type result struct {
	n             int
	p50, p90, p99 time.Duration
	failed        int64
}

func (r result) String() string {
	return fmt.Sprintf("%d requests, p50 %s, p90 %s, p99 %s, %d failed", r.n, r.p50.Round(10*time.Microsecond),
		r.p90.Round(10*time.Microsecond), r.p99.Round(10*time.Microsecond), r.failed)
}

// measure sends the requests of the quiet tenant (gets, with and without the resource version 0, and
// small lists), and returns their latencies.
func measure(ctx context.Context, cfg *rest.Config, o options) (result, error) {
	client, err := kubernetes.NewForConfig(as(cfg, o.quietTenant()))
	if err != nil {
		return result{}, err
	}
	api := client.CoreV1().ConfigMaps(o.quietTenant())
	for { // retry until the server has loaded the users' roles
		_, err := api.List(ctx, metav1.ListOptions{})
		if err == nil {
			break
		}
		if !apierrors.IsForbidden(err) {
			return result{}, err
		}
		time.Sleep(o.pause)
	}
	var mu sync.Mutex
	var all []time.Duration
	var failed atomic.Int64
	var wg sync.WaitGroup
	end := time.Now().Add(o.duration)
	for w := range o.quiet {
		wg.Go(func() {
			name := fmt.Sprintf("c-%d", w)
			for i := 0; time.Now().Before(end); i++ {
				begin := time.Now()
				var err error
				switch i % 3 {
				case 0:
					_, err = api.Get(ctx, name, metav1.GetOptions{})
				case 1:
					_, err = api.List(ctx, metav1.ListOptions{})
				case 2:
					_, err = api.Get(ctx, name, metav1.GetOptions{ResourceVersion: "0"})
				}
				took := time.Since(begin)
				if err != nil {
					failed.Add(1)
				}
				mu.Lock()
				all = append(all, took)
				mu.Unlock()
				time.Sleep(o.pause)
			}
		})
	}
	wg.Wait()
	slices.Sort(all)
	at := func(q float64) time.Duration { return all[min(len(all)-1, int(q*float64(len(all))))] }
	return result{len(all), at(.5), at(.9), at(.99), failed.Load()}, nil
}

// yield puts all threads of the process into the idle scheduling class. The class can be set for
// one thread only, and new threads inherit it from the thread that starts them. Therefore the
// program executes itself again from the thread with the class.
func yield() error {
	runtime.LockOSThread()
	attr, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return fmt.Errorf("scheduling class: %w", err)
	}
	if attr.Policy == unix.SCHED_IDLE {
		runtime.UnlockOSThread()
		return nil
	}
	if err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0); err != nil {
		return fmt.Errorf("scheduling class: %w", err)
	}
	return syscall.Exec("/proc/self/exe", os.Args, os.Environ())
}

// noise sends the requests of the noisy tenant, as many concurrent lists as the options allow,
// until its standard input ends.
func noise(ctx context.Context, cfg *rest.Config, o options) error {
	if err := yield(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	client, err := rest.HTTPClientFor(as(cfg, o.noisyTenant()))
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	var done, refused atomic.Int64
	for range o.lists {
		wg.Go(func() {
			for ctx.Err() == nil {
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, cfg.Host+"/api/v1/namespaces/"+
					o.noisyTenant()+"/configmaps", nil)
				if err != nil {
					return
				}
				// With an explicit header, the client does not decompress responses, so that
				// generating the load costs little CPU time.
				r.Header.Set("Accept-Encoding", "gzip")
				resp, err := client.Do(r)
				if err != nil {
					continue
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode == http.StatusOK {
					done.Add(1)
				} else {
					refused.Add(1)
					time.Sleep(100 * time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
	fmt.Printf("noise: %d lists, %d refused\n", done.Load(), refused.Load())
	return nil
}
