// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeauth

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"pgregory.net/rapid"

	"keelson.dev/apiserver/store"
)

// cluster is a simple model of the authorizer: it decides a request by searching all objects.
type cluster struct {
	pods        map[string]*podModel
	volumes     map[string]*corev1.PersistentVolume
	attachments map[string]*storagev1.VolumeAttachment
	slices      map[string]*resourcev1.ResourceSlice
	// certificates has the nodes of pod certificate requests by their namespaces and names.
	certificates map[string]string
}

// podModel is a pod with the names that it mentions.
type podModel struct {
	*corev1.Pod
	mentions
}

// mentions are the names in an object's JSON, found in all fields that name secrets, config maps,
// claims or service accounts. devices are names of resource claims, which findDevices adds.
type mentions struct{ secrets, configMaps, claims, accounts, devices []string }

// find adds the names in a JSON document. It recognizes them by the names of their fields.
func (m *mentions) find(doc any) {
	switch v := doc.(type) {
	case []any:
		for _, e := range v {
			m.find(e)
		}
	case map[string]any:
		for key, value := range v {
			inner, _ := value.(map[string]any)
			name := fmt.Sprint(inner["name"])
			switch key {
			case "secretName":
				m.secrets = append(m.secrets, fmt.Sprint(value))
			case "secretRef", "secretKeyRef", "nodePublishSecretRef":
				m.secrets = append(m.secrets, name)
			case "configMap", "configMapRef", "configMapKeyRef":
				m.configMaps = append(m.configMaps, name)
			case "imagePullSecrets":
				list, _ := value.([]any)
				for _, e := range list {
					entry, _ := e.(map[string]any)
					m.secrets = append(m.secrets, fmt.Sprint(entry["name"]))
				}
			case "claimName":
				m.claims = append(m.claims, fmt.Sprint(value))
			case "serviceAccountName":
				m.accounts = append(m.accounts, fmt.Sprint(value))
			case "secret": // a secret of a projected volume
				if inner["name"] != nil {
					m.secrets = append(m.secrets, name)
				}
			}
			m.find(value)
		}
	}
}

func mentioned(p *corev1.Pod) (m mentions) {
	data, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	var doc any
	if err := json.Unmarshal(data, &doc); err != nil {
		panic(err)
	}
	m.find(doc)
	for _, v := range p.Spec.Volumes {
		if v.Ephemeral != nil {
			m.claims = append(m.claims, p.Name+"-"+v.Name)
		}
	}
	m.findDevices(p)
	return m
}

// findDevices adds the names of the resource claims in a pod's spec, and of those that were created
// for the pod from templates according to its status.
func (m *mentions) findDevices(p *corev1.Pod) {
	for _, c := range p.Spec.ResourceClaims {
		if c.ResourceClaimName != nil {
			m.devices = append(m.devices, *c.ResourceClaimName)
			continue
		}
		for _, s := range p.Status.ResourceClaimStatuses {
			if s.Name == c.Name && s.ResourceClaimName != nil {
				m.devices = append(m.devices, *s.ResourceClaimName)
			}
		}
	}
	if e := p.Status.ExtendedResourceClaimStatus; e != nil {
		m.devices = append(m.devices, e.ResourceClaimName)
	}
}

// podsMention reports whether a pod of node in namespace mentions a name. It ignores mirror pods.
func (c *cluster) podsMention(node, namespace, name string, of func(mentions) []string) bool {
	for _, p := range c.pods {
		_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
		if p.Spec.NodeName != node || p.Namespace != namespace || mirror {
			continue
		}
		if slices.Contains(of(p.mentions), name) {
			return true
		}
	}
	return false
}

// mounts reports whether a pod of node mentions the claim that is bound to a volume.
func (c *cluster) mounts(node string, v *corev1.PersistentVolume) bool {
	ref := v.Spec.ClaimRef
	return ref != nil && c.podsMention(node, ref.Namespace, ref.Name, func(m mentions) []string { return m.claims })
}

