// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"context"
	_ "embed" // the objects are data
	"fmt"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"
)

//go:embed flowcontrol.yaml
var flowControlFile []byte

// FlowControl creates the default flow schemas and priority levels. Those that
// exist are left as they are.
func FlowControl(ctx context.Context, client kubernetes.Interface) error {
	api := client.FlowcontrolV1()
	var tasks []func() error
	for doc := range bytes.SplitSeq(flowControlFile, []byte("\n---\n")) {
		var obj struct {
			Kind     string            `json:"kind"`
			Metadata metav1.ObjectMeta `json:"metadata"`
		}
		if err := yaml.Unmarshal(doc, &obj); err != nil {
			return fmt.Errorf("flow control defaults: %w", err)
		}
		obj.Metadata.Annotations = map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: "true"}
		name := obj.Metadata.Name
		switch obj.Kind {
		case "FlowSchema":
			fs := &flowcontrolv1.FlowSchema{}
			if err := yaml.Unmarshal(doc, fs); err != nil {
				return fmt.Errorf("flow schema %s: %w", name, err)
			}
			fs.ObjectMeta = obj.Metadata
			tasks = append(tasks, func() error {
				if _, err := api.FlowSchemas().Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
					return named("flow schema", name, err)
				}
				_, err := api.FlowSchemas().Create(ctx, fs, metav1.CreateOptions{})
				return named("flow schema", name, ignoreExists(err))
			})
		case "PriorityLevelConfiguration":
			pl := &flowcontrolv1.PriorityLevelConfiguration{}
			if err := yaml.Unmarshal(doc, pl); err != nil {
				return fmt.Errorf("priority level %s: %w", name, err)
			}
			pl.ObjectMeta = obj.Metadata
			tasks = append(tasks, func() error {
				if _, err := api.PriorityLevelConfigurations().Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
					return named("priority level", name, err)
				}
				_, err := api.PriorityLevelConfigurations().Create(ctx, pl, metav1.CreateOptions{})
				return named("priority level", name, ignoreExists(err))
			})
		}
	}
	return parallel(ctx, 8, tasks)
}
