// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	clusterName = "e2e"
	nodes       = 2
	patience    = 3 * time.Minute
)

// lab has the paths and the client of the cluster that all tests share.
type lab struct {
	dir, ctl, kubeconfig string
	client               kubernetes.Interface
}

var shared *lab

func TestMain(m *testing.M) {
	if os.Getenv("KEELSON_E2E") == "" {
		fmt.Println("KEELSON_E2E is not set: the tests do not run")
		return
	}
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "keelson-e2e-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	ctl, err := filepath.Abs("../../bin/ctl")
	if err != nil {
		return 1, err
	}
	shared = &lab{dir: dir, ctl: ctl, kubeconfig: filepath.Join(dir, "kubeconfig")}
	defer func() {
		if out, err := exec.Command(ctl, "cluster", "down", "--name", clusterName).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "cluster down: %v\n%s", err, out)
		}
	}()
	up := exec.Command(ctl, "cluster", "up", "--name", clusterName, "--nodes", fmt.Sprint(nodes), "--ingress",
		"--kubeconfig", shared.kubeconfig, "--data-dir", filepath.Join(dir, "data"))
	up.Stdout, up.Stderr = os.Stdout, os.Stderr
	if err := up.Run(); err != nil {
		return 1, fmt.Errorf("cluster up: %w", err)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", shared.kubeconfig)
	if err != nil {
		return 1, err
	}
	cfg.QPS = -1
	if shared.client, err = kubernetes.NewForConfig(cfg); err != nil {
		return 1, err
	}
	code := m.Run()
	if code != 0 {
		shared.printState()
	}
	return code, nil
}

// printState prints nodes, pods and events to help find the cause of a failure.
func (l *lab) printState() {
	for _, args := range [][]string{{"get", "nodes,pods", "-A", "-o", "wide"}, {"get", "events", "-A"}} {
		out, _ := l.command(context.Background(), args...).CombinedOutput()
		fmt.Printf("--- %s\n%s\n", strings.Join(args, " "), out)
	}
	logs, _ := filepath.Glob(filepath.Join(l.dir, "data", "logs", "*.log"))
	more, _ := filepath.Glob(filepath.Join(l.dir, "data", "nodes", "*", "var", "log", "*.log"))
	for _, file := range append(logs, more...) {
		b, err := os.ReadFile(file)
		if err == nil && !strings.HasSuffix(file, "containerd.log") {
			fmt.Printf("--- end of %s\n%s\n", filepath.Base(file), b[max(len(b)-2000, 0):])
		}
	}
}

// command returns a command that runs ctl with the shared cluster's kubeconfig.
func (l *lab) command(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, l.ctl, args...)
	c.Env = append(os.Environ(), "KUBECONFIG="+l.kubeconfig, "HOME="+l.dir)
	return c
}

// ctl runs ctl on the shared cluster and returns its output. The test fails if ctl fails.
func ctl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := try(t, "", args...)
	if err != nil {
		t.Fatalf("ctl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// try runs ctl with stdin as its input, and returns its output and error. It is for commands that
// may fail.
func try(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := shared.command(ctx, args...)
	c.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	return out.String(), err
}

// downAtEnd ends the cluster when the test is over, even if it failed.
func downAtEnd(t *testing.T, name string) {
	t.Helper()
	t.Cleanup(func() { // t.Context() has already ended in a cleanup function
		out, err := shared.command(context.Background(), "cluster", "down", "--name", name).CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// eventually calls ok repeatedly until it returns true. If that takes too long, the test fails with
// a message that contains what.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("still waiting after %v: %s", patience, what)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// namespace creates a namespace for a test, and waits for its default service account.
func namespace(t *testing.T, name string) string {
	t.Helper()
	ctl(t, "create", "namespace", name)
	t.Cleanup(func() {
		_ = shared.client.CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	eventually(t, "service account of "+name, func() bool {
		_, err := shared.client.CoreV1().ServiceAccounts(name).Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
	return name
}

// pods returns the pods of a namespace that match a label selector.
func pods(t *testing.T, namespace, selector string) []v1.Pod {
	t.Helper()
	list, err := shared.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func ready(p *v1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady {
			return c.Status == v1.ConditionTrue && p.DeletionTimestamp == nil
		}
	}
	return false
}

func readyPods(t *testing.T, namespace, selector string) int {
	t.Helper()
	n := 0
	for _, p := range pods(t, namespace, selector) {
		if ready(&p) {
			n++
		}
	}
	return n
}

// pids returns the process IDs of the shared cluster's processes by name.
func pids(t *testing.T) map[string]int {
	t.Helper()
	out := ctl(t, "cluster", "pids", "--name", clusterName, "-o", "json")
	var all map[string]int
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return all
}
