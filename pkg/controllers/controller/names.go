// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/rand"
)

// maxGenerated is how long a name is at most to which random letters are added, and
// randomLetters how many these are: those of the API server.
const (
	maxGenerated  = 63 - randomLetters
	randomLetters = 5
)

// generate returns a name as the API server makes them from metadata.generateName.
func generate(prefix string) string {
	return prefix[:min(len(prefix), maxGenerated)] + rand.String(randomLetters)
}

// doubtful reports whether a creation that returned err may have taken effect: there was
// no answer, or the server did not know.
func doubtful(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	code := status.Status().Code
	return code >= http.StatusInternalServerError || code == http.StatusRequestTimeout
}

// keepName notes the name of an object that may have been created for key. A slot says
// which of the key's objects can take each other's place.
func (e *Expectations) keepName(key, slot, name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.names[key] == nil {
		e.names[key] = map[string][]string{}
	}
	e.names[key][slot] = append(e.names[key][slot], name)
}

// takeName returns a name that was noted for the slot, or "".
func (e *Expectations) takeName(key, slot string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := e.names[key][slot]
	if len(list) == 0 {
		return ""
	}
	e.setNames(key, slot, list[1:])
	return list[0]
}

// dropNames forgets the names of objects that are shown to exist.
func (e *Expectations) dropNames(key string, shown func(name string) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for slot, list := range e.names[key] {
		e.setNames(key, slot, slices.DeleteFunc(list, shown))
	}
}

// setNames replaces the names of a slot. The caller has the lock.
func (e *Expectations) setNames(key, slot string, list []string) {
	if len(list) > 0 {
		e.names[key][slot] = list
		return
	}
	delete(e.names[key], slot)
	if len(e.names[key]) == 0 {
		delete(e.names, key)
	}
}
