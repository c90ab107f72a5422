// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package typedjson

import (
	stdjson "encoding/json"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
	"sigs.k8s.io/json"
)

type inline struct {
	Inner  string `json:"inner,omitempty"`
	Fields []int32
}

type name string

// everything has fields of each form that plan.go defines.
type everything struct {
	metav1.TypeMeta `json:",inline"`
	skipped         `json:"-"`
	Inline          `json:",inline"`
	Text            string                                       `json:"text"`
	Name            name                                         `json:"name"`
	Bool            bool                                         `json:"bool"`
	I8              int8                                         `json:"i8"`
	I32             int32                                        `json:"i32"`
	I64             int64                                        `json:"i64"`
	U16             uint16                                       `json:"u16"`
	U64             uint64                                       `json:"u64"`
	F32             float32                                      `json:"f32"`
	F64             float64                                      `json:"f64"`
	Bytes           []byte                                       `json:"bytes"`
	PI              *int64                                       `json:"pi"`
	PS              *string                                      `json:"ps"`
	Texts           []string                                     `json:"texts"`
	Lists           [][]name                                     `json:"lists"`
	Nested          *everything                                  `json:"nested"`
	Many            []everything                                 `json:"many"`
	Labels          map[string]string                            `json:"labels"`
	Named           map[name]name                                `json:"named"`
	Amounts         map[corev1.ResourceName]apiresource.Quantity `json:"amounts"`
	Data            map[string][]byte                            `json:"data"`
	Deep            map[string]everything                        `json:"deep"`
	Pointers        map[string]*int32                            `json:"pointers"`
	Time            metav1.Time                                  `json:"time"`
	PTime           *metav1.Time                                 `json:"ptime"`
	Micro           metav1.MicroTime                             `json:"micro"`
	Duration        *metav1.Duration                             `json:"duration"`
	Port            intstr.IntOrString                           `json:"port"`
	PPort           *intstr.IntOrString                          `json:"pport"`
	Raw             runtime.RawExtension                         `json:"raw"`
	Owned           *metav1.FieldsV1                             `json:"owned"`
	Any             any                                          `json:"any"`
	Quoted          int                                          `json:"quoted,string"`
	Untagged        map[string]map[string][]metav1.ObjectMeta
	//lint:ignore U1000 the reader must ignore it
	hidden string
}

type skipped struct{ Skipped string }

// Inline is embedded in everything.
type Inline struct {
	First  string `json:"first"`
	Second *int32 `json:"second"`
}

// kinds return pointers to the values into which the tests decode documents.
var kinds = []func() any{
	func() any { return &everything{} },
	func() any { return &corev1.Pod{} },
	func() any { return &corev1.Secret{} },
	func() any { return &metav1.ObjectMeta{} },
	func() any { return &metav1.DeleteOptions{} },
	func() any { return new(map[string]int32) },
	func() any { return new([]inline) },
	func() any { return new(string) },
	func() any { return &metav1.Time{} },
	func() any { return &apiresource.Quantity{} },
}

// same decodes data with Read and with the library, and returns the result of Read. If that is
// true, the library must have returned the same value without errors and findings.
func same(t interface {
	Helper()
	Fatalf(string, ...any)
}, data []byte, empty func() any,
) bool {
	t.Helper()
	given := string(data)
	fast, exact := empty(), empty()
	ok := Read(data, fast)
	findings, err := json.UnmarshalStrict(data, exact)
	if ok && (err != nil || len(findings) > 0) {
		t.Fatalf("taken, but the library says %v %v of\n%s", err, findings, data)
	}
	if ok {
		scribble(data) // decoded values must not share memory with the document
	}
	if ok && !reflect.DeepEqual(fast, exact) {
		t.Fatalf("%T\n got %+v\nwant %+v\nof %s", fast, fast, exact, given)
	}
	if copy(data, given); ok {
		return true
	}
	again := empty()
	gotFindings, gotErr := Unmarshal(data, again, true)
	if !reflect.DeepEqual(texts(gotFindings, gotErr), texts(findings, err)) || !reflect.DeepEqual(again, exact) {
		t.Fatalf("%T %v %v\n got %+v\nwant %+v\nof %s", again, gotFindings, gotErr, again, exact, given)
	}
	return false
}

// scribble overwrites data, to find values that share memory with it.
func scribble(data []byte) {
	for i := range data {
		data[i] = 'x'
	}
}

