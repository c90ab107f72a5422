// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	corelisters "k8s.io/client-go/listers/core/v1"
)

// leavingPause is how long a status may be behind in a namespace that goes.
const leavingPause = 10 * time.Second

// Leaving tells whether a namespace is being deleted.
func Leaving(spaces corelisters.NamespaceLister, namespace string) bool {
	ns, err := spaces.Get(namespace)
	return err == nil && ns.DeletionTimestamp != nil
}

// AddShown is AddPaced for what a status has to show and nothing else follows
// from. In a namespace that is being deleted it waits: all that is there changes
// a few times until it is gone, and most of it is gone before anybody reads it.
func (l *Loop) AddShown(spaces corelisters.NamespaceLister, key string) {
	if namespace, _ := Split(key); Leaving(spaces, namespace) {
		l.AddAfter(key, leavingPause)
		return
	}
	l.AddPaced(key)
}