// related reports whether an object belongs to a node.
func (c *cluster) related(node, resource, namespace, name string) bool {
	switch resource {
	case "secrets":
		if c.podsMention(node, namespace, name, func(m mentions) []string { return m.secrets }) {
			return true
		}
		for _, v := range c.volumes {
			if csi := v.Spec.CSI; csi != nil && c.mounts(node, v) {
				for _, ref := range []*corev1.SecretReference{csi.NodePublishSecretRef, csi.NodeStageSecretRef,
					csi.NodeExpandSecretRef} {
					if ref != nil && ref.Namespace == namespace && ref.Name == name {
						return true
					}
				}
			}
		}
		return false
	case "configmaps":
		return c.podsMention(node, namespace, name, func(m mentions) []string { return m.configMaps })
	case "persistentvolumeclaims":
		return c.podsMention(node, namespace, name, func(m mentions) []string { return m.claims })
	case "serviceaccounts":
		return c.podsMention(node, namespace, name, func(m mentions) []string { return m.accounts })
	case "resourceclaims":
		return c.podsMention(node, namespace, name, func(m mentions) []string { return m.devices })
	case "persistentvolumes":
		return namespace == "" && c.volumes[name] != nil && c.mounts(node, c.volumes[name])
	case "pods":
		p := c.pods[namespace+"/"+name]
		return p != nil && p.Spec.NodeName == node
	case "volumeattachments":
		a := c.attachments[name]
		return namespace == "" && a != nil && a.Spec.NodeName == node
	case "podcertificaterequests":
		return c.certificates[namespace+"/"+name] == node && node != ""
	case "resourceslices":
		s := c.slices[name]
		return namespace == "" && s != nil && s.Spec.NodeName != nil && *s.Spec.NodeName == node
	}
	return false
}

// allows decides a request as Kubernetes' documentation of the node authorizer describes it.
func (c *cluster) allows(node string, a *authorizer.AttributesRecord) bool {
	verb, own := a.Verb, a.Name == node
	is := func(verbs ...string) bool { return slices.Contains(verbs, verb) }
	named := a.Name != "" && c.related(node, a.Resource, a.Namespace, a.Name)
	selected := a.FieldSelectorRequirements != nil && a.FieldSelectorRequirements[0].Field == "spec.nodeName" &&
		a.FieldSelectorRequirements[0].Value == node
	if a.Resource == "leases" {
		return is("get", "create", "update", "patch", "delete") && a.Namespace == "kube-node-lease" && (own || is("create"))
	}
	switch a.Resource + "/" + a.Subresource {
	case "secrets/", "configmaps/":
		return is("get", "list", "watch") && a.Namespace != "" && named
	case "persistentvolumeclaims/", "persistentvolumes/", "resourceclaims/", "volumeattachments/":
		return is("get") && named
	case "persistentvolumeclaims/status":
		return is("update", "patch") && named
	case "serviceaccounts/":
		return is("get") && a.Namespace != "" && named
	case "serviceaccounts/token":
		return is("create") && named
	case "csinodes/":
		return is("get", "create", "update", "patch", "delete") && (own || is("create"))
	case "resourceslices/":
		return is("create") || is("get", "update", "patch", "delete") && named ||
			is("list", "watch", "deletecollection") && selected
	case "podcertificaterequests/":
		return is("create") || is("get") && named || is("list", "watch") && selected
	case "nodes/":
		return is("create", "update", "patch") || is("get", "list", "watch") && own
	case "nodes/status", "pods/status":
		return is("update", "patch")
	case "pods/":
		return is("create", "delete") || is("get") && named || is("list", "watch") && (selected || named)
	case "pods/eviction":
		return is("create")
	case "services/", "services/status", "services/token", "services/eviction":
		return otherwise(a)
	}
	return false
}

// otherwise replaces the rules of the role system:node: it allows only the verb list.
func otherwise(a authorizer.Attributes) bool { return a.GetVerb() == "list" }

var groupsOf = map[string]string{
	"resourceclaims": "resource.k8s.io", "resourceslices": "resource.k8s.io", "volumeattachments": "storage.k8s.io",
	"csinodes": "storage.k8s.io", "leases": "coordination.k8s.io", "podcertificaterequests": "certificates.k8s.io",
}

// few draws one of two names, so that objects often refer to each other.
func few(t *rapid.T, what string) string {
	return rapid.SampledFrom([]string{"a", "b"}).Draw(t, what)
}

func drawNode(t *rapid.T) string { return rapid.SampledFrom([]string{"n1", "n2", ""}).Draw(t, "node") }

