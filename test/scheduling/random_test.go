// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	"fmt"
	"math/rand/v2"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// draw creates random objects. It chooses from few values, so that objects often match each other.
type draw struct {
	*rand.Rand
	uids int
}

func (d *draw) chance(percent int) bool { return d.IntN(100) < percent }

func pick[T any](d *draw, from ...T) T { return from[d.IntN(len(from))] }

func (d *draw) labels() map[string]string {
	l := map[string]string{}
	for _, key := range []string{"app", "tier"} {
		if d.chance(80) {
			l[key] = pick(d, "a", "b", "c")
		}
	}
	return l
}

func (d *draw) selector() *metav1.LabelSelector {
	switch d.IntN(8) {
	case 0:
		return nil
	case 1:
		return &metav1.LabelSelector{}
	case 2, 3:
		op := pick(d, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists,
			metav1.LabelSelectorOpDoesNotExist)
		r := metav1.LabelSelectorRequirement{Key: pick(d, "app", "tier"), Operator: op}
		if op == metav1.LabelSelectorOpIn || op == metav1.LabelSelectorOpNotIn {
			r.Values = []string{pick(d, "a", "b"), "c"}
		}
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{r}}
	}
	return &metav1.LabelSelector{MatchLabels: map[string]string{pick(d, "app", "tier"): pick(d, "a", "b")}}
}

func (d *draw) topologyKey() string {
	return pick(d, v1.LabelHostname, v1.LabelTopologyZone, v1.LabelTopologyZone, "rack", "nowhere")
}

func (d *draw) node(i int) *v1.Node {
	name := fmt.Sprint("n", i)
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for key, value := range map[string]string{
		v1.LabelHostname: name, v1.LabelTopologyZone: pick(d, "z1", "z2", "z3"), "rack": pick(d, "r1", "r2"),
		"disk": pick(d, "ssd", "hdd", "7"),
	} {
		if d.chance(90) {
			n.Labels[key] = value
		}
	}
	n.Spec.Unschedulable = d.chance(5)
	for d.chance(25) {
		n.Spec.Taints = append(n.Spec.Taints, v1.Taint{
			Key: pick(d, "k1", "k2"), Value: pick(d, "", "v"),
			Effect: pick(d, v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule,
				v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute),
		})
	}
	n.Status.Allocatable = v1.ResourceList{
		v1.ResourceCPU:              milli(pick(d, 0, 500, 2000, 4000, 64000)),
		v1.ResourceMemory:           units(pick[int64](d, 0, 1<<30, 4<<30, 64<<30)),
		v1.ResourcePods:             units(pick[int64](d, 0, 3, 110, 110, 110, 110)),
		v1.ResourceEphemeralStorage: units(pick[int64](d, 0, 100<<30)),
	}
	if d.chance(30) {
		n.Status.Allocatable["example.com/gpu"] = units(pick[int64](d, 0, 2, 8))
	}
	sizes := map[string]int64{"x": 30 << 20, "y": 400 << 20, "z": 3000 << 20}
	for _, image := range []string{"x", "y", "z"} {
		if d.chance(40) {
			n.Status.Images = append(n.Status.Images, v1.ContainerImage{Names: []string{image + ":latest"},
				SizeBytes: sizes[image]})
		}
	}
	return n
}

func milli(v int) resource.Quantity   { return *resource.NewMilliQuantity(int64(v), resource.DecimalSI) }
func units(v int64) resource.Quantity { return *resource.NewQuantity(v, resource.BinarySI) }

func (d *draw) container(i int) v1.Container {
	c := v1.Container{Name: fmt.Sprint("c", i), Image: pick(d, "x", "y", "z"),
		Resources: v1.ResourceRequirements{Requests: v1.ResourceList{}}}
	if d.chance(70) {
		c.Resources.Requests[v1.ResourceCPU] = milli(pick(d, 0, 1, 100, 400, 1500))
	}
	if d.chance(60) {
		c.Resources.Requests[v1.ResourceMemory] = units(pick[int64](d, 0, 1<<20, 300<<20, 2<<30))
	}
	if d.chance(10) {
		c.Resources.Requests[v1.ResourceEphemeralStorage] = units(1 << 30)
	}
	if d.chance(10) {
		c.Resources.Requests["example.com/gpu"] = units(pick[int64](d, 0, 1, 3))
	}
	return c
}

