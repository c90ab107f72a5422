// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// stateListen marks a listening socket in the column st of /proc/PID/net/tcp.
const stateListen = "0A"

// Listening implements worker.RuntimeState. It reports whether the container listens on all the
// given TCP ports, according to the kernel's socket tables. If the container's process is not
// found, it returns true, so that the container does not wait for a state that the kubelet cannot
// observe.
func (r *runtime) Listening(ctx context.Context, id string, ports []int32) bool {
	pid, err := r.pid(ctx, id)
	if err != nil {
		return true
	}
	open := map[int32]bool{}
	for _, table := range []string{"tcp", "tcp6"} {
		f, err := os.Open(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			continue // the kernel does not support this address family, or the process has just ended
		}
		listeners(f, open)
		_ = f.Close()
	}
	for _, p := range ports {
		if !open[p] {
			return false
		}
	}
	return true
}

// listeners reads one of the kernel's socket tables, and adds the ports of all listening sockets to
// the map open.
func listeners(table io.Reader, open map[int32]bool) {
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		// Each line has these columns: sl local_address rem_address st...
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || fields[3] != stateListen {
			continue
		}
		_, hex, _ := strings.Cut(fields[1], ":")
		if port, err := strconv.ParseInt(hex, 16, 32); err == nil {
			open[int32(port)] = true
		}
	}
}

// pid returns the ID of a running container's first process.
func (r *runtime) pid(ctx context.Context, id string) (int, error) {
	resp, err := r.client.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return 0, err
	}
	var info struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal([]byte(resp.GetInfo()["info"]), &info); err != nil {
		return 0, err
	}
	if info.PID == 0 {
		return 0, fmt.Errorf("container %s: the runtime does not report its process", id)
	}
	return info.PID, nil
}
