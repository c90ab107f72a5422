// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api"
	"keelson.dev/keelson/pkg/api/emulation"
	"keelson.dev/keelson/pkg/daemon"
	"keelson.dev/keelson/pkg/features"
)

// checkDowngradeCommand returns the command "ctl check-downgrade".
func checkDowngradeCommand(flags genericclioptions.RESTClientGetter, stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "check-downgrade",
		Short: "List objects that the previous release of Kubernetes does not support",
		Long: `List the objects that an API server of the previous release of Kubernetes would not
serve, whose fields it would drop, or whose values it would reject in new objects. Use
it before you return to the programs of that release. The command exits with an error
if there are such objects.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := flags.ToRESTConfig()
			if err != nil {
				return err
			}
			found, err := unsupported(c.Context(), cfg)
			if err != nil {
				return err
			}
			return printUnsupported(stdout, found)
		},
	}
}

// unsupportedObject is an object that the previous release does not support.
type unsupportedObject struct {
	resource        schema.GroupResource
	namespace, name string
	// effect is what the previous release does with the object.
	effect string
}

// unsupported reads the objects that may be unsupported from an API server, and returns those that are.
func unsupported(ctx context.Context, cfg *rest.Config) ([]unsupportedObject, error) {
	if err := checkRelease(cfg); err != nil {
		return nil, err
	}
	checks, err := downgradeChecks()
	if err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	var found []unsupportedObject
	for _, check := range checks {
		row := check.row
		list := client.Resource(schema.GroupVersionResource{Group: row.Group, Version: row.Version, Resource: row.Resource})
		pages := pager.New(func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return list.List(ctx, opts)
		})
		err := pages.EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
			fields, ok := item.(*unstructured.Unstructured)
			if !ok {
				return fmt.Errorf("%T is not an object", item)
			}
			obj := row.New()
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields.Object, obj); err != nil {
				return err
			}
			for _, effect := range check.effects(obj) {
				found = append(found, unsupportedObject{row.GroupResource(), obj.GetNamespace(), obj.GetName(), effect})
			}
			return nil
		})
		// Not found means that an operator has turned the API off.
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("list %s: %w", row.GroupResource(), err)
		}
	}
	return found, nil
}

// checkRelease returns an error if the API server has another release than this program, or emulates
// another one: an API server that emulates the previous release does not serve the objects that this
// release lacks.
func checkRelease(cfg *rest.Config) error {
	client, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return err
	}
	v, err := client.ServerVersion()
	if err != nil {
		return err
	}
	if v.Major != daemon.Major || v.Minor != daemon.Minor {
		return fmt.Errorf("the API server has Kubernetes %s.%s, but this program only knows the differences between %s.%s "+
			"and %s", v.Major, v.Minor, daemon.Major, daemon.Minor, emulation.Previous)
	}
	if v.EmulationMajor != "" && (v.EmulationMajor != v.Major || v.EmulationMinor != v.Minor) {
		return fmt.Errorf("the API server emulates Kubernetes %s.%s: run this command before the emulation is turned on, "+
			"because the API server does not show all objects while it emulates another release", v.EmulationMajor,
			v.EmulationMinor)
	}
	return nil
}

// downgradeCheck finds unsupported objects of one resource.
type downgradeCheck struct {
	row *resource.Row
	// effects returns what the previous release does with an object.
	effects func(resource.Object) []string
}

// downgradeChecks returns the checks for all resources with differences between this release and the
// previous one.
func downgradeChecks() (checks []downgradeCheck, err error) {
	now, before := features.Options{}, features.Options{Emulated: emulation.Previous}
	rows, err := api.Served(nil, nil, api.Deps{Enabled: now.Enabled})
	if err != nil {
		return nil, err
	}
	earlier, err := api.Served(nil, nil, api.Deps{Emulated: emulation.Previous, Enabled: before.Enabled})
	if err != nil {
		return nil, err
	}
	known := map[schema.GroupResource]bool{}
	for _, row := range earlier {
		known[row.GroupResource()] = true
	}
	for _, row := range rows {
		switch effects := emulation.Check(row); {
		case !known[row.GroupResource()]:
			checks = append(checks, downgradeCheck{row, notServed})
		case effects != nil:
			checks = append(checks, downgradeCheck{row, effects})
		}
	}
	return checks, nil
}

// publishedSigner is the signer of the ClusterTrustBundle that the controller manager publishes.
const publishedSigner = "kubernetes.io/kube-apiserver-serving"

// notServed is the check for a resource that the previous release does not serve by default. It skips
// the ClusterTrustBundle that every cluster has: the controller manager makes it, so nothing is lost.
func notServed(obj resource.Object) []string {
	if b, ok := obj.(*certificatesv1.ClusterTrustBundle); ok && b.Spec.SignerName == publishedSigner {
		return nil
	}
	return []string{"does not serve it by default"}
}

// printUnsupported prints a table of objects, and returns an error if there are any.
func printUnsupported(out io.Writer, objects []unsupportedObject) error {
	if len(objects) == 0 {
		_, err := fmt.Fprintf(out, "Kubernetes %s supports all objects.\n", emulation.Previous)
		return err
	}
	w := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintf(w, "RESOURCE\tNAMESPACE\tNAME\tWHAT KUBERNETES %s DOES\n", emulation.Previous)
	names := map[unsupportedObject]bool{}
	for _, o := range objects {
		namespace := o.namespace
		if namespace == "" {
			namespace = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", o.resource, namespace, o.name, o.effect)
		o.effect = ""
		names[o] = true
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(names) == 1 {
		return fmt.Errorf("Kubernetes %s does not support 1 object", emulation.Previous)
	}
	return fmt.Errorf("Kubernetes %s does not support %d objects", emulation.Previous, len(names))
}
