// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/wire"
)

// errApart ends an attempt to make two writes of a deletion one: there is to be no
// mark that an update could be written with, or no end without a mark.
var errApart = errors.New("the writes are to be made one by one")

// End returns what store.Config has as End for objects of row. One that was marked as
// ending gracefully and is gone before its time was deleted without a grace period: it
// is told of as if that had been written before.
func End(row *resource.Row) func([]byte) ([]byte, bool) {
	if row.GracefulDelete == nil || row.Codec != nil {
		return nil
	}
	return wire.EndNow
}

// UpdateAndDelete is Update, of a subresource, and then Delete. Where an object
// ends gracefully both are one write: whoever watches sees the update together with
// the deletion timestamp. Admission judges each as if it came alone.
func (r *Registry) UpdateAndDelete(ctx context.Context, u Update, options metav1.DeleteOptions) error {
	together, err := r.endTogether(ctx, u, options)
	if together || err != nil {
		return err
	}
	if _, _, err := r.Update(ctx, u); err != nil {
		return err
	}
	_, _, err = r.Delete(ctx, u.Namespace, u.Name, options)
	return err
}

// endTogether returns false when nothing has been done, since it takes two writes.
func (r *Registry) endTogether(ctx context.Context, u Update, options metav1.DeleteOptions) (bool, error) {
	if h := &r.row.Hooks; h.BeforeDelete != nil || h.AfterUpdate != nil || r.row.GracefulDelete == nil {
		return false, nil
	}
	up, err := r.updateOf(&u)
	if err != nil {
		return false, err
	}
	d, err := r.deletion(r.row.Version, u.Namespace, u.Name, options)
	if err != nil {
		return false, err
	}
	d.first = up
	ctx = r.context(ctx, u.Namespace)
	marked, now, err := d.mark(ctx)
	switch {
	case errors.Is(err, errApart) || tooLarge(err):
		return false, nil
	case err != nil:
		return false, err
	case now:
		_, _, err = d.remove(ctx, marked, true)
	}
	return true, err
}

// before is the object that the deletion marks.
func (d *deletion) before(ctx context.Context, cur *store.Record) (resource.Object, error) {
	if d.first == nil {
		return d.view(cur)
	}
	existing, err := cur.Object()
	if err != nil {
		return nil, err
	}
	obj, _, err := d.first.next(ctx, existing) // hooks of updates are not for subresources
	return obj, err
}