func (d *draw) pod() *v1.Pod {
	d.uids++
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprint("p", d.uids), Namespace: pick(d, "one", "two", "three"),
		UID: types.UID(fmt.Sprint(d.uids)), Labels: d.labels(),
	}}
	p.Spec.SchedulerName = v1.DefaultSchedulerName
	for i := range 1 + d.IntN(2) {
		p.Spec.Containers = append(p.Spec.Containers, d.container(i))
	}
	for i := 10; d.chance(20); i++ {
		c := d.container(i)
		if d.chance(50) {
			c.RestartPolicy = ptr(v1.ContainerRestartPolicyAlways)
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	if d.chance(10) {
		p.Spec.Overhead = v1.ResourceList{v1.ResourceCPU: milli(50), v1.ResourceMemory: units(10 << 20)}
	}
	if d.chance(10) {
		p.Spec.Resources = &v1.ResourceRequirements{
			Requests: v1.ResourceList{pick(d, v1.ResourceCPU, v1.ResourceMemory): units(5)}}
	}
	if d.chance(10) {
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{
			HostPort: pick[int32](d, 80, 81), Protocol: pick(d, "", v1.ProtocolTCP, v1.ProtocolUDP),
			HostIP: pick(d, "", "10.0.0.1", "10.0.0.2"),
		}}
	}
	if d.chance(20) {
		p.Spec.Volumes = append(p.Spec.Volumes,
			v1.Volume{Name: "image",
				VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: pick(d, "x", "y", "z")}}})
	}
	d.tolerate(p)
	d.affinity(p)
	d.spread(p)
	return p
}

func ptr[T any](v T) *T { return &v }

func (d *draw) tolerate(p *v1.Pod) {
	for d.chance(30) {
		t := v1.Toleration{Key: pick(d, "k1", "k2"), Operator: v1.TolerationOpExists}
		if d.chance(50) {
			t.Operator, t.Value = pick(d, "", v1.TolerationOpEqual), pick(d, "", "v")
		}
		t.Effect = pick(d, "", "", v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute)
		if d.chance(10) {
			t = v1.Toleration{Operator: v1.TolerationOpExists}
		}
		p.Spec.Tolerations = append(p.Spec.Tolerations, t)
	}
}

func (d *draw) nodeTerm() v1.NodeSelectorTerm {
	switch d.IntN(5) {
	case 0:
		return v1.NodeSelectorTerm{MatchFields: []v1.NodeSelectorRequirement{{
			Key: "metadata.name", Operator: pick(d, v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn), Values: []string{"n1"},
		}}}
	case 1:
		return v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{
			Key: "disk", Operator: pick(d, v1.NodeSelectorOpGt, v1.NodeSelectorOpLt), Values: []string{pick(d, "5", "9")},
		}}}
	case 2:
		return v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{
			Key: pick(d, "disk", "rack"), Operator: pick(d, v1.NodeSelectorOpExists, v1.NodeSelectorOpDoesNotExist),
		}}}
	}
	return v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{
		Key: v1.LabelTopologyZone, Operator: pick(d, v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn),
		Values: []string{pick(d, "z1", "z2"), "z3"},
	}}}
}

func (d *draw) podTerm() v1.PodAffinityTerm {
	t := v1.PodAffinityTerm{LabelSelector: d.selector(), TopologyKey: d.topologyKey()}
	if d.chance(20) {
		t.Namespaces = []string{pick(d, "one", "two")}
	}
	if d.chance(20) {
		t.NamespaceSelector = pick(d, &metav1.LabelSelector{},
			&metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}})
	}
	return t
}

