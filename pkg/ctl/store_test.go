// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"keelson.dev/keelson/pkg/apiserver/storehealth/report"
)

// TestStoreStatus checks what "ctl store status" prints for a response of the API server.
func TestStoreStatus(t *testing.T) {
	const (
		member = `{"id":"8e9e","name":"m1","leader":true,"sizeBytes":1610612736,"inUseBytes":1073741824,
			"quotaBytes":8589934592,"revision":7}`
		full    = `{"id":"8e9f","name":"m2","sizeBytes":1000,"inUseBytes":10,"noSpaceAlarm":true,"error":"down"}`
		members = `{"databases":[{"name":"etcd-0","level":"Warning","warningPercent":80,"refusalPercent":95,"defragmentation":true,
			"members":[` + member + `,` + full + `]`
		table = `Database etcd-0: Warning (warning at 80%, refusal at 95%, defragmentation on)
MEMBER   NAME   LEADER   SIZE      IN USE    QUOTA     USED   ALARM     REVISION   ERROR
8e9e     m1     true     1.5 GiB   1.0 GiB   8.0 GiB   12%    -         7          
8e9f     m2     false    1000 B    10 B      -         -      NOSPACE   0          down
`
	)
	for name, tc := range map[string]struct{ args, document, want string }{
		"no etcd":         {"", `{}`, "The API server has no etcd database.\n"},
		"without objects": {"--top=0", members + `}]}`, table},
		"error": {"", `{"databases":[{"name":"etcd-0","level":"Ample","error":"no answer"}]}`,
			"Database etcd-0: Ample (warning at no size, refusal at no size, defragmentation off)\nError: no answer\n" +
				"MEMBER   NAME   LEADER   SIZE   IN USE   QUOTA   USED   ALARM   REVISION   ERROR\n"},
		"with objects": {"--top=1", members + `,"usage":{"keys":3,"bytes":4096,"incomplete":true,
			"namespaces":[{"name":"a","keys":2,"bytes":3000},{"name":"b","keys":1,"bytes":1}],
			"resources":[{"name":"pods","keys":2,"bytes":3000}]}}]}`,
			table + `
Objects: 3, with 4.0 KiB (incomplete, because the API server could not read all objects)

NAMESPACE   BYTES     OBJECTS
a           2.9 KiB   2

RESOURCE   BYTES     OBJECTS
pods       2.9 KiB   2
`},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != report.Path || r.URL.Query().Has(report.UsageParameter) != (tc.args != "--top=0") {
					http.NotFound(w, r)
					return
				}
				_, _ = w.Write([]byte(tc.document))
			}))
			defer s.Close()
			args := []string{"ctl", "store", "status", "--server", s.URL, "--kubeconfig", "/dev/null"}
			if tc.args != "" {
				args = append(args, tc.args)
			}
			var out bytes.Buffer
			if err := Run(t.Context(), args, strings.NewReader(""), &out, &out); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, out.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}
