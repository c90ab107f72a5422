// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"keelson.dev/scheduling"
)

// TestModel calls random methods of a cell (the scheduler's picture of all nodes and pods), and
// makes the same changes to a simple model. After each call it compares the cell with values that
// are computed from the model.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{
			cell: New(), nodes: map[string]*v1.Node{}, pods: map[types.UID]modelPod{}, images: map[string]imageState{},
			generations: map[string]uint64{}, seen: map[string]string{}, last: map[string]string{},
		}
		t.Repeat(map[string]func(*rapid.T){
			"SetNode":    m.setNode,
			"RemoveNode": m.removeNode,
			"SetPod":     m.setPod,
			"Assume":     m.assume,
			"Forget":     m.forget,
			"RemovePod":  m.removePod,
			"Lift":       m.lift,
			"Mark":       m.setMark,
			"":           m.check,
		})
	})
}

// model is the expected state of a cell: plain maps of the nodes and pods.
type model struct {
	cell  *Cell
	nodes map[string]*v1.Node
	pods  map[types.UID]modelPod

	// The fields below have what the cell returned in earlier steps.
	images      map[string]imageState // by image
	generations map[string]uint64     // generation of each node, by name
	last, seen  map[string]string     // states of nodes, by the node's name (last) and by generation (seen)
	// mark is the position in the cell's journal of changes at the last call of setMark. atMark has
	// the UIDs of the pods that each node had then.
	mark   Mark
	atMark map[*scheduling.Node]map[string]bool
}

type modelPod struct {
	pod     *v1.Pod
	node    string
	assumed bool
}

var (
	nodeNames = []string{"a", "b", "c", "d"}
	podNames  = []string{"p", "q", "r", "s", "t", "u"}
)

func (m *model) setNode(t *rapid.T) {
	name := rapid.SampledFrom(nodeNames).Draw(t, "node")
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if zone := rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "zone"); zone != "" {
		node.Labels = map[string]string{"zone": zone}
	}
	if rapid.Bool().Draw(t, "tainted") {
		node.Spec.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}}
	}
	cpu := rapid.Int64Range(1, 3).Draw(t, "cpu")
	node.Status.Allocatable = v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(cpu, resource.DecimalSI)}
	for _, image := range rapid.SliceOfN(rapid.SampledFrom([]string{"i:1", "i:2", "j:1"}), 0, 3).Draw(t, "images") {
		node.Status.Images = append(node.Status.Images, v1.ContainerImage{Names: []string{image}, SizeBytes: 7})
	}

	var want scheduling.Event
	switch old := m.nodes[name]; {
	case old == nil:
		want = scheduling.NodeAdded
	default:
		if old.Labels["zone"] != node.Labels["zone"] {
			want |= scheduling.NodeLabelsChanged
		}
		if len(old.Spec.Taints) != len(node.Spec.Taints) {
			want |= scheduling.NodeTaintsChanged
		}
		if cpu > old.Status.Allocatable.Cpu().Value() {
			want |= scheduling.NodeResourcesGrown
		}
	}
	if got := m.cell.SetNode(node); got != want {
		t.Fatalf("SetNode: event %v, want %v", got, want)
	}
	m.nodes[name] = node
}

func (m *model) removeNode(t *rapid.T) {
	name := rapid.SampledFrom(nodeNames).Draw(t, "node")
	m.cell.RemoveNode(name)
	delete(m.nodes, name)
}

// newPod draws a pod. There are few names and labels, so that pods replace each other and share
// groups (pods that affinity terms treat alike).
func newPod(t *rapid.T) *v1.Pod {
	name := rapid.SampledFrom(podNames).Draw(t, "pod")
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	if app := rapid.SampledFrom([]string{"", "web"}).Draw(t, "app"); app != "" {
		pod.Labels = map[string]string{"app": app}
	}
	if rapid.IntRange(0, 3).Draw(t, "terminating") == 0 {
		pod.DeletionTimestamp = &metav1.Time{}
	}
	c := v1.Container{Name: "c", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{}}}
	if cpu := rapid.Int64Range(0, 2).Draw(t, "cpu"); cpu > 0 {
		c.Resources.Requests[v1.ResourceCPU] = *resource.NewQuantity(cpu, resource.DecimalSI)
	}
	if gpus := rapid.Int64Range(0, 2).Draw(t, "gpus"); gpus > 0 {
		c.Resources.Requests["example.com/gpu"] = *resource.NewQuantity(gpus, resource.DecimalSI)
	}
	if port := rapid.Int32Range(0, 2).Draw(t, "port"); port > 0 {
		c.Ports = []v1.ContainerPort{{HostPort: 80 + port}}
	}
	pod.Spec.Containers = []v1.Container{c}
	if claim := rapid.SampledFrom([]string{"", "data"}).Draw(t, "claim"); claim != "" {
		pod.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}}}
	}
	if rapid.Bool().Draw(t, "apart") {
		pod.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
				TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			}},
		}}
	}
	return pod
}

