// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package customresources

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/rest"
	"keelson.dev/apiserver/store"
)

// follow processes all CustomResourceDefinitions and then their changes, until the watch ends.
func (c *Controller) follow(ctx context.Context) error {
	w, err := c.definitions().Watch(ctx, "", metav1.ListOptions{
		AllowWatchBookmarks: true, SendInitialEvents: new(true),
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}, 0)
	if err != nil {
		return err
	}
	defer w.Stop()
	initial := make(map[string]bool) // names in the initial events; nil once all of these have been received
	for {
		events, err := w.Next(ctx)
		if err != nil {
			return err
		}
		var gone []string
		for i := range events {
			if initial == nil {
				break
			}
			if events[i].Record != nil {
				initial[events[i].Record.Key] = true
			}
			if events[i].InitialEventsEnd {
				gone = c.missing(initial)
				initial = nil
			}
		}
		c.take(events, gone, initial == nil)
		if initial == nil {
			c.openSynced()
		}
	}
}

func (c *Controller) openSynced() {
	select {
	case <-c.synced:
	default:
		close(c.synced)
	}
}

// missing returns the names of the known CustomResourceDefinitions that are not in present.
func (c *Controller) missing(present map[string]bool) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for name := range c.known {
		if !present[name] {
			out = append(out, name)
		}
	}
	return out
}

// changes are the changes of the kind table's rows for custom resources that a batch of events
// causes.
type changes struct {
	gone []schema.GroupResource
	rows map[schema.GroupResource][]rest.Addition
}

func (ch *changes) remove(gr schema.GroupResource) {
	delete(ch.rows, gr)
	ch.gone = append(ch.gone, gr)
}

// take processes a batch of events. The argument gone are definitions that were deleted while there
// was no watch. inOrder reports whether the events are ordered by revision, which initial events
// are not.
func (c *Controller) take(events []store.Event, gone []string, inOrder bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := &changes{rows: make(map[schema.GroupResource][]rest.Addition)}
	for _, name := range gone {
		c.forget(name, ch)
	}
	for i := range events {
		if inOrder {
			c.seen = max(c.seen, events[i].Revision)
		}
		switch e := &events[i]; e.Type {
		case store.Deleted:
			c.forget(e.Record.Key, ch)
		case store.Added, store.Modified:
			c.learn(e.Record, ch)
		}
	}
	if len(ch.gone)+len(ch.rows) > 0 {
		var rows []rest.Addition
		for _, list := range ch.rows {
			rows = append(rows, list...)
		}
		if err := c.cfg.API.Change(ch.gone, rows); err != nil {
			c.log.Error("Failed to serve custom resources", "err", err)
		}
	}
	close(c.moved)
	c.moved = make(chan struct{})
}

// forget removes a CustomResourceDefinition and makes its names free for other definitions.
func (c *Controller) forget(name string, ch *changes) {
	e := c.known[name]
	if e == nil {
		return
	}
	delete(c.known, name)
	g := c.groups[e.group]
	g.taken.count(&e.names, -1)
	if delete(g.members, name); len(g.members) == 0 {
		delete(c.groups, e.group)
	}
	if e.served != nil {
		ch.remove(schema.ParseGroupResource(name))
	}
	c.reconsider(g)
}

// reconsider queues the CustomResourceDefinitions of a group that lack some of their names, because
// names have become free.
func (c *Controller) reconsider(g *group) {
	for name, e := range g.members {
		if e.refused {
			c.queue.Add(name)
		}
	}
}