func (d *draw) affinity(p *v1.Pod) {
	if d.chance(10) {
		p.Spec.NodeSelector = map[string]string{"disk": pick(d, "ssd", "hdd")}
	}
	a := &v1.Affinity{NodeAffinity: &v1.NodeAffinity{}, PodAffinity: &v1.PodAffinity{},
		PodAntiAffinity: &v1.PodAntiAffinity{}}
	if d.chance(10) {
		a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &v1.NodeSelector{
			NodeSelectorTerms: []v1.NodeSelectorTerm{d.nodeTerm(), d.nodeTerm()}}
	}
	for d.chance(15) {
		a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(
			a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution,
			v1.PreferredSchedulingTerm{Weight: 1 + d.Int32N(100), Preference: d.nodeTerm()})
	}
	required := func(into *[]v1.PodAffinityTerm, percent int) {
		for d.chance(percent) {
			*into = append(*into, d.podTerm())
		}
	}
	preferred := func(into *[]v1.WeightedPodAffinityTerm) {
		for d.chance(15) {
			*into = append(*into, v1.WeightedPodAffinityTerm{Weight: 1 + d.Int32N(100), PodAffinityTerm: d.podTerm()})
		}
	}
	required(&a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, 12)
	required(&a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, 12)
	preferred(&a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	preferred(&a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	p.Spec.Affinity = a
}

func (d *draw) spread(p *v1.Pod) {
	for d.chance(20) {
		c := v1.TopologySpreadConstraint{
			MaxSkew: 1 + d.Int32N(3), TopologyKey: d.topologyKey(), LabelSelector: d.selector(),
			WhenUnsatisfiable: pick(d, v1.DoNotSchedule, v1.ScheduleAnyway),
		}
		if c.WhenUnsatisfiable == v1.DoNotSchedule && d.chance(30) {
			c.MinDomains = ptr(1 + d.Int32N(4))
		}
		if c.LabelSelector != nil && d.chance(20) {
			c.MatchLabelKeys = []string{"tier"}
		}
		if d.chance(30) {
			c.NodeAffinityPolicy = ptr(pick(d, v1.NodeInclusionPolicyHonor, v1.NodeInclusionPolicyIgnore))
		}
		if d.chance(30) {
			c.NodeTaintsPolicy = ptr(pick(d, v1.NodeInclusionPolicyHonor, v1.NodeInclusionPolicyIgnore))
		}
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
	}
}

// storage draws storage classes, volumes and claims. Some claims are bound; others have the binding
// mode WaitForFirstConsumer.
func (d *draw) storage(c *cluster) {
	c.claims, c.volumes = map[string]*v1.PersistentVolumeClaim{}, map[string]*v1.PersistentVolume{}
	c.classes, c.csiNodes = map[string]*storagev1.StorageClass{}, map[string]*storagev1.CSINode{}
	for name, provisioner := range map[string]string{"local": "kubernetes.io/no-provisioner", "made": "csi.example.com"} {
		c.classes[name] = &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name},
			Provisioner: provisioner, VolumeBindingMode: &waits}
	}
	for i := range 8 {
		pv := &v1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("pv", i), Labels: map[string]string{}},
			Spec: v1.PersistentVolumeSpec{
				StorageClassName: pick(d, "local", "made"), Capacity: v1.ResourceList{v1.ResourceStorage: units(int64(1+i) << 30)},
				AccessModes: []v1.PersistentVolumeAccessMode{pick(d, v1.ReadWriteOnce, v1.ReadWriteOncePod)},
				PersistentVolumeSource: v1.PersistentVolumeSource{
					CSI: &v1.CSIPersistentVolumeSource{Driver: "csi.example.com", VolumeHandle: fmt.Sprint("h", i)}},
			},
			Status: v1.PersistentVolumeStatus{Phase: v1.VolumeAvailable},
		}
		if d.chance(40) {
			pv.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchExpressions: []v1.NodeSelectorRequirement{
					{Key: v1.LabelTopologyZone, Operator: v1.NodeSelectorOpIn, Values: []string{pick(d, "z1", "z2")}}},
			}}}}
		}
		if d.chance(30) {
			pv.Labels[v1.LabelTopologyZone] = pick(d, "z1", "z2__z3")
		}
		c.volumes[pv.Name] = pv
		claim := d.claim(i)
		claim.Spec.AccessModes = pv.Spec.AccessModes
		if d.chance(50) {
			claim.Spec.VolumeName, claim.Spec.StorageClassName = pv.Name, &pv.Spec.StorageClassName
			claim.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
			claim.Status.Phase = v1.ClaimBound
			pv.Spec.ClaimRef = &v1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
			pv.Status.Phase = v1.VolumeBound
		}
		c.claims[claim.Namespace+"/"+claim.Name] = claim
	}
	for _, n := range c.nodes {
		if d.chance(50) {
			c.csiNodes[n.Name] = &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: n.Name},
				Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
					{Name: "csi.example.com", Allocatable: &storagev1.VolumeNodeResources{Count: ptr(d.Int32N(3))}},
				}}}
		}
	}
}

func (d *draw) claim(i int) *v1.PersistentVolumeClaim {
	return &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: pick(d, "one", "two", "three"), Name: fmt.Sprint("claim", i),
			UID: types.UID(fmt.Sprint("claim", i))},
		Spec: v1.PersistentVolumeClaimSpec{
			StorageClassName: ptr(pick(d, "local", "made")),
			Resources: v1.VolumeResourceRequirements{
				Requests: v1.ResourceList{v1.ResourceStorage: units(int64(1+i)<<30 - 5)}},
		},
	}
}

// claim adds claims of the pod's namespace to some pods.
func (c *cluster) claim(d *draw, p *v1.Pod) {
	if !d.chance(20) {
		return
	}
	for i := range 8 {
		name := fmt.Sprint("claim", i)
		if _, ok := c.claims[p.Namespace+"/"+name]; ok && d.chance(50) && len(p.Spec.Volumes) < 2 {
			p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name},
			}})
		}
	}
}
