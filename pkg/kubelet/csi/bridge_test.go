// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
)

// TestBridge checks that a request to Bridge can call all services of a driver except the node
// service.
func TestBridge(t *testing.T) {
	b := newBench(t, nil)
	conn, err := grpc.NewClient("unix://"+b.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	m := &Manager{drivers: map[string]*driver{"d": {name: "d", conn: conn}}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /csi/{driver}/{service}/{method}", m.Bridge)
	ask := func(path string, in protoadapt.MessageV1) *httptest.ResponseRecorder {
		t.Helper()
		body, err := proto.Marshal(protoadapt.MessageV2Of(in))
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, bytes.NewReader(body)))
		return w
	}

	got := &csi.GetPluginInfoResponse{}
	w := ask("/csi/d/csi.v1.Identity/GetPluginInfo", &csi.GetPluginInfoRequest{})
	if err := proto.Unmarshal(w.Body.Bytes(), protoadapt.MessageV2Of(got)); err != nil ||
		w.Code != http.StatusOK || got.GetName() != "d" {
		t.Errorf("got %d %v, %v", w.Code, got, err)
	}
	w = ask("/csi/d/csi.v1.Controller/ControllerExpandVolume",
		&csi.ControllerExpandVolumeRequest{VolumeId: "v", CapacityRange: &csi.CapacityRange{RequiredBytes: 1}})
	var refused struct{ Code codes.Code }
	if err := json.Unmarshal(w.Body.Bytes(), &refused); err != nil || w.Code != http.StatusFailedDependency ||
		refused.Code != codes.NotFound {
		t.Errorf("got %d %s, %v", w.Code, w.Body, err)
	}
	for _, path := range []string{"/csi/d/csi.v1.Node/NodeGetInfo", "/csi/e/csi.v1.Identity/GetPluginInfo",
		"/csi/d/csi.v1.Identity"} {
		if w := ask(path, &csi.NodeGetInfoRequest{}); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	w = httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost,
		"/csi/d/csi.v1.Identity/GetPluginInfo", bytes.NewReader(make([]byte, maxMessage+1))))
	if w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("a request that is too large: %d", w.Code)
	}
}
