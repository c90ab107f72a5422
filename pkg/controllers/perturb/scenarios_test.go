// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package perturb_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/keelson/pkg/controllers"
	"keelson.dev/keelson/pkg/controllers/attachdetach"
	"keelson.dev/keelson/pkg/controllers/bootstraptoken"
	"keelson.dev/keelson/pkg/controllers/clusterroleaggregation"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/cronjob"
	"keelson.dev/keelson/pkg/controllers/daemonset"
	"keelson.dev/keelson/pkg/controllers/deployment"
	"keelson.dev/keelson/pkg/controllers/disruption"
	"keelson.dev/keelson/pkg/controllers/endpoints"
	"keelson.dev/keelson/pkg/controllers/ephemeralvolume"
	"keelson.dev/keelson/pkg/controllers/garbagecollector"
	"keelson.dev/keelson/pkg/controllers/job"
	"keelson.dev/keelson/pkg/controllers/namespace"
	"keelson.dev/keelson/pkg/controllers/nodeipam"
	"keelson.dev/keelson/pkg/controllers/nodelifecycle"
	"keelson.dev/keelson/pkg/controllers/perturb"
	"keelson.dev/keelson/pkg/controllers/podgc"
	"keelson.dev/keelson/pkg/controllers/policystatus"
	"keelson.dev/keelson/pkg/controllers/protection"
	"keelson.dev/keelson/pkg/controllers/replicaset"
	"keelson.dev/keelson/pkg/controllers/resourceclaim"
	"keelson.dev/keelson/pkg/controllers/resourcequota"
	"keelson.dev/keelson/pkg/controllers/restorehold"
	"keelson.dev/keelson/pkg/controllers/rootca"
	"keelson.dev/keelson/pkg/controllers/serviceaccount"
	"keelson.dev/keelson/pkg/controllers/servicecidr"
	"keelson.dev/keelson/pkg/controllers/statefulset"
	"keelson.dev/keelson/pkg/controllers/storageversion"
	"keelson.dev/keelson/pkg/controllers/tainteviction"
	"keelson.dev/keelson/pkg/controllers/ttl"
	"keelson.dev/keelson/pkg/controllers/volumebinder"
)

// row is the scenario for one controller. members are the names of the controllers that run; the
// first one is the controller under test. The script is the file testdata/NAME.yaml, where NAME is
// the name of the controller under test. kinds are the resources whose objects are compared at the
// end.
type row struct {
	members []string
	kinds   string
	kubelet perturb.Kubelet
	ignore  func(*unstructured.Unstructured)
	options controller.Options
	also    func(context.Context, *perturb.Users)
	check   func(context.Context, *perturb.Users) error
	settle  time.Duration
	serve   string
	// found are seeds with which the scenario failed in the past.
	found []uint64
}

const podKinds = "v1/pods"

