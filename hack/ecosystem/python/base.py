# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0

"""Replaces the module kubernetes.e2e_test.base, which the tests import and Debian's package lacks."""

from kubernetes import client, config


def get_e2e_configuration():
    """Return the configuration of a client with all rights."""
    configuration = client.Configuration()
    config.load_kube_config(client_configuration=configuration)
    return configuration
