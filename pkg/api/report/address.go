// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// EndpointIP reports an address that no endpoint can have.
func (r *Report) EndpointIP(path *field.Path, address string) {
	ip := netutils.ParseIPSloppy(address)
	if ip == nil {
		r.Invalid(path, address, "must be a valid IP address")
		return
	}
	if ip.IsUnspecified() {
		r.Invalid(path, address, fmt.Sprintf("may not be unspecified (%v)", address))
	}
	if ip.IsLoopback() {
		r.Invalid(path, address, "may not be in the loopback range (127.0.0.0/8, ::1/128)")
	}
	if ip.IsLinkLocalUnicast() {
		r.Invalid(path, address, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")
	}
	if ip.IsLinkLocalMulticast() {
		r.Invalid(path, address, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")
	}
}
