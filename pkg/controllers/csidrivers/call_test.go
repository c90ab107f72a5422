// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package csidrivers

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestCall checks that proxied.call returns a driver's response, and errors with the right gRPC
// code.
func TestCall(t *testing.T) {
	for name, tc := range map[string]struct {
		code    int
		kind    string
		body    string
		want    codes.Code
		message string
	}{
		"done":            {200, "application/octet-stream", "\n\x03abc", codes.OK, ""},
		"refused":         {424, "application/json", `{"code":11,"message":"too large"}`, codes.OutOfRange, "too large"},
		"no such driver":  {404, "text/plain", "not found", codes.Unavailable, ""},
		"kubelet is down": {503, "text/plain", "no", codes.Unavailable, ""},
		"no message":      {200, "application/octet-stream", "\xff", codes.Internal, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				in := &csi.GetPluginInfoRequest{}
				b, err := io.ReadAll(r.Body)
				if err == nil {
					err = proto.Unmarshal(b, protoadapt.MessageV2Of(in))
				}
				if err != nil || r.Method != http.MethodPost ||
					r.URL.Path != "/apis/storage.keelson.dev/v1alpha1/nodes/n/csi/d/csi.v1.Identity/GetPluginInfo" {
					t.Errorf("%s %s: %v", r.Method, r.URL, err)
				}
				w.Header().Set("Content-Type", tc.kind)
				w.WriteHeader(tc.code)
				_, _ = io.WriteString(w, tc.body)
			}))
			t.Cleanup(s.Close)
			client, err := kubernetes.NewForConfig(&rest.Config{Host: s.URL})
			if err != nil {
				t.Fatal(err)
			}
			got := &csi.GetPluginInfoResponse{}
			err = proxied{client.CoreV1().RESTClient()}.call(t.Context(), "n", "d",
				"csi.v1.Identity/GetPluginInfo", &csi.GetPluginInfoRequest{}, got)
			if status.Code(err) != tc.want || tc.message != "" && status.Convert(err).Message() != tc.message {
				t.Errorf("got %v, want %v %q", err, tc.want, tc.message)
			}
			if err == nil && got.GetName() != "abc" {
				t.Errorf("got %v", got)
			}
		})
	}
}
