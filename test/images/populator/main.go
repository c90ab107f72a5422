// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command populator replaces hello-populator. Kubernetes' test suite deploys that program to check
// that volumes can be filled from custom resources (volume populators). A Hello object has the name
// and the contents of a file. The command stores all state in the API.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// hellos is the custom resource Hello, with the name and the contents of a file.
var hellos = schema.GroupVersionResource{Group: "hello.example.com", Version: "v1alpha1", Resource: "hellos"}

const (
	selectedNode = "volume.kubernetes.io/selected-node"
	fillPath     = "/fill"
	fillEvery    = time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "populator:", err)
		os.Exit(1)
	}
}

// run fills the volumes of claims whose data source is a Hello. It creates pods for this, in which
// the same program writes the file.
func run(ctx context.Context, args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("hello-populator", flag.ContinueOnError)
	flags.SetOutput(stderr)
	p := populator{log: slog.New(slog.NewJSONHandler(stderr, nil))}
	mode := flags.String("mode", "", "controller: create pods that fill volumes; populate: write the file in such a pod")
	flags.StringVar(&p.image, "image-name", "", "image of the pods that fill volumes")
	flags.StringVar(&p.namespace, "namespace", "hello", "namespace of the pods that fill volumes")
	flags.String("http-endpoint", "", "has no effect: the program has no metrics")
	name := flags.String("file-name", "", "file that -mode=populate writes")
	contents := flags.String("file-contents", "", "contents of the file that -mode=populate writes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *mode == "populate" {
		return fill(*name, *contents)
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	if p.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if p.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	return p.run(ctx)
}

// fill writes contents to a file or device, and syncs it to disk.
func fill(name, contents string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(contents)
	return errors.Join(err, f.Sync(), f.Close())
}

// populator fills claims. For each claim, it creates an equal claim in its own namespace, and a pod
// that writes to the volume of that claim. Then it binds the volume to the original claim.
type populator struct {
	client           kubernetes.Interface
	dynamic          dynamic.Interface
	image, namespace string
	log              *slog.Logger
}

func (p populator) run(ctx context.Context) error {
	tick := time.NewTicker(fillEvery)
	defer tick.Stop()
	for {
		claims, err := p.client.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
		if err != nil {
			p.log.Error("Failed to list claims", "err", err)
			claims = &corev1.PersistentVolumeClaimList{}
		}
		for i := range claims.Items {
			c := &claims.Items[i]
			ref := c.Spec.DataSourceRef
			if ref == nil || ref.Kind != "Hello" || ref.APIGroup == nil || *ref.APIGroup != hellos.Group ||
				c.DeletionTimestamp != nil {
				continue
			}
			if err := p.step(ctx, c); err != nil {
				p.log.Error("Failed to fill claim, retrying", "claim", c.Namespace+"/"+c.Name, "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// step performs the next step for a claim. All steps are idempotent.
func (p populator) step(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	name := "prime-" + string(claim.UID)
	claims, pods := p.client.CoreV1().PersistentVolumeClaims(p.namespace), p.client.CoreV1().Pods(p.namespace)
	if claim.Spec.VolumeName != "" {
		return errors.Join(absent(pods.Delete(ctx, name, metav1.DeleteOptions{})),
			absent(claims.Delete(ctx, name, metav1.DeleteOptions{})))
	}
	prime, err := claims.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return p.begin(ctx, claim, name)
	}
	if err != nil {
		return err
	}
	pod, err := pods.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return p.write(ctx, claim, name)
	}
	if err != nil || pod.Status.Phase != corev1.PodSucceeded {
		return err
	}
	return p.handOver(ctx, prime.Spec.VolumeName, claim)
}

// begin creates the temporary claim whose volume is filled. If the storage class has the binding
// mode WaitForFirstConsumer, it first waits until a node is selected for the original claim, and
// selects the same node.
func (p populator) begin(ctx context.Context, claim *corev1.PersistentVolumeClaim, name string) error {
	prime := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
	prime.Spec = corev1.PersistentVolumeClaimSpec{
		AccessModes: claim.Spec.AccessModes, Resources: claim.Spec.Resources,
		StorageClassName: claim.Spec.StorageClassName, VolumeMode: claim.Spec.VolumeMode,
	}
	if claim.Spec.StorageClassName != nil {
		class, err := p.client.StorageV1().StorageClasses().Get(ctx, *claim.Spec.StorageClassName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if mode := class.VolumeBindingMode; mode != nil && *mode == storagev1.VolumeBindingWaitForFirstConsumer {
			node := claim.Annotations[selectedNode]
			if node == "" {
				return nil // no pod uses the original claim yet, so no node is selected
			}
			prime.Annotations = map[string]string{selectedNode: node}
		}
	}
	_, err := p.client.CoreV1().PersistentVolumeClaims(p.namespace).Create(ctx, prime, metav1.CreateOptions{})
	return err
}

// write creates a pod that writes the data of the claim's source to the volume of the temporary
// claim.
func (p populator) write(ctx context.Context, claim *corev1.PersistentVolumeClaim, name string) error {
	ref := claim.Spec.DataSourceRef
	namespace := claim.Namespace
	if ref.Namespace != nil {
		namespace = cmp.Or(*ref.Namespace, namespace)
	}
	source, err := p.dynamic.Resource(hellos).Namespace(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	file, _, _ := unstructured.NestedString(source.Object, "spec", "fileName")
	contents, _, _ := unstructured.NestedString(source.Object, "spec", "fileContents")
	c := corev1.Container{Name: "fill", Image: p.image}
	if m := claim.Spec.VolumeMode; m != nil && *m == corev1.PersistentVolumeBlock {
		file = fillPath
		c.VolumeDevices = []corev1.VolumeDevice{{Name: "target", DevicePath: fillPath}}
	} else {
		file = fillPath + "/" + file
		c.VolumeMounts = []corev1.VolumeMount{{Name: "target", MountPath: fillPath}}
	}
	c.Args = []string{"--mode=populate", "--file-name=" + file, "--file-contents=" + contents}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{c}, RestartPolicy: corev1.RestartPolicyNever,
		Volumes: []corev1.Volume{{Name: "target", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}}},
	}}
	_, err = p.client.CoreV1().Pods(p.namespace).Create(ctx, pod, metav1.CreateOptions{})
	return err
}

// handOver makes the volume refer to the original claim. The volume controller then completes the
// binding.
func (p populator) handOver(ctx context.Context, volume string, claim *corev1.PersistentVolumeClaim) error {
	patch := fmt.Sprintf(`{"spec":{"claimRef":{"namespace":%q,"name":%q,"uid":%q,"resourceVersion":%q}}}`,
		claim.Namespace, claim.Name, claim.UID, claim.ResourceVersion)
	_, err := p.client.CoreV1().PersistentVolumes().Patch(ctx, volume, types.StrategicMergePatchType,
		[]byte(patch), metav1.PatchOptions{})
	return err
}

// absent returns nil for "not found" errors, and all other errors unchanged.
func absent(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
