// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"keelson.dev/keelson/test/machines/lab"
)

// writerConfig is the environment variable that makes this program write instead of testing. Its value is
// the kubeconfig.
const writerConfig = "KEELSON_WRITER"

func TestMain(m *testing.M) {
	if kubeconfig := os.Getenv(writerConfig); kubeconfig != "" {
		if err := write(kubeconfig); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const (
	writerProgram = "/root/writer"
	writerStop    = "/root/writer.stop"
	// requestLimit is how long a request of the writer may take.
	requestLimit = 30 * time.Second
)

// writes has what a writer has seen.
type writes struct {
	Done   int
	Failed []string // errors of requests
	// Gap is the longest time between the ends of two writes that succeeded, in seconds, and Slowest the
	// longest request.
	Gap, Slowest float64
}

// write changes a ConfigMap again and again, as a client with the defaults of client-go, until the file
// writerStop exists. Then it prints what it has seen.
func write(kubeconfig string) error {
	rc, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return err
	}
	maps := client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	m, err := maps.Create(context.Background(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "writer-"}},
		metav1.CreateOptions{})
	if err != nil {
		return err
	}
	seen, last := writes{}, time.Now()
	for {
		if _, err := os.Stat(writerStop); err == nil {
			return json.NewEncoder(os.Stdout).Encode(seen)
		}
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), requestLimit)
		m.Data, m.ResourceVersion = map[string]string{"n": strconv.Itoa(seen.Done)}, ""
		_, err := maps.Update(ctx, m, metav1.UpdateOptions{})
		cancel()
		now := time.Now()
		seen.Slowest = max(seen.Slowest, now.Sub(began).Seconds())
		if err != nil {
			seen.Failed = append(seen.Failed, fmt.Sprintf("%s after %.3f s: %v", now.UTC().Format("15:04:05.000"),
				now.Sub(began).Seconds(), err))
			continue
		}
		seen.Gap = max(seen.Gap, now.Sub(last).Seconds())
		last = now
		seen.Done++
	}
}

// startWriter runs a writer on a machine. The returned function ends it, and returns what it has seen.
func (c *cell) startWriter(m *lab.Machine, kubeconfig string) (stop func() writes) {
	c.Helper()
	self, err := os.Executable()
	if err == nil {
		err = m.CopyIn(self, writerProgram)
	}
	if err != nil {
		c.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.Context()))
	type result struct {
		out []byte
		err error
	}
	ended := make(chan result, 1)
	go func() {
		out, err := m.Run(ctx, "env", writerConfig+"="+kubeconfig, writerProgram)
		ended <- result{out, err}
	}()
	c.Cleanup(cancel)
	return func() (seen writes) {
		c.Helper()
		c.run(m, "touch "+writerStop)
		r := <-ended
		c.run(m, "rm "+writerStop)
		if err := errors.Join(r.err, json.Unmarshal(r.out, &seen)); err != nil {
			c.Fatalf("writer: %v\n%s", err, r.out)
		}
		c.Logf("%s: %d writes, longest gap %.2f s, slowest request %.2f s, %d failed\n%s", m.Name(), seen.Done, seen.Gap,
			seen.Slowest, len(seen.Failed), strings.Join(seen.Failed, "\n"))
		return seen
	}
}
