// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson.dev/keelson/pkg/cluster"
)

// inventory is a set of things that exist in a cluster but belong to none of its pods and Services.
// Each thing is a line that begins with the name of its node, if it is on a node, and its kind.
type inventory map[string]bool

// settled waits until everything in the inventory is also in the baseline, and returns the inventory.
// Without a baseline, it returns the first inventory that it can take.
func (s *soak) settled(baseline inventory) inventory {
	s.t.Helper()
	var now inventory
	s.eventually("nothing is left over", func(ctx context.Context) error {
		var err error
		now, err = s.takeInventory(ctx)
		if err != nil || baseline == nil {
			return err
		}
		var left []string
		for line := range now {
			if !baseline[line] {
				left = append(left, line)
			}
		}
		if len(left) == 0 {
			return nil
		}
		slices.Sort(left)
		return fmt.Errorf("%d leaks:\n%s", len(left), strings.Join(left[:min(len(left), 100)], "\n"))
	})
	return now
}

// alive has the names of things that are in use. A line of the inventory that contains one of these
// names is not a leak.
type alive struct {
	ids       map[string]bool
	addresses map[netip.Addr]bool
}

func (a *alive) owns(line string) bool {
	for id := range a.ids {
		if strings.Contains(line, id) {
			return true
		}
	}
	return false
}

func (s *soak) takeInventory(ctx context.Context) (inventory, error) {
	st, err := s.status(ctx)
	if err != nil {
		return nil, err
	}
	found := inventory{}
	live := &alive{addresses: map[netip.Addr]bool{}}
	if err := s.objects(ctx, found, live); err != nil {
		return nil, err
	}
	for _, n := range st.Nodes {
		if err := s.nodeInventory(ctx, n, live, found); err != nil {
			return nil, fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	return found, s.machineInventory(found)
}

// objects adds the API objects that may be leaks to the inventory found, and the addresses in use to
// live.
func (s *soak) objects(ctx context.Context, found inventory, live *alive) error {
	services, err := s.client.CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	held := map[string]bool{}
	for _, svc := range services.Items {
		for _, text := range svc.Spec.ClusterIPs {
			held[text] = true
			if a, err := netip.ParseAddr(text); err == nil {
				live.addresses[a] = true
			}
		}
	}
	addresses, err := s.client.NetworkingV1().IPAddresses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, a := range addresses.Items {
		if !held[a.Name] {
			found["address object "+a.Name] = true
		}
		delete(held, a.Name)
	}
	for a := range held {
		if a != "None" {
			found["service without address object: "+a] = true
		}
	}
	pvs, err := s.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, pv := range pvs.Items {
		found["persistent volume "+pv.Name] = true
	}
	attachments, err := s.client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, a := range attachments.Items {
		found["volume attachment "+a.Name] = true
	}
	namespaces, err := s.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, ns := range namespaces.Items {
		found["namespace "+ns.Name] = true
	}
	return nil
}

// nodeScript lists the things on a node that may be leaks, one thing per line. It removes containerd's leases that
// expire: containerd leaves them behind if it is killed while it works on an image, and they expire
// after a day.
const nodeScript = `
ctr leases ls | awk '/gc.expire=/ { print $1 }' | xargs -r ctr leases rm >/dev/null
ctr containers ls -q | sed 's/^/container /'
ctr tasks ls -q | sed 's/^/task /'
ctr snapshots ls | awk '$3 == "Active" { print "snapshot " $1 }'
awk '{ print "mount " $5 }' /proc/self/mountinfo
ls /run/netns | sed 's/^/netns /'
ls /sys/class/net | sed 's/^/link /'
for f in /var/lib/cni/networks/*/*; do case ${f##*/} in lock|last_reserved*) ;; *) echo "address $f $(head -n 1 "$f" | tr -d '\r')" ;; esac; done
ls /var/lib/cni/results | sed 's/^/cni result /'
find /sys/fs/cgroup/*/keelson/CLUSTER/NODE -type d | sed 's/^/cgroup /'
ls -d /var/lib/kubelet/pods/* /var/log/pods/* /var/log/containers/* /var/lib/kubelet/*/* /var/lib/kubelet/plugins/kubernetes.io/csi/*/* 2>/dev/null | grep -v -e /pki/ -e /plugins/kubernetes.io$ | sed 's/^/file /'
cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' | awk 'id { print "shim " $0; id = 0 } $0 == "-id" { id = 1 }'
nft list ruleset | grep -oE '10\.(244|96)\.[0-9]+\.[0-9]+(/[0-9]+)?' | sort -u | sed 's/^/rule with /'
`

// nodeInventory adds everything on a node that belongs to none of the node's pods to the inventory
// found.
func (s *soak) nodeInventory(ctx context.Context, n cluster.NodeStatus, live *alive, found inventory) error {
	if n.Pid == 0 {
		return errors.New("does not run")
	}
	// First list what exists, and then what is in use. In the other order, things that are created
	// in between would count as leaks.
	script := strings.NewReplacer("CLUSTER", clusterName, "NODE", n.Name).Replace(nodeScript)
	cmd := exec.CommandContext(ctx, s.ctl, "cluster", "exec", "--name", clusterName, n.Name, "--", "sh", "-c", script)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%w: %s", err, stderr.String())
	}
	owners, err := s.owners(ctx, n, live.addresses)
	if err != nil {
		return err
	}
	links, spaces := 0, 0
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		kind, rest, _ := strings.Cut(line, " ")
		switch {
		case kind == "link" && strings.HasPrefix(rest, "veth"):
			links++
			continue
		case kind == "netns", strings.HasPrefix(line, "mount /run/netns/"):
			if kind == "netns" {
				spaces++
			}
			continue
		case strings.HasPrefix(line, "rule with ") && owners.addressed(strings.TrimPrefix(line, "rule with ")):
			continue
		case owners.owns(line):
			continue
		}
		found[n.Name+" "+line] = true
	}
	for what, have := range map[string]int{"links": links, "network namespaces": spaces} {
		if have != owners.networks {
			found[fmt.Sprintf("%s has %d %s of pods for %d sandboxes", n.Name, have, what, owners.networks)] = true
		}
	}
	return nil
}

