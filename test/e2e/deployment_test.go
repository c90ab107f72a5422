// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestDeployment creates, changes, scales and deletes a Deployment with the commands that users
// run.
func TestDeployment(t *testing.T) {
	ns := namespace(t, "life")
	n := func(args ...string) []string { return append([]string{"-n", ns}, args...) }

	began := time.Now()
	if out, err := try(t, webManifest, n("create", "-f", "-")...); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	eventually(t, "2 pods ready", func() bool { return readyPods(t, ns, "app=nginx") == 2 })
	t.Logf("2/2 ready %v after create", time.Since(began).Round(time.Millisecond))
	on := map[string]int{}
	for _, p := range pods(t, ns, "app=nginx") {
		on[p.Spec.NodeName]++
	}
	if len(on) != 2 {
		t.Errorf("pods by node: %v, want one on each", on)
	}
	ctl(t, n("expose", "deployment", "nginx-deployment", "--port=80")...)
	l := startLoop(t, ns)

	t.Run("name and address answer from both replicas", func(t *testing.T) {
		eventually(t, "answers of both", func() bool {
			answers, _, _ := l.read(t)
			return len(answers) == 2
		})
		ip := strings.TrimSpace(ctl(t, n("get", "service", "nginx-deployment", "-o", "jsonpath={.spec.clusterIP}")...))
		ctl(t, n("exec", "loop", "--", "wget", "-q", "-O", "-", "http://"+ip+"/hostname")...)
		ctl(t, n("exec", "loop", "--", "nslookup", "nginx-deployment."+ns+".svc.cluster.local")...)
	})
	t.Run("scale to 10", func(t *testing.T) {
		ctl(t, n("scale", "deployment", "nginx-deployment", "--replicas=10")...)
		ctl(t, n("rollout", "status", "deployment", "nginx-deployment")...)
		if got := readyPods(t, ns, "app=nginx"); got != 10 {
			t.Errorf("%d pods ready, want 10", got)
		}
		l.check(t, "scaling")
	})
	t.Run("rolling update and undo lose no request", func(t *testing.T) {
		ctl(t, n("set", "image", "deployment/nginx-deployment", "nginx=nginx:1.27")...)
		ctl(t, n("rollout", "status", "deployment", "nginx-deployment")...)
		l.check(t, "rolling update")
		ctl(t, n("rollout", "undo", "deployment", "nginx-deployment")...)
		ctl(t, n("rollout", "status", "deployment", "nginx-deployment")...)
		l.check(t, "undo")
		for _, p := range pods(t, ns, "app=nginx") {
			if p.DeletionTimestamp == nil && p.Spec.Containers[0].Image != "nginx:1.7.9" {
				t.Errorf("pod %s runs %s after the undo", p.Name, p.Spec.Containers[0].Image)
			}
		}
		ctl(t, n("scale", "deployment", "nginx-deployment", "--replicas=2")...)
		eventually(t, "2 pods left", func() bool { return len(pods(t, ns, "app=nginx")) == 2 })
		l.check(t, "scaling down")
	})
	pod := pods(t, ns, "app=nginx")[0].Name
	t.Run("logs -f", func(t *testing.T) { followLogs(t, ns) })
	t.Run("exec -it", func(t *testing.T) { execTerminal(t, ns, pod) })
	t.Run("port-forward", func(t *testing.T) { portForward(t, ns) })
	t.Run("cp", func(t *testing.T) { copyFiles(t, ns, pod) })
	t.Run("top", func(t *testing.T) {
		eventually(t, "figures of the pod", func() bool {
			out, err := try(t, "", n("top", "pod", pod, "--no-headers")...)
			return err == nil && strings.HasPrefix(out, pod)
		})
	})
	t.Run("describe", func(t *testing.T) {
		out := ctl(t, n("describe", "pod", pod)...)
		for _, want := range []string{"Successfully assigned " + ns + "/" + pod, "Container started",
			"Ready             True", "Controlled By:  ReplicaSet/nginx-deployment-"} {
			if !strings.Contains(out, want) {
				t.Errorf("describe pod does not say %q:\n%s", want, out)
			}
		}
		if out = ctl(t, n("describe", "deployment", "nginx-deployment")...); !strings.Contains(out,
			"ScalingReplicaSet") || !strings.Contains(out, "NewReplicaSetAvailable") {
			t.Errorf("describe deployment:\n%s", out)
		}
	})
	t.Run("delete", func(t *testing.T) {
		ctl(t, n("delete", "deployment", "nginx-deployment")...)
		eventually(t, "no pods left", func() bool { return len(pods(t, ns, "app=nginx")) == 0 })
		ctl(t, "delete", "namespace", ns)
	})
}

func followLogs(t *testing.T, ns string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := shared.command(ctx, "-n", ns, "logs", "-f", "--tail=1", "loop")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for i := range 20 {
		if !lines.Scan() {
			t.Fatalf("log ended after %d lines: %v", i, lines.Err())
		}
	}
	cancel()
	_ = c.Wait()
}

// execTerminal runs "ctl exec -it" with a shell in a pod, connected to a pseudo-terminal.
func execTerminal(t *testing.T, ns, pod string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	line := fmt.Sprintf("%s -n %s exec -it %s -- sh", shared.ctl, ns, pod)
	c := exec.CommandContext(ctx, "script", "-qec", line, "/dev/null")
	c.Env = append(os.Environ(), "KUBECONFIG="+shared.kubeconfig, "TERM=xterm")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, "tty; echo answer-$((6*7)); exit\n"); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	if err := c.Wait(); err != nil {
		t.Errorf("%v\n%s", err, got)
	}
	if s := string(got); !strings.Contains(s, "/dev/pts/") || !strings.Contains(s, "answer-42") {
		t.Errorf("at the terminal:\n%s", got)
	}
}

func portForward(t *testing.T, ns string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := shared.command(ctx, "-n", ns, "port-forward", "deployment/nginx-deployment", ":80")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = c.Wait() }()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`127\.0\.0\.1:(\d+) -> 80`).FindStringSubmatch(line)
	if m == nil {
		t.Fatalf("port-forward says %q", line)
	}
	for range 3 {
		resp, err := http.Get("http://127.0.0.1:" + m[1] + "/hostname")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || !strings.HasPrefix(string(body), "nginx-deployment-") {
			t.Errorf("answer %q, error %v", body, err)
		}
	}
}

func copyFiles(t *testing.T, ns, pod string) {
	dir := t.TempDir()
	text := strings.Repeat("a line that is copied\n", 10000)
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	ctl(t, "-n", ns, "cp", filepath.Join(dir, "file"), pod+":/tmp/file")
	ctl(t, "-n", ns, "cp", pod+":/tmp/file", filepath.Join(dir, "back"))
	back, err := os.ReadFile(filepath.Join(dir, "back"))
	if err != nil || string(back) != text {
		t.Errorf("%d bytes were copied back, want %d; error %v", len(back), len(text), err)
	}
}