func (m *model) setPod(t *rapid.T) {
	pod := newPod(t)
	pod.Spec.NodeName = rapid.SampledFrom(nodeNames).Draw(t, "node")
	before, known := m.pods[pod.UID]
	if known && rapid.Bool().Draw(t, "same spec") {
		// Keep the fields that the API server does not allow to change.
		pod.Spec.Affinity, pod.Spec.Volumes = before.pod.Spec.Affinity, before.pod.Spec.Volumes
		pod.Spec.Containers[0].Ports = before.pod.Spec.Containers[0].Ports
		pod.Spec.NodeName = before.node
	} else if known {
		m.cell.RemovePod(pod.UID)
		known = false
	}
	less := false
	if known {
		was, is := before.pod.Spec.Containers[0].Resources.Requests, pod.Spec.Containers[0].Resources.Requests
		for name, q := range was {
			less = less || q.Cmp(is[name]) > 0
		}
	}
	if got := m.cell.SetPod(pod); got != less {
		t.Fatalf("SetPod: less = %v, want %v", got, less)
	}
	m.pods[pod.UID] = modelPod{pod, pod.Spec.NodeName, false}
}

func (m *model) assume(t *rapid.T) {
	pod, node := newPod(t), rapid.SampledFrom(nodeNames).Draw(t, "node")
	m.cell.Assume(m.cell.NewPod(pod), node)
	m.pods[pod.UID] = modelPod{pod, node, true}
}

func (m *model) forget(t *rapid.T) {
	uid := types.UID(rapid.SampledFrom(podNames).Draw(t, "pod"))
	m.cell.Forget(uid)
	if m.pods[uid].assumed {
		delete(m.pods, uid)
	}
}

func (m *model) removePod(t *rapid.T) {
	uid := types.UID(rapid.SampledFrom(podNames).Draw(t, "pod"))
	_, want := m.pods[uid]
	if got := m.cell.RemovePod(uid); got != want {
		t.Fatalf("RemovePod: %v, want %v", got, want)
	}
	delete(m.pods, uid)
}

// lift compares the cell with the model while the method Without takes a pod off its node.
func (m *model) lift(t *rapid.T) {
	uid := types.UID(rapid.SampledFrom(podNames).Draw(t, "pod"))
	lifted, known := m.pods[uid]
	m.cell.Without(uid, func() {
		delete(m.pods, uid)
		m.check(t)
	})
	if known {
		m.pods[uid] = lifted
	}
}

func (m *model) setMark(*rapid.T) {
	m.mark, m.atMark = m.cell.Now(), map[*scheduling.Node]map[string]bool{}
	for _, n := range m.cell.Nodes() {
		m.atMark[n] = map[string]bool{}
		for uid := range n.Pods {
			m.atMark[n][uid] = true
		}
	}
}

func (m *model) check(t *rapid.T) {
	m.checkNodes(t)
	m.checkPods(t)
	m.checkGroups(t)
	m.checkImages(t)
	m.checkTopology(t)
	m.checkChanges(t)
}

