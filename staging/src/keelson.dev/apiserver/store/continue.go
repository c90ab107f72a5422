// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// continueVersion is the only version of continue tokens.
const continueVersion = "meta.k8s.io/v1"

// continueToken says where the next page of a list begins. It is encoded as in Kubernetes, so that
// a client may begin a list at a Kubernetes server and continue it here, or the reverse. Revision
// -1 continues with the present state; servers send it after the state of the list has been
// compacted.
type continueToken struct {
	Version  string `json:"v"`
	Revision int64  `json:"rv"`
	Start    string `json:"start"` // key without the prefix of the listed keys
}

// continueAt returns the token that continues the list of a prefix at key. The token contains key
// without the prefix. As in Kubernetes, a slash precedes it unless the resource's objects expire.
func (s *Store) continueAt(key, prefix string, rev int64) string {
	start := strings.TrimPrefix(key, prefix)
	if s.TTL == nil {
		start = "/" + start
	}
	return encodeContinue(start, rev)
}

func encodeContinue(start string, rev int64) string {
	//nolint:errchkjson // two strings and a number can always be encoded
	data, _ := json.Marshal(continueToken{Version: continueVersion, Revision: rev, Start: start})
	return base64.RawURLEncoding.EncodeToString(data)
}

// decodeContinue returns the key at which a list continues, and its revision.
func decodeContinue(token, prefix string) (key string, rev int64, err error) {
	invalid := func(err error) (string, int64, error) {
		return "", 0, apierrors.NewBadRequest(fmt.Sprintf("invalid continue token: %v", err))
	}
	data, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return invalid(fmt.Errorf("continue key is not valid: %w", err))
	}
	var t continueToken
	if err := json.Unmarshal(data, &t); err != nil {
		// The error may name the Go type of the token. Replace it by Kubernetes' name of that type,
		// which is in another package.
		words := strings.ReplaceAll(err.Error(), reflect.TypeFor[continueToken]().String(), "storage.continueToken")
		return invalid(errors.New("continue key is not valid: " + words))
	}
	switch {
	case t.Version != continueVersion:
		return invalid(fmt.Errorf("continue key is not valid: server does not recognize this encoded version %v", t.Version))
	case t.Revision == 0:
		return invalid(errors.New(
			"continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)"))
	case t.Start == "":
		return invalid(errors.New("continue key is not valid: encoded start key empty (version meta.k8s.io/v1)"))
	}
	// Reject a forged token that would read keys outside of the prefix of the list.
	start := "/" + strings.TrimPrefix(t.Start, "/")
	if path.Clean(start) != start {
		return invalid(fmt.Errorf("continue key is not valid: %v", t.Start))
	}
	return prefix + start[1:], t.Revision, nil
}
