// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/api/clock"
)

// guise is a thing in another form: the field for the node is called Host.
type guise struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Host string
	Data string
}

func (g *guise) DeepCopyObject() runtime.Object {
	out := *g
	out.ObjectMeta = *g.ObjectMeta.DeepCopy()
	return &out
}

func thingOf(obj Object) (Object, error) {
	g, ok := obj.(*guise)
	if !ok {
		return nil, fmt.Errorf("convert %T: not a guise", obj)
	}
	return &thing{ObjectMeta: g.ObjectMeta, Node: g.Host, Data: g.Data}, nil
}

// guiseCodec stores a guise as the bytes of the thing with the same content.
type guiseCodec struct{ thingCodec }

func (c guiseCodec) Encode(obj Object) ([]byte, error) {
	t, err := thingOf(obj)
	if err != nil {
		return nil, err
	}
	return c.thingCodec.Encode(t)
}

func (c guiseCodec) Decode(data []byte, rev int64) (Object, error) {
	obj, err := c.thingCodec.Decode(data, rev)
	if err != nil {
		return nil, err
	}
	t := obj.(*thing)
	return &guise{ObjectMeta: t.ObjectMeta, Host: t.Node, Data: t.Data}, nil
}

func guiseAttrs(obj Object) Attrs {
	g := obj.(*guise)
	return Attrs{Labels: g.Labels, Fields: fields.Set{"spec.host": g.Host}}
}

var guises = schema.GroupResource{Group: "example.org", Resource: "guises"}

// guiseStores returns an alias of the store of things, and an ordinary store of guises on the same
// keys.
func guiseStores(e *env) (alias, alone *Store) {
	cfg := Config{Backend: e.backend, Prefix: "things", GroupResource: guises, Codec: guiseCodec{},
		Attrs: guiseAttrs, IndexFields: []string{"spec.host"}}
	alone = New(cfg)
	cfg.Alias = &Alias{Of: e.store, Convert: thingOf, Fields: map[string]string{"spec.host": "spec.nodeName"}}
	return New(cfg), alone
}

// TestAliasIsLikeStore checks that an alias returns the same records and events as an ordinary
// store of guises on the same keys.
func TestAliasIsLikeStore(t *testing.T) {
	onEach(t, func(t *testing.T, e *env) {
		alias, alone := guiseStores(e)
		rnd := rand.New(rand.NewPCG(1, 2))
		ctx := patient(t)
		var watches [][2]Watcher
		watch := func(opts WatchOptions) {
			var pair [2]Watcher
			for i, s := range []*Store{alias, alone} {
				w, err := s.Watch(ctx, opts)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(w.Stop)
				pair[i] = w
			}
			watches = append(watches, pair)
		}
		revs := []int64{writeEither(t, ctx, rnd, e.store, alias)}
		for range 300 {
			if rnd.IntN(20) == 0 {
				watch(WatchOptions{Predicate: guisePredicate(rnd), ResourceVersion: formatRevision(revs[rnd.IntN(len(revs))])})
			}
			revs = append(revs, writeEither(t, ctx, rnd, e.store, alias))
			opts := ListOptions{Predicate: guisePredicate(rnd), Limit: rnd.Int64N(4)}
			if rnd.IntN(2) == 0 {
				opts.ResourceVersion, opts.Match = formatRevision(revs[rnd.IntN(len(revs))]), metav1.ResourceVersionMatchExact
			}
			comparePages(t, ctx, alias, alone, opts)
			key := fmt.Sprintf("ns/n%d", rnd.IntN(12))
			got, gotErr := alias.Get(ctx, key, "")
			want, wantErr := alone.Get(ctx, key, "")
			if fmt.Sprint(gotErr) != fmt.Sprint(wantErr) || gotErr == nil && guiseText(t, got) != guiseText(t, want) {
				t.Fatalf("%s is %v, %v, want %v, %v", key, got, gotErr, want, wantErr)
			}
		}
		end := revs[len(revs)-1] + 1
		for _, host := range []string{"a", "b", "c"} {
			create(t, e.store, &thing{ObjectMeta: newThing("ns", "last-"+host).ObjectMeta, Node: host})
		}
		for _, pair := range watches {
			got, want := eventsBefore(t, ctx, pair[0], end), eventsBefore(t, ctx, pair[1], end)
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("the watch delivered\n%v, want\n%v", got, want)
			}
		}
	})
}

