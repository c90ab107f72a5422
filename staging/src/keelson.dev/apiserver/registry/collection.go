// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/store/kv"
)

const (
	collectionWorkers = 4             // number of objects of one collection that are deleted concurrently
	collectionPage    = 1000          // number of objects that are listed at a time
	together          = kv.MaxChanges // maximum number of objects that are deleted at one revision
)

// DeleteCollection deletes every object that list selects, or only one page of them if list.Limit
// is set. It returns the list from before the deletes.
func (r *Registry) DeleteCollection(ctx context.Context, namespace string, options metav1.DeleteOptions,
	list metav1.ListOptions) (*store.Page, error) {
	return r.DeleteCollectionIn(ctx, r.row.Version, namespace, options, list)
}

// DeleteCollectionIn is like DeleteCollection, for a request in the given served version. If objects
// cannot be read, it returns an error and the page with these objects.
func (r *Registry) DeleteCollectionIn(ctx context.Context, version, namespace string,
	options metav1.DeleteOptions, list metav1.ListOptions) (*store.Page, error) {
	limited := list.Limit > 0
	if !limited {
		list.Limit = collectionPage
	}
	var all *store.Page
	for {
		page, err := r.List(ctx, namespace, list)
		if err != nil {
			return nil, err
		}
		if err := page.ReadError(); err != nil {
			return page, err // as in Kubernetes, no object of the page is deleted
		}
		if err := r.deletePage(ctx, version, page.Records, options); err != nil {
			return nil, err
		}
		if all == nil {
			all = page
		} else {
			all.Records = append(all.Records, page.Records...)
			all.Continue, all.Remaining = "", nil
		}
		if limited || page.Continue == "" {
			return all, nil
		}
		list.Continue, list.ResourceVersion, list.ResourceVersionMatch = page.Continue, "", ""
	}
}

// deletePage deletes the objects of one page of a list with collectionWorkers goroutines. It stops
// at the first error.
func (r *Registry) deletePage(ctx context.Context, version string, records []*store.Record,
	options metav1.DeleteOptions) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	size, remove := 1, func(ctx context.Context, records []*store.Record) error {
		return r.deleteRecord(ctx, version, records[0], options)
	}
	if r.canDeleteTogether(&options) {
		size, remove = together, func(ctx context.Context, records []*store.Record) error {
			return r.deleteTogether(ctx, version, records, options)
		}
	}
	queue := make(chan []*store.Record)
	var workers sync.WaitGroup
	for range min(collectionWorkers, len(records)) {
		workers.Go(func() {
			for part := range queue {
				if err := remove(ctx, part); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
feed:
	for part := range slices.Chunk(records, size) {
		select {
		case queue <- part:
		case <-ctx.Done():
			break feed
		}
	}
	close(queue)
	workers.Wait()
	return context.Cause(ctx)
}

// canDeleteTogether reports whether several objects of the kind may be deleted at one revision.
// This is so for objects that expire (events), if no hook runs and no other object depends on them.
//
// A client whose watch breaks between two events of one revision receives both again when it
// resumes, and so may receive the deletion of an object twice. Clients that watch expiring objects
// have to expect this in any case, because the objects of one lease expire at one revision.
func (r *Registry) canDeleteTogether(options *metav1.DeleteOptions) bool {
	h := &r.row.Hooks
	return r.row.TTL != nil && r.row.GracefulDelete == nil &&
		r.row.DefaultGarbageCollection == unsupportedGarbageCollection &&
		h.BeforeDelete == nil && h.Ending == nil && h.AfterDelete == nil && !isDryRun(options.DryRun)
}

// deleteTogether deletes records at one revision. If one of the objects has changed or has
// finalizers, it deletes the objects one after the other.
func (r *Registry) deleteTogether(ctx context.Context, version string, records []*store.Record,
	options metav1.DeleteOptions) error {
	done := true
	for _, rec := range records {
		admitted, err := r.admitRecord(ctx, version, rec, options)
		if err != nil {
			return err
		}
		done = done && admitted
	}
	if done {
		var err error
		if done, err = r.store.DeleteAll(ctx, records); err != nil {
			return err
		}
	}
	for i := 0; !done && i < len(records); i++ {
		if err := r.deleteRecord(ctx, version, records[i], options); err != nil {
			return err
		}
	}
	return nil
}

// admitRecord runs the admission plugins for the deletion of a record. It returns false if
// finalizers keep the object.
func (r *Registry) admitRecord(ctx context.Context, version string, rec *store.Record,
	options metav1.DeleteOptions) (bool, error) {
	namespace, _ := r.split(rec.Key)
	d, err := r.partOf(version, rec, options)
	if err != nil {
		return false, err
	}
	ctx = r.context(ctx, namespace)
	obj, err := r.readShallow(rec)
	if err != nil {
		return false, err
	}
	if err := d.preconditions(obj); err != nil {
		return false, err
	}
	return len(obj.GetFinalizers()) == 0, d.w.admitDelete(ctx, obj)
}

func (r *Registry) deleteRecord(ctx context.Context, version string, rec *store.Record,
	options metav1.DeleteOptions) error {
	namespace, _ := r.split(rec.Key)
	d, err := r.partOf(version, rec, options)
	if err != nil {
		return err
	}
	if _, _, err = d.run(r.context(ctx, namespace)); apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// partOf returns the deletion of one object of a collection. Its admission attributes have no name,
// because the request has none.
func (r *Registry) partOf(version string, rec *store.Record, options metav1.DeleteOptions) (*deletion, error) {
	namespace, name := r.split(rec.Key)
	d, err := r.deletion(version, namespace, name, *options.DeepCopy())
	if err != nil {
		return nil, err
	}
	d.w.name = ""
	return d, nil
}

// split returns the namespace and the name in an object's key in the store.
func (r *Registry) split(key string) (namespace, name string) {
	for i := len(key) - 1; r.row.Namespaced && i >= 0; i-- {
		if key[i] == '/' {
			return key[:i], key[i+1:]
		}
	}
	return "", key
}
