// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package attachdetach

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// cachePatience is how long the controller waits for the informer's cache to show an attachment
// that it created. If the cache does not show it by then, the controller assumes that the
// attachment was deleted.
const cachePatience = 30 * time.Second

func (c *Controller) sync(ctx context.Context, name string) error {
	f, err := c.factsOf(name)
	if err != nil {
		return err
	}
	p := planNode(f, c.Clock.Now())
	c.remember(name, p.waiting)
	var errs []error
	for _, w := range p.attach {
		errs = append(errs, c.attach(ctx, w, name))
	}
	for _, w := range p.blocked {
		c.reportBlocked(w, name)
	}
	for _, w := range p.failed {
		c.reportFailed(w, f.attachments[w.target.attachment(name)].Status.AttachError.Message)
	}
	for _, w := range p.unanswered {
		c.reportUnanswered(w)
	}
	if err := c.report(ctx, f, p.attached); err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, a := range p.detach {
		err := c.detach(ctx, a)
		if t, ok := c.targets[name][a.Name]; ok && err == nil {
			c.metrics.detached(&f, t.name())
		}
		errs = append(errs, err)
	}
	if p.again > 0 {
		c.queue.AddAfter(name, p.again)
	}
	return errors.Join(errs...)
}

// factsOf collects the facts about the node with the given name.
func (c *Controller) factsOf(name string) (nodeFacts, error) {
	f := nodeFacts{name: name, keep: c.Options.KeepAttached, attachments: map[string]*storagev1.VolumeAttachment{}}
	node, err := c.nodes.Get(name)
	if err != nil && !apierrors.IsNotFound(err) {
		return f, fmt.Errorf("node: %w", err)
	}
	c.mu.Lock()
	f.since = c.since[name]
	lost, seen := c.lost[name]
	for key, m := range c.made {
		if m.attachment.ResourceVersion != "" && c.Clock.Since(m.at) > cachePatience {
			delete(c.made, key) // the attachment was deleted before the cache showed it
		} else if m.attachment.Spec.NodeName == name {
			f.attachments[key] = m.attachment
		}
	}
	c.mu.Unlock()
	found, err := c.attachments.ByIndex(byNode, name)
	if err != nil {
		return f, fmt.Errorf("attachments: %w", err)
	}
	for _, o := range found {
		a := o.(*storagev1.VolumeAttachment)
		f.attachments[a.Name] = a
	}
	f.known = c.targetsOf(name, f.attachments)
	f.wanted = c.wantedOn(name)
	switch {
	case err == nil && node != nil:
		f.node, f.inUse = node, node.Status.VolumesInUse
	case seen:
		f.inUse = lost
	default: // it is unknown which volumes the deleted node had in use, so treat all as in use
		for _, t := range f.known {
			f.inUse = append(f.inUse, t.name())
		}
	}
	return f, nil
}

// targetsOf returns the volumes of the attachments of a node, as far as they are known.
func (c *Controller) targetsOf(node string, attachments map[string]*storagev1.VolumeAttachment) []target {
	before, now := c.targets[node], map[string]target{}
	for name, a := range attachments {
		t, ok := c.sourceTarget(a)
		if !ok {
			t, ok = before[name]
		}
		if ok {
			now[name] = t
		}
	}
	if c.targets[node] = now; len(now) == 0 {
		delete(c.targets, node)
	}
	return slices.Collect(maps.Values(now))
}

// sourceTarget returns the volume of an attachment. It returns false if the PersistentVolume does
// not exist or is not a CSI volume.
func (c *Controller) sourceTarget(a *storagev1.VolumeAttachment) (target, bool) {
	if a.Spec.Source.PersistentVolumeName == nil {
		return target{}, false
	}
	v, err := c.volumes.Get(*a.Spec.Source.PersistentVolumeName)
	if err != nil || v.Spec.CSI == nil {
		return target{}, false
	}
	return target{v.Spec.CSI.Driver, v.Spec.CSI.VolumeHandle}, true
}

