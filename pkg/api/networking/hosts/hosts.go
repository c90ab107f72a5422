// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hosts says which hosts an Ingress names and since when.
//
// An Ingress names its hosts since it was created, except those that it took on
// later: the admission plugin IngressHosts records these in an annotation, and
// lets no client write it. Without the plugin the annotation is a client's: it can
// make a claim younger than the Ingress, never older.
package hosts

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/ptr"
)

// Since is the annotation with the times at which an Ingress took on hosts after
// it was created, as a JSON object.
const Since = "ingress.keelson.dev/hosts-since"

// Names returns the hosts that an Ingress claims: those of its rules, and the
// exact hosts of its certificates. A rule without a host and a default backend
// claim "". A wildcard of a certificate claims nothing: it says what the
// certificate is good for, not what is served.
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

// Name returns a host in lower case, without the dot at its end.
func Name(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

// Times returns when an Ingress took on those hosts that it has not named since
// its creation.
func Times(ing *networkingv1.Ingress) map[string]time.Time {
	var out map[string]time.Time
	if text, ok := ing.Annotations[Since]; ok {
		if json.Unmarshal([]byte(text), &out) != nil {
			return nil
		}
	}
	return out
}

// Record writes the annotation of an Ingress that is created (old is nil) or
// updated now, whatever the client has written there. An Ingress of another class
// than before names all its hosts from now on.
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
