// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"fmt"
	"io"
	"net/url"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"keelson.dev/keelson/pkg/apiserver/storehealth/report"
)

// storeCommand returns the command "ctl store".
func storeCommand(flags genericclioptions.RESTClientGetter, stdout io.Writer) *cobra.Command {
	c := &cobra.Command{Use: "store", Short: "Show the state of the API server's databases"}
	c.AddCommand(storeStatusCommand(flags, stdout))
	return c
}

func storeStatusCommand(flags genericclioptions.RESTClientGetter, stdout io.Writer) *cobra.Command {
	var output string
	var top int
	c := &cobra.Command{
		Use:   "status",
		Short: "Show how full the databases are, and which namespaces and resources are large",
		Long: `Show each database (etcd cluster) that the API server uses: its members, how large
they are, how much of that is in use, their quotas, and whether etcd has raised its
alarm NOSPACE. To find the namespaces and resources with most bytes, the API server
reads all objects from etcd, without keeping them in memory.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			parameters := url.Values{}
			if top > 0 {
				parameters.Set(report.UsageParameter, "true")
			}
			return showDocument(c.Context(), flags, report.Path, parameters, stdout, output, func(d report.Document) error {
				return printStore(stdout, d.Databases, top)
			})
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "output format: \"json\" prints JSON instead of tables")
	c.Flags().IntVar(&top, "top", 10,
		"number of namespaces and resources to print; with 0, the API server does not read its objects")
	return c
}

func printStore(out io.Writer, list []report.Database, top int) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(out, "The API server has no etcd database.")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	for i := range list {
		if i > 0 {
			fmt.Fprintln(w)
		}
		printDatabase(w, &list[i], top)
	}
	return w.Flush()
}

func printDatabase(w io.Writer, d *report.Database, top int) {
	fmt.Fprintf(w, "Database %s: %s (warning at %s, refusal at %s, defragmentation %s)\n", d.Name, d.Level,
		threshold(d.WarningPercent), threshold(d.RefusalPercent), onOff(d.Defragmentation))
	if d.Error != "" {
		fmt.Fprintf(w, "Error: %s\n", d.Error)
	}
	fmt.Fprintln(w, "MEMBER\tNAME\tLEADER\tSIZE\tIN USE\tQUOTA\tUSED\tALARM\tREVISION\tERROR")
	for i := range d.Members {
		m := &d.Members[i]
		quota, used, alarm := "-", "-", "-"
		if m.Quota > 0 {
			quota, used = byteSize(m.Quota), fmt.Sprintf("%d%%", m.InUse*100/m.Quota)
		}
		if m.NoSpace {
			alarm = "NOSPACE"
		}
		fmt.Fprintf(w, "%s\t%s\t%t\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", m.ID, m.Name, m.Leader, byteSize(m.Size),
			byteSize(m.InUse), quota, used, alarm, m.Revision, m.Error)
	}
	if d.Usage == nil {
		return
	}
	partly := ""
	if d.Usage.Incomplete {
		partly = " (incomplete, because the API server could not read all objects)"
	}
	fmt.Fprintf(w, "\nObjects: %d, with %s%s\n", d.Usage.Keys, byteSize(d.Usage.Bytes), partly)
	printShares(w, "NAMESPACE", d.Usage.Namespaces, top)
	printShares(w, "RESOURCE", d.Usage.Resources, top)
}

// printShares prints a table of the first shares.
func printShares(w io.Writer, title string, list []report.Share, top int) {
	fmt.Fprintf(w, "\n%s\tBYTES\tOBJECTS\n", title)
	for _, s := range list[:min(top, len(list))] {
		fmt.Fprintf(w, "%s\t%s\t%d\n", s.Name, byteSize(s.Bytes), s.Keys)
	}
}

func threshold(percent int) string {
	if percent == 0 {
		return "no size"
	}
	return fmt.Sprintf("%d%%", percent)
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// byteSize returns a number of bytes in the largest unit in which it is at least 1.
func byteSize(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n), 0
	for value >= 1<<10 && unit < len("KMGT") {
		value /= 1 << 10
		unit++
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGT"[unit-1])
}