// rows returns one row for each controller that is not exempt. In the field kinds, several
// resources are separated by spaces.
func rows(t *testing.T) []row {
	key := privateKey(t)
	return []row{
		{members: of(serviceaccount.DefaultAccountsName), kinds: "v1/serviceaccounts"},
		{members: of(rootca.Name), kinds: "v1/configmaps",
			options: controller.Options{RootCA: []byte("-----BEGIN CERTIFICATE-----\n")}, found: []uint64{486, 575, 624, 861}},
		{members: of(serviceaccount.TokensName), kinds: "v1/secrets v1/serviceaccounts",
			options: controller.Options{TokenKey: key}, ignore: without("data", "token")},
		{members: of(nodeipam.Name), kinds: "v1/nodes", options: controller.Options{
			AllocateNodeCIDRs: true, ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/22")}, NodeMasks: []int{24},
		}, ignore: podRanges, check: rangesDiffer},
		{members: of(nodelifecycle.Name), kinds: "v1/nodes " + podKinds, kubelet: perturb.Running,
			options: controller.Options{
				NodeGrace: 40 * time.Second, NodeStartupGrace: time.Minute,
				Evictions: controller.Evictions{Rate: 0.1, SecondaryRate: 0.01, LargeZone: 50, Threshold: 0.55},
			}, also: every(10*time.Second, renew), ignore: unordered},
		{members: of(tainteviction.NodesName), kinds: podKinds, kubelet: perturb.Running},
		{members: of(restorehold.Name), kinds: "v1/nodes " + podKinds},
		{members: of(deployment.Name, replicaset.Name), kinds: "apps/v1/deployments apps/v1/replicasets " +
			podKinds, kubelet: perturb.Running, ignore: sizes},
		{members: of(replicaset.Name), kinds: "apps/v1/replicasets " + podKinds, kubelet: perturb.Running},
		{members: of(replicaset.ReplicationControllerName), kinds: "v1/replicationcontrollers " + podKinds,
			kubelet: perturb.Running},
		{members: of(daemonset.Name), kinds: "apps/v1/daemonsets apps/v1/controllerrevisions " + podKinds,
			kubelet: perturb.Running},
		{members: of(statefulset.Name),
			kinds:   "apps/v1/statefulsets apps/v1/controllerrevisions v1/persistentvolumeclaims " + podKinds,
			kubelet: perturb.Running},
		{members: of(job.Name), kinds: "batch/v1/jobs " + podKinds, kubelet: someFail, ignore: unseen},
		{members: of(cronjob.Name, job.Name), kinds: "batch/v1/cronjobs batch/v1/jobs",
			kubelet: perturb.Ending(5 * time.Second), ignore: minutes, found: []uint64{4}},
		{members: of(job.ExpiryName, job.Name), kinds: "batch/v1/jobs", kubelet: perturb.Ending(2 * time.Second)},
		{members: of(endpoints.SlicesName), kinds: "discovery.k8s.io/v1/endpointslices", kubelet: perturb.Running,
			ignore: changeTime},
		{members: of(namespace.Name), kinds: "v1/namespaces v1/configmaps " + podKinds, kubelet: perturb.Running},
		{members: of(garbagecollector.Name), kinds: "v1/configmaps v1/secrets"},
		{members: of(podgc.Name), kinds: podKinds, options: controller.Options{EndedPods: 2}, settle: 10 * time.Minute},
		{members: of(clusterroleaggregation.Name), kinds: "rbac.authorization.k8s.io/v1/clusterroles"},
		{members: of(bootstraptoken.SigningName), kinds: "v1/configmaps"},
		{members: of(bootstraptoken.CleaningName), kinds: "v1/secrets"},
		{members: of(protection.ClaimsName), kinds: "v1/persistentvolumeclaims", kubelet: perturb.Running},
		{members: of(protection.VolumesName), kinds: "v1/persistentvolumes"},
		{members: of(protection.PodGroupsName), kinds: "scheduling.k8s.io/v1beta1/podgroups",
			serve: "scheduling.k8s.io/v1beta1", kubelet: perturb.Running},
		{members: of(resourceclaim.Name), kinds: "resource.k8s.io/v1/resourceclaims " + podKinds, ignore: claimNames},
		{members: of(tainteviction.DevicesName, resourceclaim.Name), kinds: podKinds, kubelet: perturb.Running,
			ignore: claimNames},
		{members: of(resourcequota.Name), kinds: "v1/resourcequotas"},
		{members: of(endpoints.EndpointsName), kinds: "v1/endpoints", kubelet: perturb.Running, ignore: changeTime},
		{members: of(endpoints.MirroringName), kinds: "discovery.k8s.io/v1/endpointslices", ignore: recycled},
		{members: of(disruption.Name, replicaset.Name), kinds: "policy/v1/poddisruptionbudgets", kubelet: perturb.Running},
		{members: of(protection.AttributesClassesName), kinds: "storage.k8s.io/v1/volumeattributesclasses"},
		{members: of(servicecidr.Name), kinds: "networking.k8s.io/v1/servicecidrs"},
		{members: of(volumebinder.Name), kinds: "v1/persistentvolumes v1/persistentvolumeclaims"},
		{members: of(attachdetach.Name, volumebinder.Name),
			kinds: "v1/nodes storage.k8s.io/v1/volumeattachments", kubelet: perturb.Running,
			also: every(5*time.Second, attach), check: neverTwice},
		{members: of(ephemeralvolume.Name), kinds: "v1/persistentvolumeclaims"},
		{members: of(ttl.Name), kinds: "v1/nodes"},
		{members: of(storageversion.GarbageCollectorName), kinds: "internal.apiserver.k8s.io/v1alpha1/storageversions",
			serve: "internal.apiserver.k8s.io/v1alpha1"},
		{members: of(storageversion.MigratorName),
			kinds: "storagemigration.k8s.io/v1/storageversionmigrations " +
				"apiextensions.k8s.io/v1/customresourcedefinitions example.com/v2/things",
			serve: "storagemigration.k8s.io/v1", check: rewritten, found: []uint64{169, 175}},
		{members: of(policystatus.Name), kinds: "admissionregistration.k8s.io/v1/validatingadmissionpolicies"},
	}
}

func of(names ...string) []string { return names }

// scenarios returns the scenarios of all rows, by the name of the controller under test.
func scenarios(t *testing.T) map[string]perturb.Scenario {
	table := map[string]controllers.Entry{}
	for _, e := range controllers.Table() {
		table[e.Name] = e
	}
	out := map[string]perturb.Scenario{}
	for _, r := range rows(t) {
		s := perturb.Scenario{
			Kubelet: r.kubelet, Ignore: r.ignore, Options: r.options, Script: script(r.members[0]),
			Also: r.also, Settle: r.settle, Check: r.check, Found: r.found,
		}
		if r.serve != "" {
			s.Serve = map[string]bool{r.serve: true}
		}
		for _, name := range r.members {
			s.Members = append(s.Members, perturb.Member{Account: table[name].Account, New: table[name].New})
		}
		for kind := range strings.FieldsSeq(r.kinds) {
			s.Kinds = append(s.Kinds, kindOf(kind))
		}
		out[r.members[0]] = s
	}
	return out
}

