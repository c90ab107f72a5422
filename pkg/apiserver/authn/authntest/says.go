// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package authntest

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Says reports whether a JSON document has a field with the given name, in any case, and the value
// true, at any level. If the field is repeated, one of its values must be true.
func Says(doc []byte, name string) bool {
	d, last := json.NewDecoder(bytes.NewReader(doc)), ""
	for {
		token, err := d.Token()
		if err != nil {
			return false
		}
		if token == true && strings.EqualFold(last, name) {
			return true
		}
		last, _ = token.(string)
	}
}
