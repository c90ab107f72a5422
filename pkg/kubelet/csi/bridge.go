// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// maxMessage is the maximum size of a request to a driver in bytes.
const maxMessage = 4 << 20

// bridged lists the services of a driver that the control plane may call. It may not call the
// driver's node service, which is for the kubelet only.
var bridged = [...]string{"csi.v1.Identity", "csi.v1.Controller", "csi.v1.GroupController"}

// Bridge serves POST requests to /csi/{driver}/{service}/{method}. With such a request, the control
// plane calls a driver that is registered with this kubelet. The bodies are the request and the
// response of the gRPC call, encoded as protobuf. If the driver returns an error, the status is 424
// and the body contains the error's code and message.
func (m *Manager) Bridge(w http.ResponseWriter, r *http.Request) {
	name, service := r.PathValue("driver"), r.PathValue("service")
	if !slices.Contains(bridged[:], service) {
		http.NotFound(w, r)
		return
	}
	d, err := m.driver(name)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	in, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessage))
	if err != nil {
		code := http.StatusBadRequest
		if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
			code = http.StatusRequestEntityTooLarge
		}
		http.Error(w, fmt.Sprintf("read request: %v", err), code)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	var out []byte
	if err := d.conn.Invoke(ctx, "/"+service+"/"+r.PathValue("method"), &in, &out, grpc.ForceCodec(plain{})); err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(out) // a client that has disconnected repeats its request
}

// refuse writes the error that a driver returned to the HTTP response.
func refuse(w http.ResponseWriter, err error) {
	s := status.Convert(err)
	b, err := json.Marshal(struct {
		Code    codes.Code `json:"code"`
		Message string     `json:"message"`
	}{s.Code(), s.Message()})
	if err != nil {
		http.Error(w, "encode the driver's error: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusFailedDependency)
	_, _ = w.Write(b)
}

// plain is a gRPC codec that passes encoded messages on unchanged.
type plain struct{}

// Name implements encoding.Codec. It returns the name of gRPC's default codec, which the driver
// expects.
func (plain) Name() string { return "proto" }

// Marshal implements encoding.Codec. It returns the bytes that v points to.
func (plain) Marshal(v any) ([]byte, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("message has type %T, want *[]byte", v)
	}
	return *b, nil
}

// Unmarshal implements encoding.Codec. It stores a copy of data in the bytes that v points to.
func (plain) Unmarshal(data []byte, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("message has type %T, want *[]byte", v)
	}
	*b = slices.Clone(data)
	return nil
}
