// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/report"
)

// Served returns the rows that a server has whose operator asks for asked:
// "group/version", "group/version/resource", or "api/all", "api/ga", "api/beta"
// and "api/alpha", each on or off. What is more exact counts more. Only optional rows
// can be had or not.
func Served(asked map[string]bool) ([]*resource.Row, error) {
	rows := Rows()
	for _, key := range report.Keys(asked) {
		if err := known(rows, key, asked[key]); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(rows, func(row *resource.Row) bool { return row.Optional && !wanted(row, asked) }), nil
}

// kinds of versions, by what their names have in them.
const (
	allVersions   = "api/all"
	gaVersions    = "api/ga"
	betaVersions  = "api/beta"
	alphaVersions = "api/alpha"
)

// wanted tells whether an optional row, which has one version, is asked for.
func wanted(row *resource.Row, asked map[string]bool) bool {
	version := schema.GroupVersion{Group: row.Group, Version: row.StorageVersion}.String()
	stage := alphaVersions
	if strings.Contains(row.StorageVersion, "beta") {
		stage = betaVersions
	}
	for _, key := range []string{version + "/" + row.Resource, version, stage, allVersions} {
		if on, said := asked[key]; said {
			return on
		}
	}
	return false
}

// known says what is wrong with asking for something.
func known(rows []*resource.Row, key string, on bool) error {
	switch key {
	case allVersions, betaVersions, alphaVersions:
		return nil
	case gaVersions:
		if on {
			return nil
		}
		return fmt.Errorf("runtime-config: %s is always served", key)
	}
	if key != "v1" && !strings.Contains(key, "/") {
		return fmt.Errorf("runtime-config invalid key %s", key)
	}
	group, found, always := false, false, false
	for _, row := range rows {
		group = group || strings.HasPrefix(key, row.Group+"/")
		for _, v := range row.Versions {
			version := schema.GroupVersion{Group: row.Group, Version: v.Name}.String()
			if key == version || key == version+"/"+row.Resource {
				found, always = true, always || !row.Optional
			}
		}
	}
	switch {
	case !found && !group:
		return fmt.Errorf("unknown api groups %s", key)
	case !found && strings.Count(key, "/") == 1:
		return fmt.Errorf("group version %s that has not been registered", key)
	case !found:
		return fmt.Errorf("runtime-config: there is no API %s", key)
	case always && !on:
		return fmt.Errorf("runtime-config: %s is always served", key)
	}
	return nil
}