// learn processes the new state of a CustomResourceDefinition.
func (c *Controller) learn(r *store.Record, ch *changes) {
	crd, err := definitionOf(r)
	if err != nil {
		c.log.Error("Failed to decode custom resource definition", "name", r.Key, "err", err)
		return
	}
	e := c.known[r.Key]
	if e == nil {
		_, groupName, _ := strings.Cut(r.Key, ".")
		e = &entry{group: groupName}
		g := c.groups[groupName]
		if g == nil {
			g = &group{taken: newTaken(), members: make(map[string]*entry)}
			c.groups[groupName] = g
		}
		c.known[r.Key], g.members[r.Key] = e, e
	}
	e.record = r
	c.grant(e, &crd.Status.AcceptedNames)
	e.refused = !apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.NamesAccepted)
	if !e.refused {
		c.reconsider(c.groups[e.group])
	}
	c.queue.Add(r.Key)
	c.serve(e, crd, ch)
}

// serve determines the rows of the kind table for a CustomResourceDefinition, and records in ch how
// they change.
func (c *Controller) serve(e *entry, crd *apiextensionsv1.CustomResourceDefinition, ch *changes) {
	gr := schema.ParseGroupResource(crd.Name)
	if !servable(crd) || c.builtIn(gr) {
		if e.served != nil {
			e.served = nil
			ch.remove(gr)
		}
		return
	}
	d, err := c.newDefinition(e.record, crd)
	if err != nil {
		c.log.Error("Failed to serve custom resource definition", "name", crd.Name, "err", err)
		return
	}
	terminating := apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Terminating)
	if e.served != nil && e.served.mark == d.mark {
		if terminating == e.terminating {
			return
		}
		d = e.served // keep the existing definition, which may have created its schemas and converter
	}
	e.served, e.terminating = d, terminating
	rows := slices.DeleteFunc(d.rows(crd, terminating), func(a rest.Addition) bool {
		return slices.Contains(c.cfg.Own, schema.GroupVersion{Group: a.Row.Group, Version: a.Row.Version})
	})
	if len(rows) == 0 {
		ch.remove(gr)
		return
	}
	ch.rows[gr] = rows
}

// servable reports whether a CustomResourceDefinition has all the names (plural, singular, kind and
// list kind) that the server needs to serve it, and whether these names have been accepted, now or
// at the time when the definition was established.
func servable(crd *apiextensionsv1.CustomResourceDefinition) bool {
	n := &crd.Status.AcceptedNames
	return n.Plural != "" && n.Singular != "" && n.Kind != "" && n.ListKind != "" &&
		(apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.NamesAccepted) ||
			apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established))
}

// builtIn reports whether gr is a built-in resource of this server.
func (c *Controller) builtIn(gr schema.GroupResource) bool {
	row := c.cfg.API.Row(gr)
	return row != nil && !row.Custom
}

func (c *Controller) newDefinition(r *store.Record, crd *apiextensionsv1.CustomResourceDefinition) (*definition,
	error) {
	stored, err := apihelpers.GetCRDStorageVersion(crd)
	if err != nil {
		return nil, err
	}
	mark, err := markOf(crd)
	return &definition{
		record: r, mark: mark, group: crd.Spec.Group, kind: crd.Status.AcceptedNames.Kind, stored: stored,
		convert: c.cfg.Converters, metadata: c.metadata, asking: newAsking(c.cfg.Clock),
	}, err
}

// Arrived reports whether gr, which this server does not serve yet, is served now. If the
// CustomResourceDefinition is established, which another server may have done, Arrived waits until
// this server serves it.
func (c *Controller) Arrived(ctx context.Context, gr schema.GroupResource) bool {
	if gr.Group == "" || c.builtIn(gr) {
		return false
	}
	rec, err := c.definitions().Get(ctx, "", gr.String(), "")
	if err != nil {
		return false
	}
	crd, err := definitionOf(rec)
	if err != nil || !servable(crd) {
		return false
	}
	timeout := c.cfg.Clock.After(arriveWait)
	for {
		c.mu.Lock()
		e, moved := c.known[rec.Key], c.moved
		there := c.seen >= rec.Revision || e != nil && e.record.Revision >= rec.Revision
		c.mu.Unlock()
		if there {
			return true
		}
		select {
		case <-moved:
		case <-timeout:
			return false
		case <-ctx.Done():
			return false
		}
	}
}
