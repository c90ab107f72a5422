// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	policyv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"keelson.dev/keelson/pkg/netpolicy"
)

// connectionCommand returns the command "ctl why connection".
func connectionCommand(flags genericclioptions.RESTClientGetter, stdout io.Writer) *cobra.Command {
	var port uint16
	var protocol string
	c := &cobra.Command{
		Use:   "connection FROM TO --port PORT",
		Short: "Show whether network policies allow a connection, and which policies decide this",
		Long: `Show whether network policies allow a connection, and which policies decide this.
FROM and TO are each a pod, as NAME or NAMESPACE/NAME, or an IP address. The command
only reads the policies. It does not check whether a program listens at the port.`,
		Example: "  ctl why connection web shop/db --port 5432",
		Args:    cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			cfg, err := flags.ToRESTConfig()
			if err != nil {
				return err
			}
			client, err := kubernetes.NewForConfig(cfg)
			if err != nil {
				return err
			}
			namespace, _, err := flags.ToRawKubeConfigLoader().Namespace()
			if err != nil {
				return err
			}
			custom, err := dynamic.NewForConfig(cfg)
			if err != nil {
				return err
			}
			cell, err := readPolicies(c.Context(), client, custom)
			if err != nil {
				return err
			}
			f := netpolicy.Flow{Port: port}
			if f.Protocol, err = netpolicy.ParseProtocol(protocol); err != nil {
				return err
			}
			if f.From, err = cell.end(namespace, args[0]); err != nil {
				return err
			}
			if f.To, err = cell.end(namespace, args[1]); err != nil {
				return err
			}
			return printVerdict(stdout, f, strings.ToUpper(protocol), netpolicy.Explain(f, cell.Cell))
		},
	}
	c.Flags().Uint16Var(&port, "port", 0, "port of TO to which the connection is made")
	c.Flags().StringVar(&protocol, "protocol", "TCP", "protocol of the connection: TCP, UDP or SCTP")
	_ = c.MarkFlagRequired("port")
	return c
}

// policyCell has all API objects that the effect of network policies depends on.
type policyCell struct {
	netpolicy.Cell
	pods []*netpolicy.Pod
}

func readPolicies(ctx context.Context, client kubernetes.Interface, custom dynamic.Interface) (*policyCell, error) {
	cell := &policyCell{Cell: netpolicy.Cell{Namespaces: map[string]labels.Set{}}}
	pods, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range pods.Items {
		if p := netpolicy.PodOf(&pods.Items[i], ""); p != nil {
			cell.pods = append(cell.pods, p)
		}
	}
	namespaces, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, n := range namespaces.Items {
		cell.Namespaces[n.Name] = n.Labels
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range nodes.Items {
		cell.Nodes = append(cell.Nodes, netpolicy.NodeOf(&nodes.Items[i]))
	}
	policies, err := client.NetworkingV1().NetworkPolicies("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range policies.Items {
		cell.Policies = append(cell.Policies, &policies.Items[i])
	}
	cell.Cluster, err = netpolicy.ListClusterPolicies(ctx, custom)
	return cell, err
}

// end returns the pod or IP address that the user's argument names, as one end of a connection.
func (c *policyCell) end(namespace, name string) (netpolicy.Party, error) {
	if a, err := netip.ParseAddr(name); err == nil {
		i := slices.IndexFunc(c.pods, func(p *netpolicy.Pod) bool { return slices.Contains(p.IPs, a) })
		if i < 0 {
			return netpolicy.Party{Addr: a}, nil
		}
		return netpolicy.Party{Pod: c.pods[i], Addr: a}, nil
	}
	key := types.NamespacedName{Namespace: namespace, Name: strings.TrimPrefix(name, "pod/")}
	if before, after, ok := strings.Cut(key.Name, "/"); ok {
		key = types.NamespacedName{Namespace: before, Name: after}
	}
	for _, p := range c.pods {
		if p.Name == key {
			return netpolicy.Party{Pod: p, Addr: p.IPs[0]}, nil
		}
	}
	return netpolicy.Party{}, fmt.Errorf("pod %s does not exist, has no address yet, or uses its node's network", key)
}

func printVerdict(out io.Writer, f netpolicy.Flow, protocol string, v netpolicy.Verdict) error {
	answer := "allowed"
	if !v.Allowed() {
		answer = "denied"
	}
	_, err := fmt.Fprintf(out, "%s → %s, %s %d: %s\n  egress:  %s\n  ingress: %s\n", endName(f.From),
		endName(f.To), protocol, f.Port, answer, sideText(v.Egress), sideText(v.Ingress))
	return err
}

func endName(p netpolicy.Party) string {
	if p.Pod == nil {
		return p.Addr.String()
	}
	return fmt.Sprintf("%s (%s)", p.Pod.Name, p.Addr)
}

// sideText describes which policies decide about the connection at one of its ends, and which
// policies passed the decision on to policies of a later tier.
func sideText(s netpolicy.Side) string {
	var before string
	if s.Admin != nil {
		before = decisionText(s.Admin)
		if s.Admin.Action != policyv1alpha2.ClusterNetworkPolicyRuleActionPass {
			return before
		}
		before += "; "
	}
	switch {
	case len(s.Isolating) > 0 && s.OwnNode || len(s.Isolating) == 0 && s.Baseline == nil && s.OwnNode:
		return before + "always allowed between a pod and its own node"
	case len(s.Isolating) > 0 && len(s.Allowing) == 0:
		return before + "isolated by " + nameList(s.Isolating) + ", and no policy allows it"
	case len(s.Isolating) > 0:
		return before + "allowed by " + nameList(s.Allowing)
	case s.Baseline != nil:
		return before + decisionText(s.Baseline)
	case before != "":
		return before + "no other policy applies"
	}
	return "no policy applies"
}

// decisionText describes the effect of a rule of a ClusterNetworkPolicy.
func decisionText(d *netpolicy.Decision) string {
	rule := fmt.Sprintf("rule %d", d.Rule)
	if d.Name != "" {
		rule += fmt.Sprintf(" (%s)", d.Name)
	}
	does := map[policyv1alpha2.ClusterNetworkPolicyRuleAction]string{
		policyv1alpha2.ClusterNetworkPolicyRuleActionAccept: "accepted",
		policyv1alpha2.ClusterNetworkPolicyRuleActionDeny:   "denied",
		policyv1alpha2.ClusterNetworkPolicyRuleActionPass:   "passed on",
	}[d.Action]
	out := fmt.Sprintf("%s by %s of cluster network policy %s (%s tier)", does, rule, d.Policy, d.Tier)
	if d.Problem != nil {
		out += fmt.Sprintf(", which cannot be evaluated: %v", d.Problem)
	}
	return out
}

func nameList(list []types.NamespacedName) string {
	var out []string
	for _, n := range list {
		out = append(out, n.String())
	}
	return strings.Join(out, ", ")
}