func texts(findings []error, err error) (all []string) {
	for _, f := range append(findings, err) {
		if f != nil {
			all = append(all, f.Error())
		}
	}
	return all
}

// taken has JSON documents that Read must decode into a value of the type everything. The variable left
// has documents for which Read must return false, so that the decoder of Kubernetes' libraries reads
// them.
var taken = []string{
	`{}`, ` { } `, "\t{\r\n}\n", `null`,
	`{"text":"a","name":"b","bool":true,"i8":-128,"i32":2147483647,"i64":-9223372036854775808,"u16":65535,"u64":18446744073709551615}`,
	`{"text":null,"bool":null,"i8":null,"bytes":null,"pi":null,"texts":null,"labels":null,"nested":null,"time":null,"ptime":null,"raw":null,"owned":null}`,
	`{"text":"\u00e9\ud83d\ude00\n\"\\\/\b\f\r\té😀","texts":["","a","\u0000"]}`,
	`{"i32":-0,"i64":0,"f64":1e3,"f32":-0.5E+2}`, `{"f64":-0}`, `{"f64":12345678901234567890}`,
	`{"bytes":"","data":{"a":"AAAA","b":"","c":null}}`, `{"bytes":"aGVsbG8="}`,
	`{"texts":[],"lists":[[],null,["a"]],"many":[{},null,{"many":[]}],"labels":{},"amounts":{},"deep":{}}`,
	`{"texts":["1","2","3","4","5","6","7","8","9"],"many":[{"text":"1"},{"text":"2"},{"text":"3"}]}`,
	`{"labels":{"a":"b","c":"d","\u0065":""},"named":{"x":"y"},"pointers":{"a":1,"b":null}}`,
	`{"amounts":{"cpu":"100m","memory":"1Gi","n":2,"e":"1e3","d":" 1.5 ","z":null}}`,
	`{"deep":{"a":{"deep":{"b":{"text":"x","amounts":{"cpu":"1"}},"c":{}}},"d":{"text":"y"}}}`,
	`{"time":"2026-11-23T01:02:03Z","ptime":"2026-11-23T01:02:03.5+02:00","micro":"2026-11-23T01:02:03.000004Z","duration":"1m30s"}`,
	`{"port":80,"pport":"http"}`, `{"port":"","pport":-1}`, `{"port":"\u0061"}`, `{"pport":null}`,
	`{"raw":{"a":[1,2.5e-3,"\u00e9",null,true,false,{}],"a":1},"owned":{"f:a":{}}}`, `{"raw":"text"}`, `{"raw":[]}`,
	`{"first":"1","second":2,"kind":"K","apiVersion":"v1"}`, `{"second":2,"text":"x","first":"1"}`,
	`{"Untagged":{"a":{"b":[{"name":"n","ownerReferences":[{"uid":"u","controller":true}],"managedFields":[{"fieldsV1":{"f:x":{}},"time":"2026-01-01T00:00:00Z"}]}]}}}`,
}

