// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/apiserver/wire"
)

// ListWatch returns a ListWatch of the pods of all namespaces that match a field selector. It uses
// the connections of the given client.
func (r *Reader) ListWatch(of *rest.RESTClient, selector string) (*cache.ListWatch, error) {
	client, err := rest.NewRESTClient(of.Get().URL(), "", rest.ClientContentConfig{
		AcceptContentTypes: runtime.ContentTypeProtobuf, ContentType: runtime.ContentTypeProtobuf,
		GroupVersion: v1.SchemeGroupVersion,
		Negotiator:   negotiator{runtime.NewClientNegotiator(scheme.Codecs.WithoutConversion(), v1.SchemeGroupVersion), r},
	}, of.GetRateLimiter(), of.Client)
	if err != nil {
		return nil, fmt.Errorf("client for pods: %w", err)
	}
	get := func(opts metav1.ListOptions) *rest.Request {
		opts.FieldSelector = selector
		return client.Get().Resource("pods").VersionedParams(&opts, scheme.ParameterCodec)
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return get(opts).Do(ctx).Get()
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.Watch = true
			return get(opts).Watch(ctx)
		},
	}, nil
}

// negotiator is a client's content negotiator that makes the client decode pods with a Reader.
type negotiator struct {
	runtime.ClientNegotiator
	reader *Reader
}

func (n negotiator) Decoder(contentType string, params map[string]string) (runtime.Decoder, error) {
	d, err := n.ClientNegotiator.Decoder(contentType, params)
	return decoder{d, n.reader}, err
}

func (n negotiator) StreamDecoder(contentType string, params map[string]string) (runtime.Decoder,
	runtime.Serializer, runtime.Framer, error) {
	d, s, f, err := n.ClientNegotiator.StreamDecoder(contentType, params)
	if contentType == runtime.ContentTypeProtobuf {
		s = eventReader{s}
	}
	return decoder{d, n.reader}, s, f, err
}

// decoder decodes pods and lists of pods with a Reader. It passes other kinds and encodings to the
// embedded decoder.
type decoder struct {
	runtime.Decoder
	reader *Reader
}

func (d decoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object,
	*schema.GroupVersionKind, error) {
	env, err := wire.Parse(data)
	if err != nil || into != nil || env.APIVersion != "v1" {
		return d.Decoder.Decode(data, defaults, into)
	}
	kind := v1.SchemeGroupVersion.WithKind(env.Kind)
	switch env.Kind {
	case "Pod":
		pod, err := d.reader.Pod(env.Raw)
		if err != nil {
			return nil, &kind, err
		}
		return pod, &kind, nil
	case "PodList":
		list, err := d.reader.list(env.Raw)
		if err != nil {
			return nil, &kind, err
		}
		return list, &kind, nil
	}
	return d.Decoder.Decode(data, defaults, into)
}

// eventReader decodes watch events from protobuf. The object inside is not copied: its bytes are a
// part of the event's buffer. This is safe, because the client decodes the object before it reads
// the next event.
type eventReader struct{ runtime.Serializer }

func (e eventReader) Decode(data []byte, defaults *schema.GroupVersionKind,
	into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	event, ok := into.(*metav1.WatchEvent)
	if !ok || !parseEvent(event, data) {
		return e.Serializer.Decode(data, defaults, into)
	}
	return event, defaults, nil
}

// parseEvent decodes a watch event. Field 1 of the message is the event's type; field 2 is a
// RawExtension, whose field 1 has the object's bytes. It returns false if raw is malformed.
func parseEvent(event *metav1.WatchEvent, raw []byte) bool {
	for len(raw) > 0 {
		number, typ, tag := protowire.ConsumeTag(raw)
		if tag < 0 || typ != protowire.BytesType {
			return false
		}
		value, size := protowire.ConsumeBytes(raw[tag:])
		if size < 0 {
			return false
		}
		raw = raw[tag+size:]
		switch number {
		case 1:
			event.Type = eventType(value)
		case 2:
			number, typ, tag := protowire.ConsumeTag(value)
			if tag < 0 || number != 1 || typ != protowire.BytesType {
				return false
			}
			object, size := protowire.ConsumeBytes(value[tag:])
			if size < 0 || tag+size != len(value) {
				return false
			}
			event.Object.Raw = object
		}
	}
	return true
}

func eventType(name []byte) string {
	for _, t := range []watch.EventType{watch.Modified, watch.Added, watch.Deleted, watch.Bookmark} {
		if string(name) == string(t) {
			return string(t)
		}
	}
	return string(name)
}