func drawVolume(t *rapid.T) corev1.Volume {
	v, local := corev1.Volume{Name: few(t, "volume")}, &corev1.LocalObjectReference{Name: few(t, "reference")}
	s := &v.VolumeSource
	switch rapid.IntRange(0, 18).Draw(t, "source") {
	case 0:
		s.Secret = &corev1.SecretVolumeSource{SecretName: local.Name}
	case 1:
		s.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: *local}
	case 3:
		s.Ephemeral = &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{}}
	case 4:
		s.Projected = &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{Secret: &corev1.SecretProjection{LocalObjectReference: *local}},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: few(t, "other")}}},
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
		}}
	case 5:
		s.CSI = &corev1.CSIVolumeSource{NodePublishSecretRef: local}
	case 6:
		s.AzureFile = &corev1.AzureFileVolumeSource{SecretName: local.Name}
	case 7:
		s.CephFS = &corev1.CephFSVolumeSource{SecretRef: local}
	case 8:
		s.Cinder = &corev1.CinderVolumeSource{SecretRef: local}
	case 9:
		s.FlexVolume = &corev1.FlexVolumeSource{SecretRef: local}
	case 10:
		s.RBD = &corev1.RBDVolumeSource{SecretRef: local}
	case 11:
		s.ScaleIO = &corev1.ScaleIOVolumeSource{SecretRef: local}
	case 12:
		s.ISCSI = &corev1.ISCSIVolumeSource{SecretRef: local}
	case 13:
		s.EmptyDir = &corev1.EmptyDirVolumeSource{}
	default: // the default is frequent, because a claim leads to a volume and its secrets
		s.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: local.Name}
	}
	return v
}

func drawEnv(t *rapid.T) ([]corev1.EnvVar, []corev1.EnvFromSource) {
	ref := corev1.LocalObjectReference{Name: few(t, "reference")}
	switch rapid.IntRange(0, 4).Draw(t, "environment") {
	case 0:
		return []corev1.EnvVar{
			{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: ref}}}}, nil
	case 1:
		return []corev1.EnvVar{{},
			{ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: ref}}}}, nil
	case 2:
		return nil, []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref}}}
	case 3:
		return nil, []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref}}}
	}
	return []corev1.EnvVar{{Name: "X", Value: "a"}}, nil
}

func drawPod(t *rapid.T) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: few(t, "namespace"), Name: few(t, "name")}}
	p.Spec.NodeName = drawNode(t)
	if rapid.IntRange(0, 4).Draw(t, "mirror") == 0 {
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	}
	p.Spec.ServiceAccountName = few(t, "account")
	p.Spec.Volumes = rapid.SliceOfN(rapid.Custom(drawVolume), 0, 2).Draw(t, "volumes")
	env, from := drawEnv(t)
	switch rapid.IntRange(0, 2).Draw(t, "list") {
	case 0:
		p.Spec.InitContainers = []corev1.Container{{Env: env, EnvFrom: from}}
	case 1:
		p.Spec.Containers = []corev1.Container{{}, {Env: env, EnvFrom: from}}
	case 2:
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{
			{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Env: env, EnvFrom: from}}}
	}
	name := few(t, "claim")
	switch rapid.IntRange(0, 4).Draw(t, "more") {
	case 0:
		p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: name}}
	case 1:
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "x", ResourceClaimName: &name}}
	case 2:
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: few(t, "claim's name"), ResourceClaimTemplateName: &name}}
		p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{
			{Name: few(t, "status' name"), ResourceClaimName: &name}}
	case 3:
		p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: name}
	}
	return p
}

func drawPersistentVolume(t *rapid.T) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: few(t, "name")}}
	if rapid.IntRange(0, 4).Draw(t, "bound") > 0 {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: few(t, "namespace"), Name: few(t, "claim")}
	}
	ref := &corev1.SecretReference{Namespace: few(t, "namespace of secret"), Name: few(t, "secret")}
	csi := &corev1.CSIPersistentVolumeSource{}
	*rapid.SampledFrom([]**corev1.SecretReference{&csi.NodePublishSecretRef, &csi.NodeStageSecretRef,
		&csi.ControllerPublishSecretRef, &csi.ControllerExpandSecretRef, &csi.NodeExpandSecretRef}).Draw(t, "which") = ref
	v.Spec.CSI = csi
	return v
}

// record returns a store record of a pod.
func record(p *corev1.Pod) *store.Record {
	return store.NewRecord(p.Namespace+"/"+p.Name, 1, nil,
		store.Attrs{Fields: fields.Set{"spec.nodeName": p.Spec.NodeName}}, nil, p)
}

