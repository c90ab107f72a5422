// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package command_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"keelson.dev/apiserver/leaktest"
	"keelson.dev/apiserver/store/kv/etcd/embedded"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/scheduler/command"
)

var killPods = flag.Int("kill-pods", 300, "pods that are scheduled while the scheduler is killed")

// asScheduler is an environment variable. If it is set, the test binary runs as a scheduler whose
// arguments are the variable's value.
const asScheduler = "KEELSON_TEST_SCHEDULER"

func TestMain(m *testing.M) {
	if args := os.Getenv(asScheduler); args != "" {
		if err := command.New(plugins())(context.Background(), strings.Fields(args), os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	leaktest.Main(m)
}

// process starts a scheduler in a process of its own. The test's own process cannot run it, because
// the scheduler replaces the logger of Kubernetes' libraries.
func process(t *testing.T, kubeconfig string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	args = append(args, "--kubeconfig="+kubeconfig, "--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port=0")
	cmd.Env, cmd.Stderr = append(os.Environ(), asScheduler+"="+strings.Join(args, " ")), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// front starts a proxy between one scheduler and the API server. The scheduler needs no credentials
// for the proxy. If the scheduler is killed, writes that have reached the proxy are still
// completed; Close waits for them.
func front(t *testing.T, s *testserver.Server) *httptest.Server {
	t.Helper()
	transport, err := rest.TransportFor(s.UserConfig(t, "system:kube-scheduler"))
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport,
		FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
	}
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
			defer cancel()
			r = r.WithContext(ctx)
		}
		proxy.ServeHTTP(w, r)
	}))
}

// killable is a scheduler process with its proxy.
type killable struct {
	front   *httptest.Server
	process *exec.Cmd
}

func newKillable(t *testing.T, s *testserver.Server) *killable {
	t.Helper()
	f := front(t, s)
	return &killable{f, process(t, kubeconfig(t, f.URL))}
}

// kubeconfig writes a kubeconfig file without credentials and returns its path.
func kubeconfig(t *testing.T, server string) string {
	t.Helper()
	out := clientcmdapi.NewConfig()
	out.Clusters["c"] = &clientcmdapi.Cluster{Server: server}
	out.Contexts["x"] = &clientcmdapi.Context{Cluster: "c"}
	out.CurrentContext = "x"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*out, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// kill kills the process, and waits until the proxy has completed all its requests. Otherwise the
// next scheduler could place a pod on a node before a late binding fills that node.
func (k *killable) kill() {
	_ = k.process.Process.Kill()
	_ = k.process.Wait() // Wait returns an error, because the process was killed
	k.front.Close()
}

// TestKill kills the scheduler three times while it binds pods. It checks that every pod is bound,
// no pod is bound to two nodes, and no node gets more pods than fit.
func TestKill(t *testing.T) {
	s := testserver.Start(t, testserver.Options{Etcd: embedded.Start})
	c, ctx := s.Client, t.Context()
	if _, err := c.CoreV1().ServiceAccounts("default").Create(ctx,
		&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const perNode = 10
	for i := range (*killPods + perNode - 1) / perNode { // as many nodes as the pods fill
		addNode(t, c, fmt.Sprint("n", i), perNode)
	}
	scheduler := newKillable(t, s)
	defer func() { scheduler.kill() }()
	var creating sync.WaitGroup
	creating.Go(func() { createPods(ctx, t, c, *killPods) })
	nodes := map[string]string{}
	kills := 0
	followPods(ctx, t, c, func(pod *v1.Pod) bool {
		if before := nodes[pod.Name]; before != "" && pod.Spec.NodeName != before {
			t.Fatalf("pod %s was on %s and is on %s", pod.Name, before, pod.Spec.NodeName)
		}
		if pod.Spec.NodeName == "" {
			return true
		}
		nodes[pod.Name] = pod.Spec.NodeName
		if kills < 3 && len(nodes) > (kills+1)**killPods/5 {
			kills++
			scheduler.kill()
			scheduler = newKillable(t, s)
		}
		return len(nodes) < *killPods
	})
	creating.Wait()
	if len(nodes) != *killPods || kills != 3 {
		t.Fatalf("%d of %d pods are on nodes after %d kills", len(nodes), *killPods, kills)
	}
	count := map[string]int{}
	for _, node := range nodes {
		if count[node]++; count[node] > perNode {
			t.Errorf("node %s has more than %d pods", node, perNode)
		}
	}
}

// followPods calls a function for each pod and for each of its changes, until the function returns
// false. If the watch ends, it starts again with a new list.
func followPods(ctx context.Context, t *testing.T, c kubernetes.Interface, seen func(*v1.Pod) bool) {
	t.Helper()
	pods := c.CoreV1().Pods("default")
	for {
		list, err := pods.List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if !seen(&list.Items[i]) {
				return
			}
		}
		w, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
		if err != nil {
			t.Fatal(err)
		}
		for event := range w.ResultChan() {
			pod, ok := event.Object.(*v1.Pod)
			if !ok {
				break
			}
			if event.Type == watch.Deleted {
				t.Fatalf("pod %s was deleted", pod.Name)
			}
			if !seen(pod) {
				w.Stop()
				return
			}
		}
		w.Stop()
	}
}

func createPods(ctx context.Context, t *testing.T, c kubernetes.Interface, pods int) {
	var clients sync.WaitGroup
	for client := range 8 {
		clients.Go(func() {
			for i := client; i < pods; i += 8 {
				_, err := c.CoreV1().Pods("default").Create(ctx, &v1.Pod{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i)},
					Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "i"}}},
				}, metav1.CreateOptions{})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	clients.Wait()
}

func addNode(t *testing.T, c kubernetes.Interface, name string, pods int64) {
	t.Helper()
	n, err := c.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.Spec.Taints = nil // remove the taint node.kubernetes.io/not-ready, which new nodes get
	if n, err = c.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	n.Status.Allocatable = v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("32"), v1.ResourceMemory: resource.MustParse("64Gi"),
		v1.ResourcePods: *resource.NewQuantity(pods, resource.DecimalSI),
	}
	n.Status.Capacity = n.Status.Allocatable
	if _, err := c.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}
