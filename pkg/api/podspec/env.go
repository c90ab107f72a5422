// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/naming"
	"keelson.dev/keelson/pkg/api/report"
)

func (c *check) checkEnv(container *corev1.Container, at *field.Path) {
	for i := range container.Env {
		variable, path := &container.Env[i], at.Child("env").Index(i)
		if variable.Name == "" {
			c.Required(path.Child("name"), "")
		} else {
			c.Each(path.Child("name"), variable.Name, validation.IsRelaxedEnvVarName(variable.Name))
		}
		if variable.ValueFrom != nil {
			c.checkEnvSource(variable, path.Child("valueFrom"))
		}
	}
	for i := range container.EnvFrom {
		c.checkEnvFrom(&container.EnvFrom[i], at.Child("envFrom"), i)
	}
}

// fieldsForEnv returns the fields of a pod to which its environment variables can refer.
// fieldsForFiles returns those to which its volumes can refer.
func fieldsForEnv() []string {
	return []string{
		"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
	}
}

func fieldsForFiles() []string {
	return []string{"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"}
}

func (c *check) checkEnvSource(variable *corev1.EnvVar, path *field.Path) {
	from, sources := variable.ValueFrom, 0
	if ref := from.FieldRef; ref != nil {
		sources++
		c.checkFieldRef(ref, fieldsForEnv(), path.Child("fieldRef"))
	}
	if ref := from.ResourceFieldRef; ref != nil {
		sources++
		c.checkResourceRef(ref, false, path.Child("resourceFieldRef"))
	}
	if ref := from.ConfigMapKeyRef; ref != nil {
		sources++
		c.checkKeyRef(ref.Name, ref.Key, path.Child("configMapKeyRef"))
	}
	if ref := from.SecretKeyRef; ref != nil {
		sources++
		c.checkKeyRef(ref.Name, ref.Key, path.Child("secretKeyRef"))
	}
	if ref := from.FileKeyRef; ref != nil {
		sources++
		c.checkFileRef(ref, path.Child("fileKeyRef"))
	}
	switch {
	case sources == 0:
		c.Invalid(path, "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, "+
			"`secretKeyRef` or `fileKeyRef`")
	case variable.Value != "":
		c.Invalid(path, "", "may not be specified when `value` is not empty")
	case sources > 1:
		c.Invalid(path, "", "may not have more than one field specified at a time")
	}
}

// downwardLabel validates a field path of the downward API. It returns the path, or the current
// path if the field was renamed.
func downwardLabel(apiVersion, path string) (string, error) {
	if apiVersion != "v1" {
		return "", fmt.Errorf("unsupported pod version: %s", apiVersion)
	}
	if base, _, ok := subscripted(path); ok {
		switch base {
		case "metadata.annotations", "metadata.labels":
			return path, nil
		}
		return "", fmt.Errorf("field label does not support subscript: %s", path)
	}
	known := slices.Concat(fieldsForEnv(), fieldsForFiles(),
		[]string{"spec.restartPolicy", "spec.schedulerName", "status.phase"})
	if path == "spec.host" {
		return "spec.nodeName", nil
	}
	if !slices.Contains(known, path) {
		return "", fmt.Errorf("field label not supported: %s", path)
	}
	return path, nil
}

// subscripted splits "metadata.labels['key']" into "metadata.labels" and "key". ok is false if path
// does not have this form.
func subscripted(path string) (base, key string, ok bool) {
	base, rest, ok := strings.Cut(path, "['")
	if !ok || base == "" || !strings.HasSuffix(rest, "']") {
		return path, "", false
	}
	return base, strings.TrimSuffix(rest, "']"), true
}

