// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

// floats returns a copy of v in which each number has the type that YAML's decoder returns.
func floats(v any) any {
	switch v := v.(type) {
	case int64:
		return float64(v)
	case map[string]any:
		for name := range v {
			v[name] = floats(v[name])
		}
	case []any:
		for i := range v {
			v[i] = floats(v[i])
		}
	}
	return v
}

// sameAsYAML fails the test if Document and YAML decode data differently.
func sameAsYAML(t interface {
	Helper()
	Fatalf(string, ...any)
}, data []byte) bool {
	t.Helper()
	fields, ok := Document(data)
	if !ok {
		return false
	}
	var want map[string]any
	if err := yaml.UnmarshalStrict(data, &want); err != nil {
		t.Fatalf("%q: YAML says %v", data, err)
	}
	if got := floats(fields); !reflect.DeepEqual(got, any(want)) {
		t.Fatalf("%q: got %v, YAML says %v", data, got, want)
	}
	return true
}

func TestDocument(t *testing.T) {
	long := strings.Repeat("k", 600)
	for name, c := range map[string]struct {
		data string
		want bool
	}{
		"object":            {`{"a":{"b":[1,-2,0,true,false,null,"c"]}}` + "\n", true},
		"spaces":            {`{"a": {"b": [1, 2]}}`, true},
		"escapes":           {`{"a":"\"\\\n\t\u003c\u00e9"}`, true},
		"long key":          {`{"` + long + `":1}`, false},
		"long value":        {`{"a":"` + long + `"}`, true},
		"slash":             {`{"a":"\/"}`, false},
		"surrogates":        {`{"a":"\ud83d\ude00"}`, false},
		"not ASCII":         {`{"a":"é"}`, false},
		"fraction":          {`{"a":1.5}`, false},
		"exponent":          {`{"a":1e3}`, false},
		"large":             {`{"a":1234567890123456}`, false},
		"negative zero":     {`{"a":-0}`, false},
		"octal":             {`{"a":010}`, false},
		"twice":             {`{"a":1,"a":2}`, false},
		"merge key":         {`{"<<":{"a":1}}`, false},
		"lines":             {"{\n\"a\":1}", false},
		"colon on its own":  {`{"a" :1}`, false},
		"YAML":              {`a: b`, false},
		"YAML in braces":    {`{a: b}`, false},
		"empty document":    {``, false},
		"list":              {`[]`, false},
		"null":              {`null`, false},
		"two documents":     {`{}{}`, false},
		"cut":               {`{"a":`, false},
		"number at the end": {`{"a":1`, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := sameAsYAML(t, []byte(c.data)); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

// TestDocumentLikeYAML compares Document with YAML's decoder.
func TestDocumentLikeYAML(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		scalar := rapid.OneOf(
			rapid.String().AsAny(), rapid.StringMatching(`[ -~]{0,8}`).AsAny(), rapid.Int().AsAny(),
			rapid.Bool().AsAny(), rapid.Float64().AsAny(),
			rapid.SampledFrom([]string{"yes", "~", "0x1", "1e3", "2020-01-01", "- a", "a: b", "#", "&a", "*a",
				"!!int 1", "|"}).AsAny(),
		)
		doc := rapid.MapOfN(rapid.StringMatching(`[ -~]{0,6}`),
			rapid.OneOf(scalar, rapid.SliceOfN(scalar, 0, 3).AsAny()), 0, 4).Draw(t, "doc")
		data, err := json.Marshal(doc)
		if err != nil {
			t.Skip(err)
		}
		sameAsYAML(t, data)
	})
}

func FuzzDocument(f *testing.F) {
	f.Add([]byte(`{"a":{"b":[1,-2,0,true,null,"c\n"]}}`))
	f.Fuzz(func(t *testing.T, data []byte) { sameAsYAML(t, data) })
}
