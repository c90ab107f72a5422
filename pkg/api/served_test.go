// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"slices"
	"testing"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api"
)

func TestServed(t *testing.T) {
	t.Parallel()
	const migrations, versions = "storageversionmigrations", "storageversions"
	for name, tc := range map[string]struct {
		asked map[string]bool
		want  []string
		wrong bool
	}{
		"by default":           {},
		"a version":            {asked: map[string]bool{"storagemigration.k8s.io/v1beta1": true}, want: []string{migrations}},
		"a resource":           {asked: map[string]bool{"internal.apiserver.k8s.io/v1alpha1/storageversions": true}, want: []string{versions}},
		"all":                  {asked: map[string]bool{"api/all": true}, want: []string{versions, migrations}},
		"beta":                 {asked: map[string]bool{"api/beta": true}, want: []string{migrations}},
		"alpha":                {asked: map[string]bool{"api/alpha": true}, want: []string{versions}},
		"all but one":          {asked: map[string]bool{"api/all": true, "storagemigration.k8s.io/v1beta1": false}, want: []string{versions}},
		"a resource of none":   {asked: map[string]bool{"storagemigration.k8s.io/v1beta1": false, "storagemigration.k8s.io/v1beta1/storageversionmigrations": true}, want: []string{migrations}},
		"what always is":       {asked: map[string]bool{"apps/v1": true, "v1": true}},
		"without what must be": {asked: map[string]bool{"apps/v1": false}, wrong: true},
		"what there is not":    {asked: map[string]bool{"apps/v7": true}, wrong: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows, err := api.Served(tc.asked)
			if (err != nil) != tc.wrong {
				t.Fatalf("error %v, want one: %v", err, tc.wrong)
			}
			var got []string
			for _, row := range rows {
				if row.Optional {
					got = append(got, row.Resource)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("optional rows %v, want %v", got, tc.want)
			}
			always := func(row *resource.Row) bool { return !row.Optional }
			if err == nil && countOf(rows, always) != countOf(api.Rows(), always) {
				t.Error("a row is missing that always is there")
			}
		})
	}
}

func countOf(rows []*resource.Row, of func(*resource.Row) bool) int {
	n := 0
	for _, row := range rows {
		if of(row) {
			n++
		}
	}
	return n
}
