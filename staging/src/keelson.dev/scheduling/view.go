// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// View shows the scheduler's copy of the cluster to a plugin during a scheduling attempt: the nodes,
// the pods on them, and the objects that they refer to. Everything that it returns is read-only.
type View interface { //nolint:interfacebloat // one snapshot, which all plugins read
	// Nodes returns all nodes. Nodes()[i].Index is i.
	Nodes() []*Node
	// NodeByName returns a node, or nil if there is none of that name.
	NodeByName(name string) *Node
	// Topology returns the domains of a topology key.
	Topology(key string) *Topology
	// ImageNodes returns the number of nodes that have an image, and a version that increases
	// whenever that number changes.
	ImageNodes(name string) (nodes int, version uint64)
	// Groups returns the groups that have pods on nodes.
	Groups() map[*Group]struct{}
	// Held returns the affinity terms of one kind that pods on nodes have. The map's key is
	// Term.Key.
	Held(kind TermKind) map[string]*HeldTerm
	// Repelled reports whether a pod with required anti-affinity is nominated to a node. In that
	// case, Filter.Adjust may be called with pods whose terms are missing in Held.
	Repelled() bool
	// Keep implements the function Keep. Plugins call the function.
	Keep(key string, newTally func() Tally) Tally
	// NamespaceLabels returns the labels of a namespace, or nil if it does not exist.
	NamespaceLabels(namespace string) labels.Set
	// Selectors returns the merged selectors of the Services and the controller that a pod belongs
	// to, or nil if it belongs to none of these.
	Selectors(pod *v1.Pod) labels.Selector
	// Volumes returns the storage objects.
	Volumes() VolumeView
	// Devices returns the objects of dynamic resource allocation.
	Devices() DeviceView
}

// VolumeView reads storage objects. A getter returns nil if the object does not exist.
type VolumeView interface {
	// Claim returns a claim. If the scheduler has selected a node for the claim, the claim has the
	// annotation for that node, even if the annotation has not been written to the API server yet.
	Claim(namespace, name string) *v1.PersistentVolumeClaim
	// Volume returns a volume.
	Volume(name string) *v1.PersistentVolume
	// Class returns a storage class.
	Class(name string) *storagev1.StorageClass
	// AvailableVolumes returns the volumes of a storage class. If the scheduler has chosen a volume
	// for a claim, the volume refers to that claim, even if this has not been written to the API
	// server yet.
	AvailableVolumes(class string) []*v1.PersistentVolume
	// Capacities returns how much storage of a storage class a driver can provision, and where.
	// limited is false if the driver publishes no capacities, so that no limit applies.
	Capacities(driver, class string) (published []*storagev1.CSIStorageCapacity, limited bool)
	// Driver returns the CSIDriver object with the given name, or nil.
	Driver(name string) *storagev1.CSIDriver
	// CSINode returns the CSINode object of a node, which has its CSI drivers and their volume
	// limits.
	CSINode(node string) *storagev1.CSINode
	// Attachments returns the attachments of volumes to a node, completed or not.
	Attachments(node string) []*storagev1.VolumeAttachment
	// ClaimUsers returns the UIDs of the pods on nodes that use a claim.
	ClaimUsers(namespace, name string) []types.UID
}

// DeviceView reads objects of dynamic resource allocation. A getter returns nil if the object does
// not exist. Claims include the scheduler's own writes, even before its watch has delivered them.
type DeviceView interface {
	// Claim returns a claim.
	Claim(namespace, name string) *resourcev1.ResourceClaim
	// Pending reports whether the scheduler has chosen devices for a claim but has not written them
	// to the API server yet.
	Pending(claim types.UID) bool
	// Allocated returns the claims for which devices have been chosen, including claims for which
	// Pending is true.
	Allocated() []*resourcev1.ResourceClaim
	// Class returns a device class.
	Class(name string) *resourcev1.DeviceClass
	// ClassFor returns the device class that provides an extended resource: a class that names the
	// resource, or the class from whose name the resource's name is derived.
	ClassFor(resource v1.ResourceName) *resourcev1.DeviceClass
	// MadeFor returns the claim that an earlier attempt created for the extended resources of a
	// pod.
	MadeFor(pod *v1.Pod) *resourcev1.ResourceClaim
	// Classes returns all device classes.
	Classes() []*resourcev1.DeviceClass
	// Slices returns all resource slices.
	Slices() []*resourcev1.ResourceSlice
}

// Tally is a value that a plugin computes once from the whole cell (all nodes and the pods on them)
// and then updates whenever a pod is added to a node or removed from it.
type Tally interface {
	// Adjust updates the tally for a pod that was added to a node (n is 1) or removed from it (n is
	// -1).
	Adjust(node *Node, pod *Pod, n int)
}

// Keep returns the tally stored under key, which is up to date. If there is none, it calls newTally
// and stores the result. All pods share the tally, so it may depend only on key and on the cell
// (all nodes and the pods on them). The view drops it when a node is added or removed, when labels
// or taints of a node change, when labels of a namespace change, and to limit memory.
//
// Keys must start with the plugin's name. Keep panics if one key is used for two types, which is a
// bug of the plugin.
func Keep[T Tally](view View, key string, newTally func() T) T {
	return view.Keep(key, func() Tally { return newTally() }).(T)
}