// wantedOn returns the volumes that the pods on a node use and that must be attached, sorted by
// driver and handle.
func (c *Controller) wantedOn(node string) []wanted {
	found, err := c.pods.ByIndex(byNode, node)
	if err != nil {
		return nil // cannot happen: New has added the index
	}
	byTarget := map[target]*wanted{}
	for _, o := range found {
		pod := o.(*v1.Pod)
		if ended(pod) {
			continue
		}
		for _, key := range controller.ClaimKeys(pod) {
			v := c.volumeOf(key)
			if v == nil || !c.attachable(v) {
				continue
			}
			t := target{v.Spec.CSI.Driver, v.Spec.CSI.VolumeHandle}
			w := byTarget[t]
			if w == nil {
				w = &wanted{target: t, volume: v, elsewhere: c.elsewhere(v, node)}
				byTarget[t] = w
			}
			w.pods = append(w.pods, pod)
		}
	}
	out := make([]wanted, 0, len(byTarget))
	for _, w := range byTarget {
		slices.SortFunc(w.pods, func(a, b *v1.Pod) int { return strings.Compare(controller.Key(a), controller.Key(b)) })
		out = append(out, *w)
	}
	slices.SortFunc(out, func(a, b wanted) int {
		return cmp.Or(strings.Compare(a.target.driver, b.target.driver), strings.Compare(a.target.handle, b.target.handle))
	})
	return out
}

// volumeOf returns the PersistentVolume that is bound to the claim with the given key, or nil if
// there is none. The claim and the volume must refer to each other.
func (c *Controller) volumeOf(key string) *v1.PersistentVolume {
	namespace, name := controller.SplitKey(key)
	claim, err := c.claims.PersistentVolumeClaims(namespace).Get(name)
	if err != nil || claim.Status.Phase != v1.ClaimBound {
		return nil
	}
	v, err := c.volumes.Get(claim.Spec.VolumeName)
	if err != nil || v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != claim.UID {
		return nil
	}
	return v
}

// attachable reports whether a volume must be attached before a node can use it, as its CSI driver
// declares. If there is no CSIDriver object, the answer is yes.
func (c *Controller) attachable(v *v1.PersistentVolume) bool {
	if v.Spec.CSI == nil {
		return false
	}
	d, err := c.drivers.Get(v.Spec.CSI.Driver)
	return err != nil || d.Spec.AttachRequired == nil || *d.Spec.AttachRequired
}

