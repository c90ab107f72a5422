// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// mountableOnly returns an error if the pod refers to a secret that its service account does not
// list. If ephemeral is true, it checks only ephemeral containers.
func mountableOnly(sa *corev1.ServiceAccount, pod *corev1.Pod, ephemeral bool) error {
	allowed := map[string]bool{}
	for _, s := range sa.Secrets {
		allowed[s.Name] = true
	}
	check := func(what, name string, env []corev1.EnvVar, from []corev1.EnvFromSource) error {
		for _, e := range env {
			if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil && !allowed[e.ValueFrom.SecretKeyRef.Name] {
				return fmt.Errorf("%s %s with envVar %s referencing secret.secretName=%q is not allowed "+
					"because service account %s does not reference that secret",
					what, name, e.Name, e.ValueFrom.SecretKeyRef.Name, sa.Name)
			}
		}
		for _, e := range from {
			if e.SecretRef != nil && !allowed[e.SecretRef.Name] {
				return fmt.Errorf("%s %s with envFrom referencing secret.secretName=%q is not allowed "+
					"because service account %s does not reference that secret",
					what, name, e.SecretRef.Name, sa.Name)
			}
		}
		return nil
	}
	if ephemeral {
		for _, c := range pod.Spec.EphemeralContainers {
			if err := check("ephemeral container", c.Name, c.Env, c.EnvFrom); err != nil {
				return err
			}
		}
		return nil
	}
	for _, v := range pod.Spec.Volumes {
		if v.Secret != nil && !allowed[v.Secret.SecretName] {
			return fmt.Errorf("volume with secret.secretName=%q is not allowed because service account %s "+
				"does not reference that secret", v.Secret.SecretName, sa.Name)
		}
	}
	for _, c := range pod.Spec.InitContainers {
		if err := check("init container", c.Name, c.Env, c.EnvFrom); err != nil {
			return err
		}
	}
	for _, c := range pod.Spec.Containers {
		if err := check("container", c.Name, c.Env, c.EnvFrom); err != nil {
			return err
		}
	}
	pull := map[string]bool{}
	for _, s := range sa.ImagePullSecrets {
		pull[s.Name] = true
	}
	for i, s := range pod.Spec.ImagePullSecrets {
		if !pull[s.Name] {
			return fmt.Errorf("imagePullSecrets[%d].name=%q is not allowed because service account %s does "+
				"not reference that imagePullSecret", i, s.Name, sa.Name)
		}
	}
	return nil
}