// checkNodes compares each node's sums of requests with the sums over its pods in the model.
func (m *model) checkNodes(t *rapid.T) {
	nodes := m.cell.Nodes()
	if len(nodes) != len(m.nodes) {
		t.Fatalf("%d nodes, want %d", len(nodes), len(m.nodes))
	}
	for i, n := range nodes {
		if n.Index != i || n.Node != m.nodes[n.Name] || m.cell.NodeByName(n.Name) != n {
			t.Fatalf("node %d is %s with index %d", i, n.Name, n.Index)
		}
		want := nodeState{Pods: []string{}, Ports: map[scheduling.HostPort]int{}}
		for uid, p := range m.pods {
			if p.node != n.Name {
				continue
			}
			want.Pods = append(want.Pods, string(uid))
			c := p.pod.Spec.Containers[0]
			want.CPU += c.Resources.Requests.Cpu().MilliValue()
			want.NonZeroCPU += max(c.Resources.Requests.Cpu().MilliValue(), defaultMilliCPU)
			gpus := c.Resources.Requests["example.com/gpu"]
			want.GPUs += gpus.Value()
			want.NonZeroMemory += defaultMemory
			for _, port := range c.Ports {
				want.Ports[scheduling.HostPort{IP: scheduling.AnyIP, Protocol: v1.ProtocolTCP, Port: port.HostPort}]++
			}
		}
		slices.Sort(want.Pods)
		got := nodeState{
			Pods: slices.Sorted(maps.Keys(n.Pods)), Ports: n.Ports,
			CPU: n.Requested.MilliCPU, GPUs: n.Requested.Scalar["example.com/gpu"],
			NonZeroCPU: n.NonZero.MilliCPU, NonZeroMemory: n.NonZero.Memory,
		}
		if got.Pods == nil {
			got.Pods = []string{}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("node %s (-want +got):\n%s", n.Name, diff)
		}
		m.checkGeneration(t, n, fmt.Sprintf("%s %p %v", n.Name, n.Node, got))
	}
	for name := range m.last {
		if m.nodes[name] == nil {
			delete(m.last, name)
			delete(m.generations, name)
		}
	}
}

type nodeState struct {
	Pods                      []string
	Ports                     map[scheduling.HostPort]int
	CPU, GPUs                 int64
	NonZeroCPU, NonZeroMemory int64
}

// checkGeneration checks that a node's generation changes with its state, and that two states never
// share one.
func (m *model) checkGeneration(t *rapid.T, n *scheduling.Node, state string) {
	if before, known := m.last[n.Name]; known && before != state && m.generations[n.Name] == n.Generation {
		t.Fatalf("node %s has changed, its generation %d has not", n.Name, n.Generation)
	}
	key := fmt.Sprint(n.Generation)
	if other, used := m.seen[key]; used && other != state {
		t.Fatalf("generation %s stands for %s and for %s", key, other, state)
	}
	m.seen[key], m.last[n.Name], m.generations[n.Name] = state, state, n.Generation
}

// checkPods compares each pod's node, and the users of each claim, with the model. It also checks
// that the cell has no other pods.
func (m *model) checkPods(t *rapid.T) {
	users := map[string][]types.UID{}
	waiting := map[string]int{}
	assumptions := 0
	for _, name := range podNames {
		uid := types.UID(name)
		want, known := m.pods[uid]
		node, assumed, ok := m.cell.Placed(uid)
		if ok != known || node != want.node || assumed != want.assumed {
			t.Fatalf("pod %s: on %q, assumed %v, known %v; want %+v", uid, node, assumed, ok, want)
		}
		if !known {
			continue
		}
		if want.assumed {
			assumptions++
		}
		if len(want.pod.Spec.Volumes) > 0 {
			users["data"] = append(users["data"], uid)
		}
		if m.nodes[want.node] == nil {
			waiting[want.node]++
		}
	}
	if nodes, pods, assumed := m.cell.Sizes(); nodes != len(m.nodes) || pods != len(m.pods) || assumed != assumptions {
		t.Fatalf("%d nodes, %d pods, %d assumed; want %d, %d, %d", nodes, pods, assumed, len(m.nodes), len(m.pods),
			assumptions)
	}
	got := m.cell.ClaimUsers("ns", "data")
	slices.Sort(got)
	if !slices.Equal(got, users["data"]) {
		t.Fatalf("users of the claim: %v, want %v", got, users["data"])
	}
	if len(m.cell.claims) != len(users) {
		t.Fatalf("claims are kept without users: %v", m.cell.claims)
	}
	have := map[string]int{}
	for node, pods := range m.cell.waiting {
		have[node] = len(pods)
	}
	if !maps.Equal(have, waiting) {
		t.Fatalf("pods wait for nodes %v, want %v", have, waiting)
	}
}

// groupOf returns a key that is equal for pods of one group.
func groupOf(pod *v1.Pod) string {
	return fmt.Sprint(pod.Labels["app"], pod.DeletionTimestamp != nil, pod.Spec.Affinity != nil)
}

