// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/kubelet/source"
)

// podOf returns a pod with one container, to which the given changes were applied.
func podOf(uid types.UID, change ...func(*v1.Pod)) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: string(uid), UID: uid},
		Spec:       v1.PodSpec{NodeName: "n", Containers: []v1.Container{{Name: "c"}}},
	}
	for _, f := range change {
		f(pod)
	}
	return pod
}

func asks(name v1.ResourceName, amount string) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		r := &pod.Spec.Containers[0].Resources
		if r.Requests == nil {
			r.Requests = v1.ResourceList{}
		}
		r.Requests[name] = resource.MustParse(amount)
	}
}

// claimed makes a resource claim provide the extended resource to the pod's container.
func claimed(name string) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{
			ResourceClaimName: "special", RequestMappings: []v1.ContainerExtendedResourceRequest{
				{ContainerName: "c", ResourceName: name, RequestName: "r"},
			}}
	}
}

func wantsPort(number int32, ip string, p v1.Protocol) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.Spec.Containers[0].Ports = append(pod.Spec.Containers[0].Ports,
			v1.ContainerPort{HostPort: number, HostIP: ip, Protocol: p})
	}
}

func TestCheck(t *testing.T) {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"disk": "fast"}}}
	tainted := node.DeepCopy()
	tainted.Spec.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoExecute},
		{Key: "other", Effect: v1.TaintEffectNoSchedule}}
	limits := v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Gi"),
		v1.ResourcePods:      resource.MustParse("2"),
		"example.com/gadget": resource.MustParse("1"),
	}
	strict, unconfined := v1.SupplementalGroupsPolicyStrict, v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}
	for _, tc := range []struct {
		name            string
		pod             *v1.Pod
		others          []*v1.Pod
		node            *v1.Node
		reason, message string
	}{
		{name: "no requests", pod: podOf("a")},
		{name: "fits exactly", pod: podOf("a", asks(v1.ResourceCPU, "1500m")),
			others: []*v1.Pod{podOf("b", asks(v1.ResourceCPU, "500m"))}},
		{
			name: "CPU", pod: podOf("a", asks(v1.ResourceCPU, "1501m"), asks(v1.ResourceMemory, "2Gi")),
			others: []*v1.Pod{podOf("b", asks(v1.ResourceCPU, "500m"))},
			reason: "OutOfcpu", message: "Node didn't have enough resource: cpu, requested: 1501, used: 500, capacity: 2000",
		},
		{
			name: "memory", pod: podOf("a", asks(v1.ResourceMemory, "2Gi")),
			reason:  "OutOfmemory",
			message: "Node didn't have enough resource: memory, requested: 2147483648, used: 0, capacity: 1073741824",
		},
		{
			name: "number of pods", pod: podOf("a"), others: []*v1.Pod{podOf("b"), podOf("c")},
			reason: "OutOfpods", message: "Node didn't have enough resource: pods, requested: 1, used: 2, capacity: 2",
		},
		{
			name: "extended resource", pod: podOf("a", asks("example.com/gadget", "1")),
			others:  []*v1.Pod{podOf("b", asks("example.com/gadget", "1"))},
			reason:  "OutOfexample.com/gadget",
			message: "Node didn't have enough resource: example.com/gadget, requested: 1, used: 1, capacity: 1",
		},
		{
			name:   "extended resource from a claim",
			pod:    podOf("a", asks("example.com/gadget", "2"), claimed("example.com/gadget")),
			others: []*v1.Pod{podOf("b", asks("example.com/gadget", "1"))},
		},
		{
			name: "extended resource of another pod from a claim", pod: podOf("a", asks("example.com/gadget", "1")),
			others: []*v1.Pod{podOf("b", asks("example.com/gadget", "1"), claimed("example.com/gadget"))},
		},
		{name: "extended resource unknown to the node", pod: podOf("a", asks("example.com/cloud", "1"))},
		{
			name: "selector", pod: podOf("a", func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "slow"} }),
			reason: "NodeAffinity", message: "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
		},
		{
			name: "name", pod: podOf("a", func(p *v1.Pod) { p.Spec.NodeName = "m" }),
			reason: "NodeName", message: "Predicate NodeName failed: node(s) didn't match the requested node name",
		},
		{
			name: "port on all addresses", pod: podOf("a", wantsPort(80, "", "")),
			others:  []*v1.Pod{podOf("b", wantsPort(80, "192.0.2.1", v1.ProtocolTCP))},
			reason:  "NodePorts",
			message: "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
		},
		{name: "port of another protocol", pod: podOf("a", wantsPort(80, "", v1.ProtocolUDP)),
			others: []*v1.Pod{podOf("b", wantsPort(80, "", v1.ProtocolTCP))}},
		{name: "port on another address", pod: podOf("a", wantsPort(80, "192.0.2.2", "")),
			others: []*v1.Pod{podOf("b", wantsPort(80, "192.0.2.1", ""))}},
		{
			name: "taint", pod: podOf("a"), node: tainted,
			reason:  "TaintToleration",
			message: "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
		},
		{name: "tolerated taint", node: tainted, pod: podOf("a", func(p *v1.Pod) {
			p.Spec.Tolerations = []v1.Toleration{{Key: "k", Operator: v1.TolerationOpExists}}
		})},
		{name: "taint and a static pod", node: tainted,
			pod: podOf("a", func(p *v1.Pod) { p.Annotations = map[string]string{source.AnnotationSource: source.File} })},
		{
			name: "OS field", pod: podOf("a", func(p *v1.Pod) { p.Spec.OS = &v1.PodOS{Name: v1.Windows} }),
			reason: "PodOSNotSupported", message: "Failed to admit pod as the OS field doesn't match node OS",
		},
		{
			name: "OS label", pod: podOf("a", func(p *v1.Pod) { p.Labels = map[string]string{v1.LabelOSStable: "windows"} }),
			reason:  "PodOSSelectorNodeLabelDoesNotMatch",
			message: "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
		},
		{
			name: "strict groups",
			pod: podOf("a", func(p *v1.Pod) {
				p.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroupsPolicy: &strict}
			}),
			reason:  "SupplementalGroupsPolicyNotSupported",
			message: "SupplementalGroupsPolicy=Strict is not supported in this node",
		},
		{
			name: "AppArmor", pod: podOf("a", func(p *v1.Pod) {
				p.Spec.SecurityContext = &v1.PodSecurityContext{
					AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}}
			}),
			reason: "AppArmor", message: "Cannot enforce AppArmor: AppArmor is not enabled on the host",
		},
		{name: "no AppArmor profile",
			pod: podOf("a", func(p *v1.Pod) { p.Spec.SecurityContext = &v1.PodSecurityContext{AppArmorProfile: &unconfined} })},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.node == nil {
				tc.node = node
			}
			got := Check(tc.pod, tc.others, Node{Object: tc.node, Allocatable: limits})
			switch {
			case tc.reason == "" && got != nil:
				t.Errorf("refused: %+v", *got)
			case tc.reason != "" && (got == nil || *got != Refusal{Reason: tc.reason, Message: tc.message}):
				t.Errorf("got %+v, want %s: %s", got, tc.reason, tc.message)
			}
		})
	}
}

