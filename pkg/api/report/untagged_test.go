// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"encoding/json"
	"testing"

	"keelson.dev/keelson/pkg/api/report"
)

type inner struct {
	Number *int32 `json:"number,omitempty"`
}

type outer struct {
	inner `json:",inline"`
	Name  string   `json:"name"`
	List  []inner  `json:"list"`
	Words []string `json:"words"`
}

func TestUntagged(t *testing.T) {
	t.Parallel()
	one := int32(1)
	got, err := json.Marshal(report.Untagged(outer{Name: "a", List: []inner{{&one}, {}}}))
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"Number":null,"Name":"a","List":[{"Number":1},{"Number":null}],"Words":null}`; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
