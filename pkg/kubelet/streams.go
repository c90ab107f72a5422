// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/server"
)

// streams returns the URLs of the runtime's streaming endpoints, for exec, attach and port-forward
// requests.
type streams struct {
	cfg    Config
	client *cri.Client
}

var _ server.Runtime = (*streams)(nil)

// running returns the ID of the pod's running container with this name. It returns an error if the
// container does not run.
func (s *streams) running(ctx context.Context, pod *v1.Pod, container string) (string, error) {
	seen, err := s.client.Pod(ctx, pod.UID)
	if err != nil {
		return "", err
	}
	run := seen.Latest(container)
	if run == nil || run.State != cri.Running {
		return "", fmt.Errorf("container not found (%q)", container)
	}
	return run.ID, nil
}

// Exec implements server.Runtime. It returns the URL at which the runtime runs the command.
func (s *streams) Exec(ctx context.Context, pod *v1.Pod, container string, command []string,
	o server.StreamOptions) (*url.URL, error) {
	id, err := s.running(ctx, pod, container)
	if err != nil {
		return nil, err
	}
	resp, err := s.client.Runtime.Exec(ctx, &runtimeapi.ExecRequest{
		ContainerId: id, Cmd: command, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY,
	})
	if err != nil {
		return nil, err
	}
	return url.Parse(resp.Url)
}

// Attach implements server.Runtime. It returns the URL at which the runtime attaches to the
// container.
func (s *streams) Attach(ctx context.Context, pod *v1.Pod, container string, o server.StreamOptions) (*url.URL, error) {
	id, err := s.running(ctx, pod, container)
	if err != nil {
		return nil, err
	}
	resp, err := s.client.Runtime.Attach(ctx, &runtimeapi.AttachRequest{
		ContainerId: id, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY,
	})
	if err != nil {
		return nil, err
	}
	return url.Parse(resp.Url)
}

// PortForward implements server.Runtime. It returns the URL at which the runtime forwards ports of
// the pod.
func (s *streams) PortForward(ctx context.Context, pod *v1.Pod, ports []int32) (*url.URL, error) {
	seen, err := s.client.Pod(ctx, pod.UID)
	if err != nil {
		return nil, err
	}
	box := seen.Sandbox()
	if box == nil || !box.Ready {
		return nil, fmt.Errorf("pod %s is not running", cri.Describe(pod))
	}
	resp, err := s.client.Runtime.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: box.ID, Port: ports})
	if err != nil {
		return nil, err
	}
	return url.Parse(resp.Url)
}

// maxFileName is the maximum length of a file name in bytes.
const maxFileName = 255

// checkpointName returns the file name for a container's checkpoint. It truncates the pod's name if
// the file name would become too long.
func checkpointName(pod *v1.Pod, container string, at time.Time) string {
	rest := fmt.Sprintf("_%s-%s-%s.tar", pod.Namespace, container, at.Format(time.RFC3339))
	name := "checkpoint-" + pod.Name
	return name[:min(len(name), maxFileName-len(rest))] + rest
}

// Checkpoint implements server.Runtime. It makes the runtime write a checkpoint of the container
// and returns the path of the file.
func (s *streams) Checkpoint(ctx context.Context, pod *v1.Pod, container string, seconds int64) (string, error) {
	id, err := s.running(ctx, pod, container)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(s.cfg.RootDir, "checkpoints")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	file := filepath.Join(dir, checkpointName(pod, container, s.cfg.Clock.Now()))
	_, err = s.client.Runtime.CheckpointContainer(ctx, &runtimeapi.CheckpointContainerRequest{ContainerId: id,
		Location: file, Timeout: seconds})
	return file, err
}

// Run implements server.Runtime. It runs the command and returns its output.
func (s *streams) Run(ctx context.Context, pod *v1.Pod, container string, command []string) ([]byte, error) {
	id, err := s.running(ctx, pod, container)
	if err != nil {
		return nil, err
	}
	resp, err := s.client.Run(ctx, id, command, 0)
	if err != nil {
		return nil, err
	}
	out := append(resp.Stdout, resp.Stderr...)
	if resp.ExitCode != 0 {
		return out, fmt.Errorf("command exited with %d", resp.ExitCode)
	}
	return out, nil
}
