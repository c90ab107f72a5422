// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/emulation"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/release"
)

// RuntimeConfig is the parsed flag --runtime-config, with which the operator turns APIs on (true)
// or off (false). A key is "group/version", "group/version/resource", "api/all", "api/ga",
// "api/beta" or "api/alpha".
type RuntimeConfig map[string]bool

// Served returns the rows of the kind table for the resources that a server with this configuration
// serves. Each row has only the versions that the server serves. If several entries of config apply
// to a version, the most specific one decides. If none applies, the version is served if it is
// stable or if its row is OnByDefault. Versions that the release in deps.Emulated does not serve
// are never served.
//
// scheme must have the kinds of all versions, including those that are not served. deps has the
// dependencies of the rows.
func Served(config RuntimeConfig, scheme *runtime.Scheme, deps Deps) ([]*resource.Row, error) {
	rows := Rows(deps)
	if err := checkKeys(config, deps.enabled, scheme); err != nil {
		return nil, err
	}
	if err := config.checkIntroduced(rows, deps.enabled, deps.Emulated); err != nil {
		return nil, err
	}
	served := make([]*resource.Row, 0, len(rows))
	for _, row := range rows {
		versions := slices.DeleteFunc(slices.Clone(row.Versions), func(v resource.Version) bool {
			return !config.enables(row, v.Name) || row.Feature != "" && !deps.enabled(row.Feature) ||
				deps.Emulated.Before(v.Introduced) || removed(&v, deps.Emulated)
		})
		if len(versions) < len(row.Versions) && row.Group == "" {
			return nil, fmt.Errorf("runtime-config: %s of the core group (v1) cannot be turned off", row.Resource)
		}
		if len(versions) == 0 {
			if row.Group == apiregistrationv1.GroupName {
				return nil, fmt.Errorf("API group/version %s must be enabled", apiregistrationv1.SchemeGroupVersion)
			}
			continue
		}
		row.StoredForms = append(slices.Clone(row.StoredForms), storedVersions(row, versions)...)
		row.Versions, row.Scheme = versions, scheme
		served = append(served, row)
	}
	pair(served)
	return served, nil
}

// removed reports whether the emulated release does not serve a version any more.
func removed(v *resource.Version, emulated release.Emulated) bool {
	own := uint(emulation.Previous) + 1
	return v.Removed != 0 && v.Removed <= own && !emulated.Before(v.Removed)
}

// pair sets the Twin of the rows that serve the same objects in two API groups.
func pair(rows []*resource.Row) {
	for _, row := range rows {
		i := slices.IndexFunc(rows, func(r *resource.Row) bool { return r.GroupVersionKind() == row.StoredAs })
		if i >= 0 {
			row.Twin, rows[i].Twin = rows[i], row
		}
	}
}

// storedVersions returns the versions of a resource that have their own Go types and are not
// served. The server must still read objects that were stored in these versions while they were
// served.
func storedVersions(row *resource.Row, served []resource.Version) (others []resource.StoredForm) {
	for i := range row.Versions {
		v := &row.Versions[i]
		if v.ToStorage != nil && !slices.ContainsFunc(served, func(s resource.Version) bool { return s.Name == v.Name }) {
			others = append(others, v.StoredForm(schema.GroupVersionKind{Group: row.Group, Version: v.Name, Kind: row.Kind}))
		}
	}
	return others
}

// The keys of RuntimeConfig that apply to many versions: to all, or to those of one stability. The
// name of a version shows its stability: "v1" is stable, "v1beta1" is beta, "v1alpha1" is alpha.
const (
	allVersions   = "api/all"
	gaVersions    = "api/ga"
	betaVersions  = "api/beta"
	alphaVersions = "api/alpha"
	// legacyVersions once stood for the versions of the core group. The key is still accepted, but
	// has no effect.
	legacyVersions = "api/legacy"
)

// enables reports whether the server has to serve the version called name of a resource.
func (c RuntimeConfig) enables(row *resource.Row, name string) bool {
	version := schema.GroupVersion{Group: row.Group, Version: name}.String()
	stage := gaVersions
	switch {
	case strings.Contains(name, "alpha"):
		stage = alphaVersions
	case strings.Contains(name, "beta"):
		stage = betaVersions
	}
	for _, key := range []string{version + "/" + row.Resource, version, stage, allVersions} {
		if on, ok := c[key]; ok {
			return on
		}
	}
	return stage == gaVersions || row.OnByDefault
}

