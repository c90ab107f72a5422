// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hosts returns the hosts that an Ingress claims, and the times since which the Ingress has
// claimed them. pkg/ingress uses the times to decide which namespace owns a host.
//
// An Ingress claims a host since the Ingress was created, unless an annotation has a later time. If
// an update adds a host, the admission plugin IngressHosts records the time in this annotation. The
// plugin overwrites what clients send. If the plugin is off, clients can write the annotation, but
// they can only make a claim younger than the Ingress, never older.
package hosts

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/ptr"
)

// Since is the key of the annotation with the times at which hosts were added to an Ingress after
// it was created. The value is a JSON object from hosts to times.
const Since = "ingress.keelson.dev/hosts-since"

// Names returns the hosts that an Ingress claims: the hosts of its rules and the exact hosts of its
// certificates. A rule without a host and a default backend claim "". A wildcard in a certificate
// claims no host: it only limits where the certificate is valid.
func Names(ing *networkingv1.Ingress) []string {
	var out []string
	if ing.Spec.DefaultBackend != nil {
		out = append(out, "")
	}
	for i := range ing.Spec.Rules {
		out = append(out, Name(ing.Spec.Rules[i].Host))
	}
	for i := range ing.Spec.TLS {
		for _, host := range ing.Spec.TLS[i].Hosts {
			if !strings.HasPrefix(host, "*") {
				out = append(out, Name(host))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Name returns a host in lower case and without a trailing dot.
func Name(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

// Times returns the times at which hosts were added to an Ingress after it was created, by host.
func Times(ing *networkingv1.Ingress) map[string]time.Time {
	var out map[string]time.Time
	if text, ok := ing.Annotations[Since]; ok {
		if json.Unmarshal([]byte(text), &out) != nil {
			return nil
		}
	}
	return out
}

// Record sets the annotation of an Ingress that a client creates (old is nil) or updates now. It
// overwrites the value that the client sent. If the update changes the class, the Ingress claims
// all its hosts only since now.
func Record(ing, old *networkingv1.Ingress, now time.Time) error {
	delete(ing.Annotations, Since)
	if old == nil {
		return nil
	}
	before, kept := Names(old), Times(old)
	sameClass := ptr.Deref(ing.Spec.IngressClassName, "") == ptr.Deref(old.Spec.IngressClassName, "")
	times := map[string]time.Time{}
	for _, name := range Names(ing) {
		at, known := kept[name]
		switch {
		case !sameClass || !slices.Contains(before, name):
			times[name] = now.UTC().Truncate(time.Second)
		case known:
			times[name] = at
		}
	}
	if len(times) == 0 {
		return nil
	}
	text, err := json.Marshal(times)
	if err != nil {
		return err
	}
	if ing.Annotations == nil {
		ing.Annotations = map[string]string{}
	}
	ing.Annotations[Since] = string(text)
	return nil
}