// elsewhere returns the other nodes that have an attachment of the volume, or that may have one
// which the cache does not show yet. It returns nil if several nodes may use the volume.
func (c *Controller) elsewhere(v *v1.PersistentVolume, node string) []string {
	if !exclusive(v) {
		return nil
	}
	var out []string
	add := func(a *storagev1.VolumeAttachment) {
		t := target{v.Spec.CSI.Driver, v.Spec.CSI.VolumeHandle}
		if a.Spec.NodeName != node && a.Name == t.attachment(a.Spec.NodeName) {
			out = append(out, a.Spec.NodeName)
		}
	}
	found, err := c.attachments.ByIndex(bySource, v.Name)
	if err != nil {
		return nil // cannot happen: New has added the index
	}
	for _, o := range found {
		add(o.(*storagev1.VolumeAttachment))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.made {
		add(m.attachment)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// remember stores, for each volume in waiting, when the controller first found that no pod needs
// it.
func (c *Controller) remember(node string, waiting []v1.UniqueVolumeName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.since[node]
	delete(c.since, node)
	for _, name := range waiting {
		if c.since[node] == nil {
			c.since[node] = map[v1.UniqueVolumeName]time.Time{}
		}
		at, known := old[name]
		if !known {
			at = c.Clock.Now()
		}
		c.since[node][name] = at
	}
}

func (c *Controller) attach(ctx context.Context, w wanted, node string) error {
	a := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: w.target.attachment(node)},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: w.target.driver, NodeName: node,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &w.volume.Name},
		},
	}
	// Record the attachment before the request. If the request has no response, the API server may
	// have created the attachment, so it counts as existing until the cache shows whether it
	// exists.
	c.mu.Lock()
	c.made[a.Name] = createdAttachment{a, c.Clock.Now()}
	c.mu.Unlock()
	if c.targets[node] == nil {
		c.targets[node] = map[string]target{}
	}
	c.targets[node][a.Name] = w.target
	c.metrics.begin(a.Name, attachOperation, c.Clock.Now())
	got, err := c.Client.StorageV1().VolumeAttachments().Create(ctx, a, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		c.metrics.end(a, attachOperation, c.Clock.Now(), true)
		return fmt.Errorf("attach volume %s: %w", w.volume.Name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, unseen := c.made[a.Name]; unseen && err == nil {
		c.made[a.Name] = createdAttachment{got, c.Clock.Now()}
		c.queue.AddAfter(node, 2*cachePatience)
	}
	return nil
}

func (c *Controller) detach(ctx context.Context, a *storagev1.VolumeAttachment) error {
	var o metav1.DeleteOptions
	if a.UID != "" {
		o.Preconditions = metav1.NewUIDPreconditions(string(a.UID))
	}
	c.metrics.begin(a.Name, detachOperation, c.Clock.Now())
	err := c.Client.StorageV1().VolumeAttachments().Delete(ctx, a.Name, o)
	if err != nil && !apierrors.IsNotFound(err) {
		c.metrics.end(a, detachOperation, c.Clock.Now(), true)
		return fmt.Errorf("detach: %w", err)
	}
	if err != nil {
		c.mu.Lock()
		delete(c.made, a.Name)
		c.mu.Unlock()
	}
	return nil
}

// report writes volumesAttached in the node's status. It fails if the node was changed since f was
// collected.
func (c *Controller) report(ctx context.Context, f nodeFacts, attached []v1.UniqueVolumeName) error {
	if f.node == nil {
		return nil
	}
	var was []v1.UniqueVolumeName
	var others []v1.AttachedVolume // volumes that are not CSI volumes; this controller does not manage them
	for _, a := range f.node.Status.VolumesAttached {
		if _, ok := parse(a.Name); ok {
			was = append(was, a.Name)
		} else {
			others = append(others, a)
		}
	}
	slices.Sort(was)
	if slices.Equal(was, attached) {
		return nil
	}
	list := others
	for _, name := range attached {
		list = append(list, v1.AttachedVolume{Name: name})
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": f.node.ResourceVersion, "uid": f.node.UID},
		"status":   map[string]any{"volumesAttached": list},
	})
	if err != nil {
		return fmt.Errorf("status of node: %w", err)
	}
	if _, err := c.Client.CoreV1().Nodes().Patch(ctx, f.name, types.MergePatchType, patch,
		metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("status of node: %w", err)
	}
	for _, w := range f.wanted {
		if name := w.target.name(); slices.Contains(attached, name) && !slices.Contains(was, name) {
			for _, pod := range w.pods {
				c.Events.Eventf(pod, v1.EventTypeNormal, "SuccessfulAttachVolume",
					"AttachVolume.Attach succeeded for volume %q ", w.volume.Name)
			}
		}
	}
	return nil
}

// reportFailed writes an event on each pod that waits for the volume. The event says why the volume
// is not attached.
func (c *Controller) reportFailed(w wanted, why string) {
	for _, pod := range w.pods {
		c.Events.Eventf(pod, v1.EventTypeWarning, "FailedAttachVolume",
			"AttachVolume.Attach failed for volume %q : %s", w.volume.Name, why)
	}
}

// reportUnanswered writes an event on each pod that waits for the volume. The event says that no
// attacher has responded.
func (c *Controller) reportUnanswered(w wanted) {
	c.reportFailed(w, fmt.Sprintf(
		"timed out waiting for external-attacher of %s CSI driver to attach volume %s", w.target.driver, w.target.handle))
}

// reportBlocked writes an event on each pod that waits for the volume. The event says that the
// volume is attached to another node, and names the pods that use it there, if there are any.
func (c *Controller) reportBlocked(w wanted, node string) {
	message := fmt.Sprintf("Waiting for detach for volume %q Volume is already exclusively attached to one "+
		"node, waiting on detach before it can be attached to another node", w.volume.Name)
	if users := c.usersElsewhere(w, node); len(users) > 0 {
		message = fmt.Sprintf("Waiting for detach for volume %q Volume is already used by pod(s) %s",
			w.volume.Name, strings.Join(users, ", "))
	}
	for _, pod := range w.pods {
		c.Events.Event(pod, v1.EventTypeWarning, "FailedAttachVolume", message)
	}
}

func (c *Controller) usersElsewhere(w wanted, node string) []string {
	ref := w.volume.Spec.ClaimRef
	pods, err := controller.PodsOfClaim(c.pods, ref.Namespace+"/"+ref.Name)
	if err != nil {
		return nil // cannot happen: New has added the index
	}
	var names []string
	for _, pod := range pods {
		if pod.Spec.NodeName != "" && pod.Spec.NodeName != node && !ended(pod) {
			names = append(names, pod.Name)
		}
	}
	slices.Sort(names)
	return names
}
