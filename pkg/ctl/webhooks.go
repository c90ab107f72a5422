// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"keelson.dev/keelson/pkg/apiserver/admission/webhookhealth"
)

// webhooksCommand returns the command "ctl webhooks".
func webhooksCommand(flags genericclioptions.RESTClientGetter, stdout io.Writer) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "webhooks",
		Short: "Show the health of admission webhooks",
		Long: `Show every admission webhook that is configured: how long it takes to answer, how
often its calls failed, and whether it is failing now. While a webhook is failing,
requests of nodes and of the control plane bypass it. Each API server only knows its
own calls; the answer is that of the API server to which the command connects.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return showDocument(c.Context(), flags, webhookhealth.Path, nil, stdout, output,
				func(d webhookhealth.Document) error { return printWebhooks(stdout, d.Webhooks) })
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "output format: \"json\" prints JSON instead of a table")
	return c
}

func printWebhooks(out io.Writer, list []webhookhealth.Webhook) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(out, "No webhooks are configured.")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(w, "TYPE\tCONFIGURATION\tNAME\tPOLICY\tCIRCUIT\tCALLS\tFAILED\tIN A "+
		"ROW\tSKIPPED\tMEDIAN\tP99\tLAST FAILURE")
	for i := range list {
		h := &list[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n", h.Type, h.Configuration, h.Name, h.FailurePolicy,
			h.State, h.Calls, h.Failures, h.ConsecutiveFailures, h.PassedOver, seconds(h.Median),
			seconds(h.Slow), lastFailure(&h.Health))
	}
	return w.Flush()
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(100 * time.Microsecond).String()
}

// lastFailure returns the time and reason of a webhook's last failure on one line, or "-" if the
// webhook has not failed.
func lastFailure(h *webhookhealth.Health) string {
	if h.LastFailure == nil {
		return "-"
	}
	const enough = 100
	reason := []rune(h.LastReason)
	if len(reason) > enough {
		reason = append(reason[:enough], '…')
	}
	return fmt.Sprintf("%s %q", h.LastFailure.Format(time.RFC3339), string(reason))
}