// writeEither makes a random write to a store of things or a store of guises, and returns its
// revision.
func writeEither(t *testing.T, ctx context.Context, rnd *rand.Rand, ofThings, ofGuises *Store) int64 {
	t.Helper()
	name, host, data := fmt.Sprintf("n%d", rnd.IntN(12)), string(rune('a'+rnd.IntN(3))), fmt.Sprint(rnd.Int())
	s, obj := ofThings, Object(&thing{ObjectMeta: newThing("ns", name).ObjectMeta, Node: host, Data: data})
	if rnd.IntN(2) == 0 {
		s, obj = ofGuises, &guise{ObjectMeta: newThing("ns", name).ObjectMeta, Host: host, Data: data}
	}
	key := "ns/" + name
	var r *Record
	_, err := s.Get(ctx, key, "")
	switch {
	case err != nil:
		r, err = s.Create(ctx, key, obj, 0)
	case rnd.IntN(4) == 0:
		r, err = s.Delete(ctx, key, nil)
	default:
		r, err = s.Update(ctx, key, func(_ context.Context, cur *Record) (Object, error) {
			now, err := cur.Object()
			if err != nil {
				return nil, err
			}
			if fmt.Sprintf("%T", now) != fmt.Sprintf("%T", obj) {
				return nil, fmt.Errorf("the object to update is %T", now)
			}
			return obj, nil
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, err := r.Shared(); err != nil || fmt.Sprintf("%T", got) != fmt.Sprintf("%T", obj) ||
		got.GetResourceVersion() != formatRevision(r.Revision) {
		t.Fatalf("wrote %T at %d, %v: %+v", obj, r.Revision, err, got)
	}
	return r.Revision
}

func guisePredicate(rnd *rand.Rand) Predicate {
	var p Predicate
	switch rnd.IntN(3) {
	case 0:
		p.Fields = fields.OneTermEqualSelector("spec.host", string(rune('a'+rnd.IntN(3))))
	case 1:
		p.Fields = fields.ParseSelectorOrDie("spec.host!=a,metadata.namespace=ns")
	}
	return p
}

// guiseText formats everything that a reader sees of a record.
func guiseText(t *testing.T, r *Record) string {
	t.Helper()
	obj, err := r.Shared()
	if err != nil {
		t.Fatal(err)
	}
	g, ok := obj.(*guise)
	if !ok {
		t.Fatalf("%s is shown as %T", r.Key, obj)
	}
	return fmt.Sprint(r.Key, r.Revision, g.ResourceVersion, g.Name, g.Host, g.Data)
}

// comparePages compares all pages of two lists.
func comparePages(t *testing.T, ctx context.Context, alias, alone *Store, opts ListOptions) {
	t.Helper()
	for {
		got, err := alias.List(ctx, opts)
		if err != nil {
			t.Fatal(err)
		}
		want, err := alone.List(ctx, opts)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Records) != len(want.Records) || got.Revision != want.Revision ||
			got.Continue != want.Continue || (got.Remaining == nil) != (want.Remaining == nil) {
			t.Fatalf("list %+v: %+v, want %+v", opts, got, want)
		}
		for i, r := range got.Records {
			if guiseText(t, r) != guiseText(t, want.Records[i]) {
				t.Fatalf("list %+v has %s, want %s", opts, guiseText(t, r), guiseText(t, want.Records[i]))
			}
		}
		if got.Continue == "" {
			return
		}
		opts.Continue, opts.ResourceVersion, opts.Match = got.Continue, "", ""
	}
}

// eventsBefore returns the events of a watch with revisions less than end. It reads until the watch
// delivers an event with revision end or later.
func eventsBefore(t *testing.T, ctx context.Context, w Watcher, end int64) (out []string) {
	t.Helper()
	for {
		events, err := w.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if e.Revision >= end {
				return out
			}
			out = append(out, fmt.Sprint(e.Type, e.Revision, guiseText(t, e.Record)))
		}
	}
}

// TestAliasNamesItself checks that errors name the resource of the alias.
func TestAliasNamesItself(t *testing.T) {
	e := run(t, newMemory(t), clock.Real())
	alias, _ := guiseStores(e)
	ctx := patient(t)
	_, err := alias.Get(ctx, "ns/a", "")
	if want := `guises.example.org "a" not found`; err == nil || err.Error() != want {
		t.Errorf("Get of an absent object: %v, want %s", err, want)
	}
	create(t, e.store, newThing("ns", "a"))
	_, err = alias.Create(ctx, "ns/a", &guise{}, 0)
	if want := `guises.example.org "a" already exists`; err == nil || err.Error() != want {
		t.Errorf("Create of an existing object: %v, want %s", err, want)
	}
	alias.Close()
	if _, err := e.store.Get(ctx, "ns/a", ""); err != nil {
		t.Errorf("after the alias is closed: %v", err)
	}
}