var left = []string{
	``, ` `, `{`, `}`, `{}{}`, `{},`, `[]`, `1`, `"x"`, `nul`, `nullx`, `tru`, `{"text"}`, `{"text":}`,
	`{"text":"a",}`, `{,}`, `{"text" "a"}`,
	`{"text":"a" "name":"b"}`, `{"texts":["a",]}`, `{"texts":["a" "b"]}`, `{"texts":[`, `{"texts":["a"`,
	`{"texts":["a"}`, `{"labels":{"a":"b"]}`,
	`{"nope":1}`, `{"Text":"a"}`, `{"Skipped":"a"}`, `{"hidden":"a"}`, `{"text":"a","text":"b"}`,
	`{"labels":{"a":"1","a":"2"}}`, `{"named":{"a":"1","\u0061":"2"}}`,
	`{"labels":{"a":"1","\u0061":"2"}}`, `{"te\u0078t":"a"}`, `{"text":1}`, `{"text":true}`, `{"text":{}}`,
	`{"bool":"true"}`, `{"bool":1}`, `{"bool":truex}`, `{"bool":t}`,
	`{"i8":128}`, `{"i8":"1"}`, `{"i32":1.0}`, `{"i32":1e3}`, `{"i32":01}`, `{"i32":-}`, `{"i32":+1}`,
	`{"i32":1.}`, `{"i64":9223372036854775808}`, `{"f64":.5}`, `{"f64":1e}`, `{"f64":1e999}`, `{"f32":1e39}`,
	`{"u16":-1}`, `{"u16":-0}`, `{"u16":65536}`, `{"text":"`, `{"text":"\"}`, `{"text":"\x"}`,
	`{"text":"\u12"}`, `{"text":"\ud800"}`, `{"text":"\ud800\u0041"}`, `{"text":"\udc00"}`,
	"{\"text\":\"\xff\"}", "{\"text\":\"\n\"}", "{\"labels\":{\"\xff\":\"\"}}",
	`{"bytes":"a"}`, `{"bytes":"aGVsbG8=\n"}`, `{"bytes":[1]}`, `{"time":"yesterday"}`,
	`{"time":"2026-11-23T01:02:03\u005a"}`, `{"time":1}`, `{"micro":"x"}`, `{"duration":5}`,
	`{"port":2147483648}`, `{"port":1.5}`, `{"port":true}`, `{"port":null}`, `{"port":{}}`,
	`{"amounts":{"a":"x"}}`, `{"amounts":{"a":true}}`, `{"labels":{"a":null}}`, `{"labels":{"a":1}}`, `{"labels":[]}`,
	`{"any":1}`, `{"any":null}`, `{"quoted":"1"}`, `{"raw":{"a":}}`, `{"raw":01}`, `{"raw":[1,]}`,
	"{\"raw\":\"\xff\"}", `{"many":{}}`, `{"nested":[]}`, "\ufeff{}",
	strings.Repeat(`{"nested":`, maxDepth) + `{}` + strings.Repeat(`}`, maxDepth),
	`{"raw":` + strings.Repeat(`[`, 20000) + strings.Repeat(`]`, 20000) + `}`,
}

func TestDocuments(t *testing.T) {
	for _, doc := range taken {
		if !same(t, []byte(doc), kinds[0]) {
			t.Errorf("left to the library: %s", doc)
		}
	}
	for _, doc := range left {
		if same(t, []byte(doc), kinds[0]) {
			t.Errorf("taken: %.100s", doc)
		}
	}
}

func TestNoPointer(t *testing.T) {
	for _, into := range []any{nil, 1, (*everything)(nil)} {
		if _, err := Unmarshal([]byte(`{}`), into, true); err == nil {
			t.Errorf("%T: no error", into)
		}
	}
}

// TestCut decodes documents that are cut off after each byte, and compares Read with the library.
func TestCut(t *testing.T) {
	for _, doc := range append(taken, string(pod)) {
		for n := range strings.TrimSpace(doc) {
			same(t, []byte(doc[:n]), kinds[0])
		}
	}
}

// TestReadersAtOnce compiles plans and decodes in several goroutines at the same time.
func TestReadersAtOnce(t *testing.T) {
	for range 8 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			for _, kind := range kinds {
				for _, doc := range taken {
					same(t, []byte(doc), kind)
				}
			}
		})
	}
}

// TestVaried makes documents of random parts, and checks that Read decodes them as the JSON decoder of
// apimachinery does.
func TestVaried(t *testing.T) {
	var parts []string
	for _, doc := range append(append([]string{string(pod)}, taken...), left[:60]...) {
		parts = append(parts, strings.SplitAfter(doc, ",")...)
	}
	outcome := map[bool]int{}
	rapid.Check(t, func(t *rapid.T) {
		var v any
		doc := []byte(strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 1, 6).Draw(t, "parts"), ""))
		if stdjson.Unmarshal(doc, &v) != nil { // most joined parts are not valid JSON
			doc = []byte("{" + strings.Trim(string(doc), "{},") + "}")
		}
		outcome[same(t, doc, rapid.SampledFrom(kinds).Draw(t, "kind"))]++
	})
	if !testing.Short() && (outcome[true] == 0 || outcome[false] == 0) { // a short run may not have both results
		t.Errorf("outcomes: %v", outcome)
	}
}

func FuzzUnmarshal(f *testing.F) {
	for i := range kinds {
		for _, doc := range append(append([]string{string(pod)}, taken...), left[:len(left)-1]...) {
			if i == 0 || len(doc) < 40 {
				f.Add([]byte(doc), uint8(i))
			}
		}
	}
	f.Add(pod, uint8(1))
	f.Fuzz(func(t *testing.T, doc []byte, kind uint8) {
		same(t, append([]byte{}, doc...), kinds[int(kind)%len(kinds)])
	})
}