// checkGroups compares the groups of pods, their counts on nodes, and their affinity terms with the
// model.
func (m *model) checkGroups(t *rapid.T) {
	members := map[string]map[string]int{} // pods by group and node
	all := map[string]bool{}
	apart := map[string]int{} // number of pods with the anti-affinity term, by node
	for _, p := range m.pods {
		key := groupOf(p.pod)
		all[key] = true
		if m.nodes[p.node] == nil {
			continue
		}
		if members[key] == nil {
			members[key] = map[string]int{}
		}
		members[key][p.node]++
		if p.pod.Spec.Affinity != nil {
			apart[p.node]++
		}
	}
	got := map[string]map[string]int{}
	for uid, p := range m.pods {
		g := m.cell.pods[uid].pod.Group
		if m.nodes[p.node] == nil {
			continue
		}
		if _, on := m.cell.Groups()[g]; !on {
			t.Fatalf("the group of pod %s on %s is not among those on nodes", uid, p.node)
		}
		got[groupOf(p.pod)] = byName(g.Nodes)
	}
	if diff := cmp.Diff(members, got); diff != "" {
		t.Fatalf("groups on nodes (-want +got):\n%s", diff)
	}
	if len(m.cell.Groups()) != len(members) || len(m.cell.groups) != len(all) {
		t.Fatalf("%d groups on nodes of %d, want %d of %d",
			len(m.cell.Groups()), len(m.cell.groups), len(members), len(all))
	}
	for kind := range scheduling.TermKinds {
		held := map[string]int{}
		for _, h := range m.cell.Held(kind) {
			maps.Copy(held, byName(h.Nodes))
		}
		want := map[string]int{}
		if kind == scheduling.RequiredAnti {
			want = apart
		}
		if !maps.Equal(held, want) || len(m.cell.Held(kind)) > 1 {
			t.Fatalf("terms of kind %d on nodes: %v, want %v", kind, held, want)
		}
	}
}

func byName(nodes map[*scheduling.Node]int) map[string]int {
	out := map[string]int{}
	for n, count := range nodes {
		out[n.Name] = count
	}
	return out
}

// checkImages checks that an image's version changes when the number of nodes with the image
// changes.
func (m *model) checkImages(t *rapid.T) {
	for _, image := range []string{"i:1", "i:2", "j:1"} {
		want := 0
		for _, node := range m.nodes {
			if slices.ContainsFunc(node.Status.Images, func(i v1.ContainerImage) bool { return i.Names[0] == image }) {
				want++
			}
		}
		nodes, version := m.cell.ImageNodes(image)
		if nodes != want {
			t.Fatalf("image %s on %d nodes, want %d", image, nodes, want)
		}
		if before, known := m.images[image]; known && before.nodes != nodes && before.version == version {
			t.Fatalf("image %s: on %d nodes and then on %d, both in version %d", image, before.nodes, nodes, version)
		}
		m.images[image] = imageState{nodes, version}
	}
}

// checkTopology checks that nodes with equal labels are in the same domain, and that nodes without
// the label are in no domain.
func (m *model) checkTopology(t *rapid.T) {
	topology := m.cell.Topology("zone")
	domains := map[string]int32{}
	for i, n := range m.cell.Nodes() {
		zone, labelled := n.Labels["zone"]
		if !labelled {
			if topology.Of[i] != scheduling.NoDomain {
				t.Fatalf("node %s has no zone and is in domain %d", n.Name, topology.Of[i])
			}
			continue
		}
		if d, known := domains[zone]; known && d != topology.Of[i] {
			t.Fatalf("zone %s is domain %d and %d", zone, d, topology.Of[i])
		}
		domains[zone] = topology.Of[i]
	}
	if topology.Domains != len(domains) {
		t.Fatalf("%d domains, want %d", topology.Domains, len(domains))
	}
}

// checkChanges applies the changes since the last call of setMark to the pods that each node had
// then, and checks that the result equals the pods that the node has now.
func (m *model) checkChanges(t *rapid.T) {
	if m.atMark == nil {
		return
	}
	now := m.cell.Now()
	changes, ok := m.cell.Since(m.mark)
	if ok != (now.Layout == m.mark.Layout) {
		t.Fatalf("Since: %v; layout was %d and is %d", ok, m.mark.Layout, now.Layout)
	}
	if !ok {
		return
	}
	for _, n := range m.cell.Nodes() {
		pods := maps.Clone(m.atMark[n])
		for _, c := range changes {
			switch {
			case c.Node != n || c.Pod == nil:
			case c.N > 0:
				pods[string(c.Pod.UID)] = true
			default:
				delete(pods, string(c.Pod.UID))
			}
		}
		if got, want := slices.Sorted(maps.Keys(pods)), slices.Sorted(maps.Keys(n.Pods)); !slices.Equal(got, want) {
			t.Fatalf("node %s by its changes has pods %v, want %v", n.Name, got, want)
		}
	}
}

