// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"os/exec"
	"regexp"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// listed returns a table as nft prints it, or a text that says that the table does not exist.
func (c *cluster) listed(table string) string {
	c.t.Helper()
	var out []byte
	c.must(c.in(func() error {
		out, _ = exec.Command("nft", "list", "table", "ip", table).CombinedOutput()
		return nil
	}))
	return string(out)
}

// TestSCTP checks the table for an SCTP service without sending packets, because the kernel may not
// support SCTP. The elements must be the same as for other protocols, with another protocol number.
func TestSCTP(t *testing.T) {
	c := newCluster(t, nil)
	c.account()
	server := c.pod()
	c.register(server, map[string]string{"app": "server"})
	s := c.svc("signals", corev1.ProtocolSCTP, func(s *corev1.ServiceSpec) {
		s.Type = corev1.ServiceTypeNodePort
		s.SessionAffinity = corev1.ServiceAffinityClientIP
	}, on("n1", server))
	port := intstr.FromInt32(s.Spec.Ports[0].NodePort)
	address, pod := regexp.QuoteMeta(s.Spec.ClusterIP), regexp.QuoteMeta(server.v4.String())
	for what, want := range map[string]string{
		"service":   address + ` \. sctp \. 80 : `,
		"node port": `sctp \. ` + port.String() + ` `,
		"endpoint":  address + ` \. sctp \. 80 \. (0x)?0+ : 80 \. ` + pod + ` \. 8080`,
		"affinity":  address + ` \. sctp \. 80 \. ` + pod + ` \. 8080`,
	} {
		c.eventually(what, func() bool { return regexp.MustCompile(want).MatchString(c.listed("keelson-proxy")) })
	}

	c.manifest(`apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: signals
spec:
  podSelector: {matchLabels: {app: server}}
  ingress:
  - ports: [{protocol: SCTP, port: 80, endPort: 90}]
`, "")
	stop := c.enforce(c.server.Config, time.Hour)
	c.eventually("policy", func() bool {
		return regexp.MustCompile(`elements = \{ sctp \. 80-90 }`).MatchString(c.listed("keelson-policy"))
	})
	stop()
}