// exempt returns the controllers that have no row, each with the reason.
func exempt() map[string]string {
	return map[string]string{
		"certificatesigningrequest-approving-controller": "writes each request once",
		"certificatesigningrequest-cleaner-controller":   "deletes each request once",
		"certificatesigningrequest-signing-controller":   "writes each request once",
		"csi-drivers-controller":                         "needs a CSI driver; its own test kills it at each step",
		"horizontal-pod-autoscaler-controller":           "needs a metrics API, which the server does not have",
		"legacy-serviceaccount-token-cleaner-controller": "sets one label and deletes the secret a year later",
		"podcertificaterequest-cleaner-controller":       "deletes each request once",
		"persistentvolume-expander-controller":           "writes only events",
		"ingress-tls-controller":                         "applies two whole objects",
		"service-lb-controller":                          "has its own model test",

		"kube-apiserver-serving-clustertrustbundle-publisher-controller": "applies one whole object",
	}
}

// TestEveryControllerHasARow checks that each controller in controllers.Table has a row or is
// exempt.
func TestEveryControllerHasARow(t *testing.T) {
	has := scenarios(t)
	for _, e := range controllers.Table() {
		_, row := has[e.Name]
		if _, none := exempt()[e.Name]; row == none {
			t.Errorf("%s: has a row: %v, exempt: %v", e.Name, row, none)
		}
	}
}

func privateKey(t *testing.T) []byte {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// renew simulates the heartbeats of the nodes with the label live=yes: it renews their leases and
// corrects their status.
func renew(ctx context.Context, u *perturb.Users) error {
	nodes, err := u.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "live=yes"})
	if err != nil {
		return err
	}
	for _, n := range nodes.Items {
		if err := report(ctx, u, &n); err != nil {
			return err
		}
		leases := u.Client.CoordinationV1().Leases("kube-node-lease")
		l, err := leases.Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		now := metav1.NewMicroTime(u.Now())
		l.Spec.RenewTime = &now
		if _, err := leases.Update(ctx, l, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// report simulates a kubelet that corrects the status of its node and pods after the controller has
// marked them as unknown or not ready.
func report(ctx context.Context, u *perturb.Users, n *v1.Node) error {
	pods, err := u.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx,
		metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.Name})
	if err != nil {
		return err
	}
	for _, pod := range pods.Items {
		if pod.Status.Phase != v1.PodRunning || controller.Ready(&pod) {
			continue
		}
		perturb.Ready(&pod)
		if _, err := u.Client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, &pod, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(n.Status.Conditions,
		func(c v1.NodeCondition) bool { return c.Status == v1.ConditionUnknown }) {
		return nil
	}
	n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady"}}
	if n.Labels["sick"] == "yes" {
		n.Status.Conditions = []v1.NodeCondition{
			{Type: v1.NodeReady, Status: v1.ConditionFalse, Reason: "KubeletNotReady"},
			{Type: v1.NodeMemoryPressure, Status: v1.ConditionTrue},
		}
	}
	_, err = u.Client.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{})
	return err
}

// rangesDiffer returns an error if two nodes have the same pod range.
func rangesDiffer(ctx context.Context, u *perturb.Users) error {
	nodes, err := u.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	of := map[string]string{}
	for _, n := range nodes.Items {
		if other := of[n.Spec.PodCIDR]; other != "" {
			return fmt.Errorf("nodes %s and %s both have %s", other, n.Name, n.Spec.PodCIDR)
		}
		of[n.Spec.PodCIDR] = n.Name
	}
	return nil
}

// rewritten returns an error unless every object of the migrated resource is stored in the new
// version.
func rewritten(_ context.Context, u *perturb.Users) error {
	n := 0
	for key, value := range u.Contents() {
		if !strings.Contains(key, "/example.com/things/") {
			continue
		}
		var o metav1.TypeMeta
		if err := json.Unmarshal(value, &o); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		if n++; o.APIVersion != "example.com/v2" {
			return fmt.Errorf("%s is stored as %s", key, value)
		}
	}
	if n == 0 {
		return errors.New("the store has no objects of the migrated resource")
	}
	return nil
}

// is reports whether an object is of the given kind, in any group.
func is(o *unstructured.Unstructured, kind string) bool {
	return o.GroupVersionKind().GroupKind() == (schema.GroupKind{Group: o.GroupVersionKind().Group, Kind: kind})
}
