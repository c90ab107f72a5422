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

// errTwoWrites is returned if a deletion cannot combine two writes: the object cannot be marked
// together with the update, or has to be marked before it is removed.
var errTwoWrites = errors.New("the writes cannot be combined")

// FinalState returns the function for store.Config.FinalState. If an object is removed before its
// grace period is over, a client has deleted it with a grace period of 0. Watchers receive the last
// state as if that grace period had been stored first.
func FinalState(row *resource.Row) func([]byte) ([]byte, bool) {
	if row.GracefulDelete == nil || row.Codec != nil {
		return nil
	}
	return wire.EndNow
}

// UpdateAndDelete updates a subresource and then deletes the object. If the deletion is graceful
// and the kind has no hooks that prevent it, both are stored in one write: watchers receive the
// update together with the deletion timestamp. Admission runs for both.
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

// endTogether updates the object and marks it as being deleted in one write. If that is not
// possible, it changes nothing and returns false.
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
	case errors.Is(err, errTwoWrites) || tooLarge(err):
		return false, nil
	case err != nil:
		return false, err
	case now:
		_, _, err = d.remove(ctx, marked, true)
	}
	return true, err
}

// before returns the object that the deletion marks. If an update is stored together with the mark,
// that is the updated object.
func (d *deletion) before(ctx context.Context, cur *store.Record) (resource.Object, error) {
	if d.first == nil {
		return d.read(cur)
	}
	existing, err := cur.Object()
	if err != nil {
		return nil, err
	}
	obj, _, err := d.first.next(ctx, existing) // subresources have no BeforeUpdate hook
	return obj, err
}