// owners has the pods of a node, with their sandboxes and containers. Everything on the node must
// belong to one of them.
type owners struct {
	alive
	// networks is the number of sandboxes that have a network namespace of their own.
	networks int
}

// addressed reports whether text is an address in use or an address range.
func (o *owners) addressed(text string) bool {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return true // ranges come from the configuration, so they are no leaks
	}
	// The first address of a node's range belongs to the node's bridge.
	return o.addresses[a] || a.As4()[3] <= 1
}

func (s *soak) owners(ctx context.Context, n cluster.NodeStatus, services map[netip.Addr]bool) (*owners, error) {
	o := &owners{alive: alive{ids: map[string]bool{}, addresses: maps.Clone(services)}}
	pods, err := s.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	uids := map[string]bool{}
	for _, p := range pods.Items {
		for _, ip := range p.Status.PodIPs {
			if a, err := netip.ParseAddr(ip.IP); err == nil {
				o.addresses[a] = true
			}
		}
		if p.Spec.NodeName == n.Name {
			uids[string(p.UID)], o.ids[string(p.UID)] = true, true
		}
	}
	conn, err := grpc.NewClient(fmt.Sprintf("unix:///proc/%d/root/run/containerd/containerd.sock", n.Pid),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	runtime := cri.NewRuntimeServiceClient(conn)
	sandboxes, err := runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return nil, err
	}
	for _, box := range sandboxes.Items {
		if !uids[box.Metadata.Uid] {
			continue
		}
		o.ids[box.Id] = true
		if box.State != cri.PodSandboxState_SANDBOX_READY {
			continue
		}
		status, err := runtime.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: box.Id})
		if err != nil {
			return nil, err
		}
		if status.Status.GetLinux().GetNamespaces().GetOptions().GetNetwork() == cri.NamespaceMode_POD {
			o.networks++
		}
	}
	containers, err := runtime.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return nil, err
	}
	for _, c := range containers.Containers {
		if o.ids[c.PodSandboxId] {
			o.ids[c.Id] = true
		}
	}
	return o, nil
}

// machineInventory adds everything that the cluster has created on the machine outside its nodes to
// the inventory found.
func (s *soak) machineInventory(found inventory) error {
	backing, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return err
	}
	for _, file := range backing {
		data, err := os.ReadFile(file)
		if err == nil && (bytes.Contains(data, []byte(s.dir)) || bytes.Contains(data, []byte(volumes))) {
			found["loop device of "+strings.TrimSpace(string(data))] = true
		}
	}
	var kept []string
	for _, pattern := range []string{"/volumes/*", "/nodes/*/*"} {
		files, err := filepath.Glob(volumes + pattern)
		if err != nil {
			return err
		}
		kept = append(kept, files...)
	}
	for _, file := range kept {
		found["volume "+file] = true
	}
	return nil
}
