# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0

"""Tests of what the Python client's own tests do not use: watches, pages, typed clients, tokens."""

import threading
import unittest
import uuid

from kubernetes import client, config, dynamic, utils, watch
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.configmaplock import ConfigMapLock

PATIENCE = 60


class TestClient(unittest.TestCase):

    def setUp(self):
        config.load_kube_config()
        self.core = client.CoreV1Api()
        self.namespace = "python-" + uuid.uuid4().hex[:8]
        self.core.create_namespace({"metadata": {"name": self.namespace}})
        self.addCleanup(self.core.delete_namespace, self.namespace)

    def config_map(self, name, **data):
        return self.core.create_namespaced_config_map(
            self.namespace, {"metadata": {"name": name}, "data": data})

    def test_objects(self):
        self.config_map("a", colour="blue")
        self.core.patch_namespaced_config_map("a", self.namespace, {"data": {"colour": "green"}})
        self.assertEqual(self.core.read_namespaced_config_map("a", self.namespace).data, {"colour": "green"})
        with self.assertRaises(client.ApiException) as conflict:
            self.config_map("a")
        self.assertEqual((conflict.exception.status, conflict.exception.reason), (409, "Conflict"))
        self.core.delete_namespaced_config_map("a", self.namespace)
        with self.assertRaises(client.ApiException) as missing:
            self.core.read_namespaced_config_map("a", self.namespace)
        self.assertEqual((missing.exception.status, missing.exception.reason), (404, "Not Found"))

    def test_pages(self):
        for number in range(5):
            self.config_map(f"map-{number}")
        names, pages, token = [], 0, None
        while pages == 0 or token:
            page = self.core.list_namespaced_config_map(self.namespace, limit=2, _continue=token)
            names += [item.metadata.name for item in page.items]
            pages, token = pages + 1, page.metadata._continue
        self.assertGreaterEqual(pages, 3)
        self.assertEqual([name for name in names if name.startswith("map-")], [f"map-{n}" for n in range(5)])

    def test_watch(self):
        version = self.config_map("a").metadata.resource_version
        self.core.patch_namespaced_config_map("a", self.namespace, {"data": {"colour": "red"}})
        self.core.delete_namespaced_config_map("a", self.namespace)
        self.config_map("b")
        watcher, events = watch.Watch(), []
        for event in watcher.stream(self.core.list_namespaced_config_map, self.namespace,
                                    resource_version=version, timeout_seconds=PATIENCE):
            if event["object"].metadata.name in ("a", "b"):
                events.append((event["type"], event["object"].metadata.name))
            if event["object"].metadata.name == "b":
                watcher.stop()
        self.assertEqual(events, [("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "b")])

    def test_custom_resources(self):
        client.ApiextensionsV1Api().create_custom_resource_definition({
            "metadata": {"name": "boats.python.example.com"},
            "spec": {
                "group": "python.example.com", "scope": "Namespaced",
                "names": {"plural": "boats", "singular": "boat", "kind": "Boat", "listKind": "BoatList"},
                "versions": [{
                    "name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                        "spec": {"type": "object", "properties": {"sails": {"type": "integer", "maximum": 9}}},
                        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}},
                }],
            }})
        self.addCleanup(client.ApiextensionsV1Api().delete_custom_resource_definition, "boats.python.example.com")
        for event in watch.Watch().stream(client.ApiextensionsV1Api().list_custom_resource_definition,
                                          field_selector="metadata.name=boats.python.example.com",
                                          timeout_seconds=PATIENCE):
            conditions = event["object"].status.conditions or []
            if any(c.type == "Established" and c.status == "True" for c in conditions):
                break
        resources = dynamic.DynamicClient(client.ApiClient()).resources
        boats = resources.get(api_version="python.example.com/v1", kind="Boat")
        body = {"apiVersion": "python.example.com/v1", "kind": "Boat", "metadata": {"name": "a"}, "spec": {"sails": 2}}
        boats.create(body=body, namespace=self.namespace)
        boats.status.patch(name="a", namespace=self.namespace, body={"status": {"afloat": True}},
                           content_type="application/merge-patch+json")
        self.assertEqual(boats.get(name="a", namespace=self.namespace).status.afloat, True)
        with self.assertRaises(dynamic.exceptions.UnprocessibleEntityError):
            boats.patch(name="a", namespace=self.namespace, body={"spec": {"sails": 10}},
                        content_type="application/merge-patch+json")
        for event in boats.watch(namespace=self.namespace, timeout=PATIENCE):
            self.assertEqual((event["type"], event["object"].spec.sails), ("ADDED", 2))
            break
        boats.delete(name="a", namespace=self.namespace)

    def test_yaml(self):
        manifest = [
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
             "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}},
            {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "tick"},
             "spec": {"schedule": "@yearly", "jobTemplate": {"spec": {"template": {"spec": {
                 "restartPolicy": "Never", "containers": [{"name": "tick", "image": "busybox:1.36"}]}}}}}},
        ]
        for item in manifest:
            utils.create_from_dict(client.ApiClient(), item, namespace=self.namespace)
        self.assertEqual(self.core.read_namespaced_service("web", self.namespace).spec.ports[0].port, 80)
        self.assertEqual(client.BatchV1Api().read_namespaced_cron_job("tick", self.namespace).spec.schedule, "@yearly")

    def test_token(self):
        self.core.create_namespaced_service_account(self.namespace, {"metadata": {"name": "robot"}})
        answer = self.core.create_namespaced_service_account_token(
            "robot", self.namespace, {"spec": {"expirationSeconds": 600}})
        configuration = client.Configuration.get_default_copy()
        configuration.cert_file = configuration.key_file = None
        configuration.api_key = {"authorization": "Bearer " + answer.status.token}
        robot = client.ApiClient(configuration)
        with self.assertRaises(client.ApiException) as forbidden:
            client.CoreV1Api(robot).list_namespaced_config_map(self.namespace)
        self.assertEqual(forbidden.exception.status, 403)
        rights = client.RbacAuthorizationV1Api()
        rights.create_namespaced_role(self.namespace, {
            "metadata": {"name": "robot"},
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]})
        rights.create_namespaced_role_binding(self.namespace, {
            "metadata": {"name": "robot"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "robot"},
            "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": self.namespace}]})
        review = client.AuthorizationV1Api(robot).create_self_subject_access_review({
            "spec": {"resourceAttributes": {"namespace": self.namespace, "verb": "get", "resource": "configmaps"}}})
        self.assertTrue(review.status.allowed)
        self.config_map("a", colour="blue")
        self.assertEqual(client.CoreV1Api(robot).read_namespaced_config_map("a", self.namespace).data,
                         {"colour": "blue"})

    def test_leader_election(self):
        leads = threading.Event()
        election = leaderelection.LeaderElection(electionconfig.Config(
            ConfigMapLock("leader", self.namespace, "me"), lease_duration=17, renew_deadline=15, retry_period=5,
            onstarted_leading=leads.set, onstopped_leading=None))
        threading.Thread(target=election.run, daemon=True).start()
        self.assertTrue(leads.wait(PATIENCE))
        annotations = self.core.read_namespaced_config_map("leader", self.namespace).metadata.annotations
        self.assertIn('"holderIdentity": "me"', annotations["control-plane.alpha.kubernetes.io/leader"])
