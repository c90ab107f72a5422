// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"golang.org/x/crypto/nacl/secretbox"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"

	"keelson.dev/keelson/pkg/epoch"
)

// Contents says what is in a store.
type Contents struct {
	Revision, Epoch int64
	Objects         []Count // sorted
	// Sealed is the number of objects that were encrypted and that the keys could decrypt, and Foreign
	// the number of those that are encrypted by another service, so that their keys are not in the
	// backup.
	Sealed, Foreign int
	// Other is the number of keys that are no objects.
	Other int
}

// Count is the number of objects of a kind in a namespace.
type Count struct {
	Kind      string // with its group, for example Deployment.apps
	Namespace string
	Number    int
}

// revisionLength is the length of a key in etcd's bucket: the revision, "_", and the number of the change
// in its transaction. The key of a deletion is one byte longer.
const revisionLength = 17

// minDatabase is the size of the smallest database, which has four pages.
const minDatabase = 4 * 4096

var (
	keyBucket = []byte("key")
	// errLost is returned if a store has Secrets that none of the keys can decrypt.
	errLost = errors.New("no encryption key can decrypt it")
)

// Inspect reads the snapshot of a store, which is the file with the given path, and checks that the keys
// can decrypt what is encrypted. It does not change the file.
func Inspect(ctx context.Context, path string, keys []apiserverv1.Key) (c *Contents, err error) {
	// A damaged database can refer to pages that do not exist.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			c, err = nil, fmt.Errorf("%w: store: %v", ErrDamaged, p)
		}
	}()
	if err := checkHash(path); err != nil {
		return nil, err
	}
	db, err := bbolt.Open(path, 0o400, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("%w: store: %w", ErrDamaged, err)
	}
	defer db.Close()
	c = &Contents{}
	err = db.View(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket(keyBucket)
		if bucket == nil {
			return fmt.Errorf("%w: it is not a store", ErrDamaged)
		}
		return c.read(ctx, bucket, keys)
	})
	return c, err
}

// checkHash checks the hash that etcd has added to the end of a snapshot.
func checkHash(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	size := info.Size() - sha256.Size
	if size < minDatabase {
		return fmt.Errorf("%w: the store is too short", ErrDamaged)
	}
	h := sha256.New()
	if _, err := io.CopyN(h, f, size); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if want, err := io.ReadAll(f); err != nil || !bytes.Equal(want, h.Sum(nil)) {
		return fmt.Errorf("%w: the hash of the store is wrong", ErrDamaged)
	}
	return nil
}

// read fills c with what is in the bucket of a store. The bucket has each version of each key, in the order
// of the revisions.
func (c *Contents) read(ctx context.Context, bucket *bbolt.Bucket, keys []apiserverv1.Key) error {
	last := map[string][revisionLength]byte{}
	err := bucket.ForEach(func(at, value []byte) error {
		var kv mvccpb.KeyValue
		if len(at) < revisionLength || proto.Unmarshal(value, &kv) != nil {
			return fmt.Errorf("%w: store: malformed entry", ErrDamaged)
		}
		c.Revision = max(c.Revision, int64(binary.BigEndian.Uint64(at)))
		if len(at) > revisionLength { // the key was deleted
			delete(last, string(kv.Key))
		} else if len(kv.Key) > 0 { // a restore leaves an entry without a key
			last[string(kv.Key)] = [revisionLength]byte(at)
		}
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	counts := map[Count]int{}
	for key, at := range last {
		var kv mvccpb.KeyValue
		if err := proto.Unmarshal(bucket.Get(at[:]), &kv); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrDamaged, key, err)
		}
		if err := c.count(counts, key, kv.Value, keys); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	for k, n := range counts {
		k.Number = n
		c.Objects = append(c.Objects, k)
	}
	slices.SortFunc(c.Objects, func(x, y Count) int {
		return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Namespace, y.Namespace))
	})
	return nil
}

// count counts a key with its value.
func (c *Contents) count(counts map[Count]int, key string, value []byte, keys []apiserverv1.Key) error {
	if strings.HasSuffix(key, epoch.Key("")) {
		number, err := epoch.Parse(string(value))
		c.Epoch = number
		return err
	}
	plain, sealed, err := open(value, keys)
	if errors.Is(err, errForeign) {
		c.Foreign++
		return nil
	}
	if err != nil {
		return err
	}
	if sealed {
		c.Sealed++
	}
	if of, ok := identify(plain); ok {
		counts[of]++
	} else {
		c.Other++
	}
	return nil
}

// Prefixes of values that Kubernetes' API servers encrypt.
const (
	sealedPrefix = "k8s:enc:"
	ownPrefix    = sealedPrefix + "secretbox:v1:"
	nonceLength  = 24
)

var errForeign = errors.New("it is encrypted by another service")

// open returns a value, decrypted if it is encrypted.
func open(value []byte, keys []apiserverv1.Key) (plain []byte, sealed bool, err error) {
	if !bytes.HasPrefix(value, []byte(sealedPrefix)) {
		return value, false, nil
	}
	rest, own := bytes.CutPrefix(value, []byte(ownPrefix))
	if !own {
		return nil, true, errForeign
	}
	name, box, _ := bytes.Cut(rest, []byte(":"))
	for _, k := range keys {
		secret, err := base64.StdEncoding.DecodeString(k.Secret)
		if k.Name != string(name) || err != nil || len(secret) != 32 || len(box) < nonceLength {
			continue
		}
		nonce, secretKey := [nonceLength]byte(box), [32]byte(secret)
		if plain, ok := secretbox.Open(nil, box[nonceLength:], &nonce, &secretKey); ok {
			return plain, true, nil
		}
	}
	return nil, true, errLost
}

// protobufPrefix is before objects that are stored as protobuf.
var protobufPrefix = []byte("k8s\x00")

// identify returns the kind and the namespace of a stored object.
func identify(value []byte) (of Count, ok bool) {
	var object metav1.PartialObjectMetadata
	if raw, ok := bytes.CutPrefix(value, protobufPrefix); ok {
		var u runtime.Unknown
		if u.Unmarshal(raw) != nil {
			return of, false
		}
		object.TypeMeta = metav1.TypeMeta{APIVersion: u.APIVersion, Kind: u.Kind}
		var meta metav1.PartialObjectMetadata // all objects have their metadata in the same field
		if meta.Unmarshal(u.Raw) != nil {
			return of, false
		}
		object.ObjectMeta = meta.ObjectMeta
	} else if json.Unmarshal(value, &object) != nil {
		return of, false
	}
	gv, err := schema.ParseGroupVersion(object.APIVersion)
	if err != nil || object.Kind == "" {
		return of, false
	}
	return Count{Kind: gv.WithKind(object.Kind).GroupKind().String(), Namespace: object.Namespace}, true
}