// contents returns the pod in a record that the function record made.
func contents(rec *store.Record) *corev1.Pod {
	obj, err := rec.ReadPart(nil)
	if err != nil {
		return nil
	}
	return obj.(*corev1.Pod)
}

// TestAuthorizerDecidesAsTheModel changes random objects, and checks that the authorizer and the
// model decide requests alike.
func TestAuthorizerDecidesAsTheModel(t *testing.T) { rapid.Check(t, decidesAsTheModel) }

// FuzzAuthorizer is TestAuthorizerDecidesAsTheModel as a fuzz test.
func FuzzAuthorizer(f *testing.F) {
	for _, length := range []int{64, 512, 4096} {
		seed := make([]byte, length)
		_, _ = rand.NewChaCha8([32]byte{byte(length)}).Read(seed)
		f.Add(seed)
	}
	f.Fuzz(rapid.MakeFuzz(decidesAsTheModel))
}

func decidesAsTheModel(t *rapid.T) {
	g := NewGraph()
	g.readWith(contents)
	a := NewAuthorizer(g, otherwise, func(string) (bool, bool) { return false, true }, func() bool { return true })
	c := &cluster{
		pods: map[string]*podModel{}, volumes: map[string]*corev1.PersistentVolume{},
		attachments: map[string]*storagev1.VolumeAttachment{}, slices: map[string]*resourcev1.ResourceSlice{},
		certificates: map[string]string{},
	}
	t.Repeat(map[string]func(*rapid.T){
		"pod": func(t *rapid.T) {
			p := drawPod(t)
			key := p.Namespace + "/" + p.Name
			if old := c.pods[key]; old != nil && old.Spec.NodeName != "" && old.Spec.NodeName != p.Spec.NodeName {
				g.deletePod(record(old.Pod)) // the node of a pod never changes, so the old pod must have been deleted
			}
			c.pods[key] = &podModel{p, mentioned(p)}
			g.pod(record(p))
		},
		"no pod": func(t *rapid.T) {
			key := few(t, "namespace") + "/" + few(t, "name")
			if p := c.pods[key]; p != nil {
				delete(c.pods, key)
				g.deletePod(record(p.Pod))
			}
		},
		"only these pods": func(t *rapid.T) {
			present := map[string]string{}
			for _, key := range slices.Sorted(maps.Keys(c.pods)) {
				p := c.pods[key]
				if rapid.Bool().Draw(t, "gone") {
					delete(c.pods, key)
					continue
				}
				present[key] = p.Spec.NodeName
			}
			g.retainPods(present)
		},
		"one question": func(t *rapid.T) { ask(t, c, a) },
		"volume": func(t *rapid.T) {
			v := drawPersistentVolume(t)
			c.volumes[v.Name] = v
			g.SetVolume(v)
		},
		"no volume": func(t *rapid.T) {
			v := drawPersistentVolume(t)
			delete(c.volumes, v.Name)
			g.DeleteVolume(v)
		},
		"attachment": func(t *rapid.T) {
			v := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: few(t, "name")},
				Spec: storagev1.VolumeAttachmentSpec{NodeName: drawNode(t)}}
			c.attachments[v.Name] = v
			g.SetAttachment(v)
		},
		"no attachment": func(t *rapid.T) {
			v := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: few(t, "name")}}
			delete(c.attachments, v.Name)
			g.DeleteAttachment(v)
		},
		"slice": func(t *rapid.T) {
			s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: few(t, "name")}}
			if node := drawNode(t); node != "" {
				s.Spec.NodeName = &node
			}
			c.slices[s.Name] = s
			g.SetSlice(s)
		},
		"no slice": func(t *rapid.T) {
			s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: few(t, "name")}}
			delete(c.slices, s.Name)
			g.DeleteSlice(s)
		},
		"certificate request": func(t *rapid.T) {
			r := &certificatesv1.PodCertificateRequest{
				ObjectMeta: metav1.ObjectMeta{Namespace: few(t, "namespace"), Name: few(t, "name")}}
			r.Spec.NodeName = types.NodeName(drawNode(t))
			c.certificates[r.Namespace+"/"+r.Name] = string(r.Spec.NodeName)
			g.SetPodCertificate(r)
		},
		"no certificate request": func(t *rapid.T) {
			r := &certificatesv1.PodCertificateRequest{
				ObjectMeta: metav1.ObjectMeta{Namespace: few(t, "namespace"), Name: few(t, "name")}}
			delete(c.certificates, r.Namespace+"/"+r.Name)
			g.DeletePodCertificate(r)
		},
		"": func(t *rapid.T) {
			// Compare only after some steps: the graph reads pods when a node sends a request, so several
			// changes of a pod must be tested without a request between them.
			if rapid.IntRange(0, 3).Draw(t, "asked") == 0 {
				askForAll(t, c, a)
				ask(t, c, a)
			}
		},
	})
}

