// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package endpoints contains the controllers that publish the addresses of Services. EndpointSlices are
// the form that service proxies read. Endpoints are the older form.
//
//   - Endpoints: maintains an Endpoints object for every Service with a selector, for clients that do not
//     read EndpointSlices. It contains the addresses of the Service's pods in the Service's first address
//     family, at most 1000.
//   - Slices: maintains the EndpointSlices of every Service with a selector. They contain the addresses
//     and ports of the Service's pods, and whether the pods are ready. The library k8s.io/endpointslice
//     distributes the endpoints over slices.
//   - Mirroring: copies (mirrors) Endpoints that users created for a Service without a selector to
//     EndpointSlices.
//
// So each slice has one writer: slices of Services with a selector come from pods, and slices of other
// Services from Endpoints. The label endpointslice.kubernetes.io/managed-by of a slice names its
// controller. The type sliceView reads the slices of one controller, and ensures that a sync never
// decides by slices that are older than the controller's own writes.
//
// When a Service is deleted, its Endpoints are deleted. When the controller of Endpoints starts, it
// deletes all Endpoints without a Service. Endpoints without a Service that another client creates later
// are kept.
//
// The functions desired and planMirror do no I/O. desired computes the Endpoints of a Service, and
// planMirror decides which mirrored slices to create, update and delete.
package endpoints