// checkIntroduced returns an error if c turns on a version or resource that is later than the
// emulated release. As in Kubernetes, it is no error to turn on a version that has other resources
// in the emulated release.
func (c RuntimeConfig) checkIntroduced(rows []*resource.Row, enabled func(feature string) bool,
	emulated release.Emulated) error {
	later, earlier := map[schema.GroupVersion]bool{}, map[schema.GroupVersion]bool{}
	for _, row := range rows {
		if row.Feature != "" && !enabled(row.Feature) {
			continue
		}
		for _, v := range row.Versions {
			gv := schema.GroupVersion{Group: row.Group, Version: v.Name}
			if !emulated.Before(v.Introduced) {
				earlier[gv] = true
				continue
			}
			later[gv] = true
			if c[gv.String()+"/"+row.Resource] {
				return fmt.Errorf("cannot enable resource %s in runtime-config because it is introduced at 1.%d after the "+
					"current version %s", gv.WithResource(row.Resource), v.Introduced, emulated)
			}
		}
	}
	for _, key := range report.Keys(c) {
		if gv, err := schema.ParseGroupVersion(key); err == nil && c[key] && later[gv] && !earlier[gv] {
			return fmt.Errorf("cannot enable version %s in runtime-config because all the resources have been introduced "+
				"after the current version %s", gv, emulated)
		}
	}
	return nil
}

// notImplemented returns what Kubernetes can serve of the group version gv, or of its resource with the
// given name, but this server cannot, because the kind table does not have it: the version, the
// resource, or nothing. enabled reports whether a feature gate is on.
func notImplemented(gv schema.GroupVersion, name string, enabled func(feature string) bool) string {
	switch version := gv.String(); version {
	case "admissionregistration.k8s.io/v1alpha1", "admissionregistration.k8s.io/v1beta1",
		"coordination.k8s.io/v1alpha2", "coordination.k8s.io/v1beta1":
		return version
	case "scheduling.k8s.io/v1alpha3": // without the gate, the version has no resources in Kubernetes either
		if enabled("GenericWorkload") {
			return version
		}
	case "resource.k8s.io/v1alpha3":
		if name == "resourcepoolstatusrequests" {
			return version + "/" + name
		}
	}
	return ""
}

// checkKeys returns an error if config has invalid keys. It reports a malformed key first, then
// unknown groups, then unknown versions, and then versions and resources that are turned on although
// this server does not have them.
func checkKeys(config RuntimeConfig, enabled func(feature string) bool, scheme *runtime.Scheme) error {
	var unknown, unregistered, unserved []string
	for _, key := range report.Keys(config) {
		switch key {
		case allVersions, gaVersions, betaVersions, alphaVersions, legacyVersions:
			continue
		}
		parts := strings.Split(key, "/")
		if key == "v1" || strings.HasPrefix(key, "v1/") {
			parts = append([]string{""}, parts...)
		}
		if len(parts) < 2 || len(parts) > 3 {
			return fmt.Errorf("runtime-config invalid key %s", key)
		}
		version := schema.GroupVersion{Group: parts[0], Version: parts[1]}
		missing := notImplemented(version, strings.Join(parts[2:], ""), enabled)
		switch {
		case !scheme.IsGroupRegistered(version.Group):
			unknown = append(unknown, version.String())
		case !scheme.IsVersionRegistered(version):
			unregistered = append(unregistered, version.String())
		case config[key] && missing != "":
			unserved = append(unserved, missing)
		}
	}
	switch {
	case len(unknown) > 0:
		return fmt.Errorf("unknown api groups %s", strings.Join(slices.Compact(unknown), ","))
	case len(unregistered) > 0:
		return fmt.Errorf("group version %s that has not been registered", unregistered[0])
	case len(unserved) > 0:
		return fmt.Errorf("runtime-config: this server does not have %s", strings.Join(slices.Compact(unserved), ","))
	}
	return nil
}
