// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/json"
	"fmt"
	"net/http"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

func writeJSON(w http.ResponseWriter, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		writeText(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n')) // the client may have disconnected
}

func podList(pods []*v1.Pod) *v1.PodList {
	list := &v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: make([]v1.Pod, 0, len(pods))}
	for _, p := range pods {
		list.Items = append(list.Items, *p)
	}
	return list
}

func (s *Server) pods(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, podList(s.cfg.Pods.Pods()))
}

func (s *Server) runningPods(w http.ResponseWriter, r *http.Request) {
	pods, err := s.cfg.Pods.RunningPods(r.Context())
	if err != nil {
		writeText(w, http.StatusInternalServerError, err.Error())
		return
	}
	writeJSON(w, podList(pods))
}

func (s *Server) summary(w http.ResponseWriter, r *http.Request) {
	summary, err := s.cfg.Stats.Summary(r.Context(), r.FormValue("only_cpu_and_memory") == "true")
	if err != nil {
		s.cfg.Log.Error("Failed to measure the resource usage of the node and its pods", "err", err)
		writeText(w, http.StatusInternalServerError, fmt.Sprintf("Internal Error: %v", err))
		return
	}
	writeJSON(w, summary)
}

func (s *Server) configz(w http.ResponseWriter, _ *http.Request) {
	config := *s.cfg.Kubelet
	config.TypeMeta = metav1.TypeMeta{}
	writeJSON(w, map[string]*kubeletconfig.KubeletConfiguration{"kubeletconfig": &config})
}

// Health returns the handler of /healthz and of /healthz/NAME for each check. It requires no
// authorization. As in Kubernetes, the kubelet serves it on a separate port.
func (s *Server) Health() http.Handler { return s.health }