// askForAll compares decisions of the authorizer and the model about gets of all objects.
func askForAll(t *rapid.T, c *cluster, a *Authorizer) {
	for _, node := range []string{"n1", "n2"} {
		u := &user.DefaultInfo{Name: "system:node:" + node, Groups: []string{"system:nodes"}}
		for _, resource := range []string{"secrets", "configmaps", "persistentvolumeclaims",
			"persistentvolumes", "resourceclaims", "volumeattachments", "serviceaccounts", "resourceslices",
			"podcertificaterequests", "pods"} {
			for _, namespace := range []string{"", "a", "b"} {
				for _, name := range []string{"a", "b", "a-b"} {
					compare(t, c, a, node, &authorizer.AttributesRecord{
						User: u, Verb: "get", APIGroup: groupsOf[resource], Resource: resource,
						Namespace: namespace, Name: name, ResourceRequest: true,
					})
				}
			}
		}
	}
}

// compare compares the authorizer's decision about a request with the model's. node is the node
// that sends the request, or empty if the user is not a node.
func compare(t *rapid.T, c *cluster, a *Authorizer, node string, attrs *authorizer.AttributesRecord) {
	want := node != "" && c.allows(node, attrs)
	decision, reason, err := a.Authorize(t.Context(), attrs)
	if err != nil || decision == authorizer.DecisionDeny || (decision == authorizer.DecisionAllow) != want {
		t.Fatalf("%+v by %v: %v (%s, %v), the model says %t", attrs, attrs.User, decision, reason, err, want)
	}
}

// ask compares the decisions of the authorizer and the model about one random request.
func ask(t *rapid.T, c *cluster, a *Authorizer) {
	node := rapid.SampledFrom([]string{"n1", "n2", "", "a"}).Draw(t, "asks")
	groups := rapid.SampledFrom([][]string{{"system:nodes", "system:authenticated"}, {"system:authenticated"},
		nil}).Draw(t, "groups")
	attrs := &authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: rapid.SampledFrom([]string{"system:node:", "system:Node:", ""}).Draw(
			t, "prefix") + node, Groups: groups},
		Verb: rapid.SampledFrom([]string{"get", "list", "watch", "create", "update", "patch", "delete",
			"deletecollection"}).Draw(t, "verb"),
		Resource: rapid.SampledFrom([]string{"secrets", "configmaps", "persistentvolumeclaims",
			"persistentvolumes", "resourceclaims", "volumeattachments", "serviceaccounts", "leases", "csinodes",
			"resourceslices", "podcertificaterequests", "nodes", "pods", "services"}).Draw(t, "resource"),
		// Half of the requests have no subresource.
		Subresource: rapid.SampledFrom([]string{"", "", "", "status", "token", "eviction"}).Draw(t, "subresource"),
		Namespace:   rapid.SampledFrom([]string{"a", "b", "", "kube-node-lease"}).Draw(t, "namespace"),
		Name:        rapid.SampledFrom([]string{"a", "b", "", "n1", "n2", "a-b"}).Draw(t, "name"), ResourceRequest: true,
	}
	attrs.APIGroup = groupsOf[attrs.Resource]
	if rapid.Bool().Draw(t, "selects") {
		field := rapid.SampledFrom([]string{"spec.nodeName", "metadata.name"}).Draw(t, "field")
		selector := rapid.SampledFrom([]fields.Selector{fields.OneTermEqualSelector(field, "n1"),
			fields.OneTermNotEqualSelector(field, "n1")}).Draw(t, "selector")
		for _, r := range selector.Requirements() {
			if r.Operator == "=" || r.Operator == "==" {
				attrs.FieldSelectorRequirements = fields.Requirements{r}
			}
		}
	}
	if attrs.User.GetName() != "system:node:"+node || !slices.Contains(groups, "system:nodes") {
		node = ""
	}
	compare(t, c, a, node, attrs)
}