func TestSysctls(t *testing.T) {
	s, err := NewSysctls("4.14.0-generic",
		[]string{"kernel.msg*", "net.core.somaxconn", "user.max_pid_namespaces", "user.max_n*"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name    string
		host    bool // the pod uses the host's IPC, network and user namespaces
		message string
	}{
		{"kernel.shm_rmid_forced", false, ""},
		{"kernel/shm_rmid_forced", false, ""},
		{"kernel.shm_rmid_forced", true, `forbidden sysctl: "kernel.shm_rmid_forced" not allowed with host IPC enabled`},
		{"net.ipv4.tcp_syncookies", true, `forbidden sysctl: "net.ipv4.tcp_syncookies" not allowed with host Net enabled`},
		{"kernel.msgmax", false, ""},
		{"net.core.somaxconn", false, ""},
		{"vm.swappiness", false, `forbidden sysctl: "vm.swappiness" not allowlisted`},
		// Before kernel 4.15, this sysctl is not namespaced.
		{"net.ipv4.tcp_rmem", false, `forbidden sysctl: "net.ipv4.tcp_rmem" not allowlisted`},
		{"net.ipv4.tcp_fin_timeout", false, ""},
		{"user.max_pid_namespaces", false, ""},
		{"user.max_pid_namespaces", true, `forbidden sysctl: "user.max_pid_namespaces" not allowed with host User enabled`},
		{"user.max_net_namespaces", true, `forbidden sysctl: "user.max_net_namespaces" not allowed with host User enabled`},
	} {
		pod := podOf("a", func(p *v1.Pod) {
			p.Spec.HostIPC, p.Spec.HostNetwork, p.Spec.HostUsers = tc.host, tc.host, &tc.host
			p.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: tc.name, Value: "1"}}}
		})
		got := s.Check(pod)
		switch {
		case tc.message == "" && got != nil:
			t.Errorf("%s: refused: %+v", tc.name, *got)
		case tc.message != "" && (got == nil || *got != Refusal{Reason: "SysctlForbidden", Message: tc.message}):
			t.Errorf("%s: got %+v, want %s", tc.name, got, tc.message)
		}
	}
	// A pod that does not set hostUsers uses the host's user namespace.
	if got := s.Check(podOf("a", func(p *v1.Pod) {
		p.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: "user.max_pid_namespaces", Value: "1"}}}
	})); got == nil {
		t.Error("a sysctl of the host's user namespace was allowed")
	}
	if _, err := NewSysctls("6.1", []string{"vm.swappiness"}); err == nil {
		t.Error("a sysctl of the whole machine was allowed")
	}
}

func TestOutdated(t *testing.T) {
	for reason, want := range map[string]bool{"NodeAffinity": true, "TaintToleration": true, "OutOfcpu": false,
		"NodePorts": false, "NodeName": false} {
		if got := (&Refusal{Reason: reason}).Outdated(); got != want {
			t.Errorf("%s: %v", reason, got)
		}
	}
}
