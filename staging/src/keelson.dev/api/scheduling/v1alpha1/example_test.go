// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"encoding/json"
	"fmt"

	"keelson.dev/api/scheduling/v1alpha1"
)

// This example binds two pods in one request and reads the result of each.
func Example() {
	batch := v1alpha1.BindingBatch{
		TypeMeta: v1alpha1.TypeMeta("BindingBatch"),
		Bindings: []v1alpha1.Binding{
			{Namespace: "default", Name: "web-1", Node: "n1"},
			{Namespace: "default", Name: "web-2", Node: "n2"},
		},
	}
	body, err := json.MarshalIndent(batch.Bindings[0], "", "  ")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("POST", v1alpha1.BatchPath, "with bindings like")
	fmt.Println(string(body))

	answer := `{"results":[{"code":201},{"code":409,"reason":"Conflict","message":"already bound"}]}`
	var result v1alpha1.BindingBatch
	if err := json.Unmarshal([]byte(answer), &result); err != nil {
		fmt.Println(err)
		return
	}
	for i, r := range result.Results {
		fmt.Println(batch.Bindings[i].Name, r.Code)
	}
	// Output:
	// POST /apis/scheduling.keelson.dev/v1alpha1/bindingbatches with bindings like
	// {
	//   "namespace": "default",
	//   "name": "web-1",
	//   "node": "n1"
	// }
	// web-1 201
	// web-2 409
}
