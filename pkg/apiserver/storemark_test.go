// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store/kv"
	"keelson.dev/apiserver/store/kv/memory"
	"keelson.dev/keelson/pkg/apiserver"
	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

const markKey = "/registry/keelson.dev/store"

// TestStoreMark checks that a server marks its database with the first release that can read it, and
// that the mark of a later server stays.
func TestStoreMark(t *testing.T) {
	db := memory.New(clock.Real())
	dir := ""
	for _, step := range []struct {
		name    string
		emulate bool
		want    string
	}{{"emulating server", true, "1.35"}, {"server", false, "1.36"}, {"emulating server after it", true, "1.36"}} {
		s := testserver.Start(t, testserver.Options{KV: db, Dir: dir, Configure: func(c *config.Config) {
			if step.emulate {
				c.Features.Emulated = 36
			}
		}})
		dir = s.Dir
		item, _, err := db.Get(t.Context(), markKey)
		if err != nil || item == nil || string(item.Value) != `{"minCompatibilityVersion":"`+step.want+`"}` {
			t.Errorf("%s: mark is %v, %v, want %s", step.name, item, err, step.want)
		}
		s.Stop(t)
	}
}

// TestNewerStore checks that a server does not start, and changes nothing, if its database has the mark
// of a server that is too new.
func TestNewerStore(t *testing.T) {
	for _, tc := range []struct{ name, mark, want string }{
		{"newer", `{"minCompatibilityVersion":"1.38"}`, "the database cannot be used: it was written by a newer version; " +
			"only servers of Kubernetes 1.38 or later can read it, and this server has version 1.37"},
		{"no version", `{}`, `the database cannot be used: key /registry/keelson.dev/store: could not parse "" as version`},
		{"no mark", `x`, "the database cannot be used: key /registry/keelson.dev/store: invalid character 'x' looking for " +
			"beginning of value"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			db := memory.New(clock.Real())
			if r, err := db.Put(t.Context(), markKey, []byte(tc.mark), 0, 0); err != nil || !r.OK {
				t.Fatal(r, err)
			}
			before, err := db.Revision(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			server := newServer(t, db)
			if err := server.Run(t.Context()); err == nil || err.Error() != tc.want {
				t.Errorf("error is %v, want %s", err, tc.want)
			}
			if after, err := db.Revision(t.Context()); err != nil || after != before {
				t.Errorf("revision is %d, %v, want %d", after, err, before)
			}
		})
	}
}

// TestUnreachableStoreMark checks that a server waits while its database cannot be reached, and that
// two servers may mark it at the same time.
func TestUnreachableStoreMark(t *testing.T) {
	db := &unreachable{Store: memory.New(clock.Real())}
	testserver.Start(t, testserver.Options{KV: db})
	if got := db.attempts.Load(); got < 3 {
		t.Errorf("the server started after %d attempts", got)
	}
}

// unreachable is a store whose first read of the mark fails, and whose first write of the mark finds
// that another server was faster.
type unreachable struct {
	kv.Store
	attempts atomic.Int32
}

func (u *unreachable) Get(ctx context.Context, key string) (*kv.Item, int64, error) {
	if key == markKey && u.attempts.Add(1) == 1 {
		return nil, 0, errors.New("unavailable")
	}
	return u.Store.Get(ctx, key)
}

func (u *unreachable) Put(
	ctx context.Context, key string, value []byte, expect, ttl int64, conditions ...kv.Unchanged,
) (kv.WriteResult, error) {
	if key == markKey && expect == 0 {
		other := strings.Replace(string(value), "1.36", "1.35", 1)
		if r, err := u.Store.Put(ctx, key, []byte(other), 0, 0); err != nil || !r.OK {
			return r, err
		}
	}
	return u.Store.Put(ctx, key, value, expect, ttl, conditions...)
}

// newServer returns a server with the minimal configuration that has db as its database.
func newServer(t *testing.T, db kv.Store) *apiserver.Server {
	t.Helper()
	key := filepath.Join(testserver.Start(t, testserver.Options{}).Dir, "sa.key")
	cfg := config.Default()
	cfg.ServiceAccountIssuers, cfg.ServiceAccountSignKey = []string{"https://a"}, key
	cfg.ServiceAccountKeyFiles = []string{key}
	server, err := apiserver.New(cfg, apiserver.Deps{KV: db, Listener: listen(t)})
	if err != nil {
		t.Fatal(err)
	}
	return server
}