// TestJournalIsBounded checks that the journal drops old changes, and that Since returns false for
// a mark before the dropped changes.
func TestJournalIsBounded(t *testing.T) {
	c := New()
	c.SetNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	start := c.Now()
	for range maxChanges {
		c.Touch("a")
	}
	if len(c.changes.entries) > maxChanges {
		t.Errorf("%d entries", len(c.changes.entries))
	}
	if _, ok := c.Since(start); ok {
		t.Error("Since returned a dropped change")
	}
	recent := c.Now()
	c.Touch("a")
	if changes, ok := c.Since(recent); !ok || len(changes) != 1 || changes[0].Node.Name != "a" {
		t.Errorf("since the last mark: %v, %v", changes, ok)
	}
}

func TestCompile(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	cpu := func(milli int64) v1.ResourceRequirements {
		return v1.ResourceRequirements{Requests: v1.ResourceList{
			v1.ResourceCPU: *resource.NewMilliQuantity(milli, resource.DecimalSI),
		}}
	}
	for name, test := range map[string]struct {
		spec              v1.PodSpec
		milliCPU, nonZero int64
		ports             []scheduling.HostPort
	}{
		"containers add up": {
			spec:     v1.PodSpec{Containers: []v1.Container{{Resources: cpu(200)}, {Resources: cpu(300)}}},
			milliCPU: 500, nonZero: 500,
		},
		"a larger init container counts alone": {
			spec: v1.PodSpec{
				InitContainers: []v1.Container{{Resources: cpu(900)}}, Containers: []v1.Container{{Resources: cpu(200)}},
			},
			milliCPU: 900, nonZero: 900,
		},
		"a sidecar counts beside the containers": {
			spec: v1.PodSpec{
				InitContainers: []v1.Container{{RestartPolicy: &always, Resources: cpu(50)}},
				Containers:     []v1.Container{{Resources: cpu(200)}},
			},
			milliCPU: 250, nonZero: 250,
		},
		"overhead is added": {
			spec: v1.PodSpec{
				Containers: []v1.Container{{Resources: cpu(200)}},
				Overhead:   v1.ResourceList{v1.ResourceCPU: resource.MustParse("5m")},
			},
			milliCPU: 205, nonZero: 205,
		},
		"a container without requests counts in NonZero": {
			spec: v1.PodSpec{Containers: []v1.Container{{}}}, milliCPU: 0, nonZero: defaultMilliCPU,
		},
		"ports of containers and sidecars, not of init containers": {
			spec: v1.PodSpec{
				InitContainers: []v1.Container{
					{Ports: []v1.ContainerPort{{HostPort: 1}}},
					{RestartPolicy: &always, Ports: []v1.ContainerPort{{HostPort: 2, Protocol: v1.ProtocolUDP}}},
				},
				Containers: []v1.Container{{Ports: []v1.ContainerPort{{ContainerPort: 3}, {HostPort: 4, HostIP: "::"}}}},
			},
			nonZero: 2 * defaultMilliCPU,
			ports: []scheduling.HostPort{
				{IP: scheduling.AnyIP, Protocol: v1.ProtocolTCP, Port: 4},
				{IP: scheduling.AnyIP, Protocol: v1.ProtocolUDP, Port: 2},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := Compile(&v1.Pod{Spec: test.spec})
			if p.Requests.MilliCPU != test.milliCPU || p.NonZero.MilliCPU != test.nonZero || p.Requests.Pods != 1 {
				t.Errorf("CPU %d, for spreading %d, pods %d", p.Requests.MilliCPU, p.NonZero.MilliCPU, p.Requests.Pods)
			}
			if diff := cmp.Diff(test.ports, p.HostPorts); diff != "" {
				t.Errorf("ports (-want +got):\n%s", diff)
			}
		})
	}
}

func TestImageName(t *testing.T) {
	for ref, want := range map[string]string{
		"nginx":                         "nginx:latest",
		"nginx:1":                       "nginx:1",
		"registry.example:5000/nginx":   "registry.example:5000/nginx:latest",
		"registry.example:5000/nginx:1": "registry.example:5000/nginx:1",
	} {
		if got := ImageName(ref); got != want {
			t.Errorf("ImageName(%q) = %q, want %q", ref, got, want)
		}
	}
}