func (c *check) checkFieldRef(ref *corev1.ObjectFieldSelector, allowed []string, path *field.Path) {
	if ref.APIVersion == "" {
		c.Required(path.Child("apiVersion"), "")
		return
	}
	if ref.FieldPath == "" {
		c.Required(path.Child("fieldPath"), "")
		return
	}
	label, err := downwardLabel(ref.APIVersion, ref.FieldPath)
	if err != nil {
		c.Invalid(path.Child("fieldPath"), ref.FieldPath, fmt.Sprintf("error converting fieldPath: %v", err))
		return
	}
	base, key, ok := subscripted(label)
	switch {
	case !ok:
		report.OneOf(&c.Report, path.Child("fieldPath"), base, allowed...)
	case base == "metadata.annotations":
		c.QualifiedName(path, strings.ToLower(key))
	default:
		c.QualifiedName(path, key)
	}
}

// resourceFields returns the requests and limits of a container to which the downward API can
// refer.
func resourceFields() []string {
	return []string{
		"limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage",
		"requests.memory",
	}
}

func (c *check) checkResourceRef(ref *corev1.ResourceFieldSelector, inFile bool, path *field.Path) {
	huge := strings.HasPrefix(ref.Resource, "requests.hugepages-") || strings.HasPrefix(ref.Resource, "limits.hugepages-")
	switch {
	case inFile && ref.ContainerName == "":
		c.Required(path.Child("containerName"), "")
	case ref.Resource == "":
		c.Required(path.Child("resource"), "")
	case !huge:
		report.OneOf(&c.Report, path.Child("resource"), ref.Resource, resourceFields()...)
	}
	c.checkDivisor(ref.Resource, ref.Divisor, path.Child("divisor"))
}

func (c *check) checkDivisor(name string, divisor resource.Quantity, path *field.Path) {
	if divisor.IsZero() {
		return
	}
	_, kind, _ := strings.Cut(name, ".")
	bytes := []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
	text := divisor.String()
	switch {
	case kind == "cpu":
		if text != "1m" && text != "1" {
			c.Invalid(path, name, "only divisor's values 1m and 1 are supported with the cpu resource")
		}
		return
	case kind == "ephemeral-storage":
		kind = "local ephemeral storage"
	case strings.HasPrefix(kind, corev1.ResourceHugePagesPrefix):
		kind = "hugepages"
	case kind != "memory":
		return
	}
	if !slices.Contains(bytes, text) {
		c.Invalid(path, name, fmt.Sprintf("only divisor's values %s are supported with the %s resource",
			strings.Join(bytes, ", "), kind))
	}
}

func (c *check) checkKeyRef(name, key string, path *field.Path) {
	c.Each(path.Child("name"), name, naming.NameIsDNSSubdomain(name, false))
	if key == "" {
		c.Required(path.Child("key"), "")
		return
	}
	c.Each(path.Child("key"), key, naming.IsConfigMapKey(key))
}

func (c *check) checkFileRef(ref *corev1.FileKeySelector, path *field.Path) {
	if ref.Key == "" {
		c.Required(path.Child("key"), "")
	} else {
		c.Each(path.Child("key"), ref.Key, validation.IsRelaxedEnvVarName(ref.Key))
	}
	c.RequiredLabel(path.Child("volumeName"), ref.VolumeName)
	if ref.Path == "" {
		c.Required(path.Child("path"), "")
	} else {
		c.checkNoBacksteps(ref.Path, path.Child("path"))
	}
}

func (c *check) checkEnvFrom(from *corev1.EnvFromSource, path *field.Path, i int) {
	at := path.Index(i)
	if from.Prefix != "" {
		c.Each(at.Child("prefix"), from.Prefix, validation.IsRelaxedEnvVarName(from.Prefix))
	}
	sources := 0
	if from.ConfigMapRef != nil {
		sources++
		c.checkObjectName(from.ConfigMapRef.Name, at.Child("configMapRef", "name"))
	}
	if from.SecretRef != nil {
		sources++
		c.checkObjectName(from.SecretRef.Name, at.Child("secretRef", "name"))
	}
	switch {
	case sources == 0:
		c.Invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")
	case sources > 1:
		c.Invalid(path, "", "may not have more than one field specified at a time")
	}
}

func (c *check) checkObjectName(name string, path *field.Path) {
	if name == "" {
		c.Required(path, "")
		return
	}
	c.Each(path, name, naming.NameIsDNSSubdomain(name, true))
}
