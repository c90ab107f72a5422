// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package http2server

import (
	"context"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"
)

// forbidden lists header fields of HTTP/1 that HTTP/2 does not allow (RFC 9113, section 8.2.2).
var forbidden = []string{"Connection", "Proxy-Connection", "Transfer-Encoding", "Upgrade", "Keep-Alive"}

// makeRequest returns the request that a header describes. It returns an http2.StreamError if the
// header is malformed.
func (st *stream) makeRequest(f *http2.MetaHeadersFrame) error {
	malformed := streamError(st.id, http2.ErrCodeProtocol)
	header := make(http.Header, len(f.Fields))
	for _, field := range f.RegularFields() {
		header.Add(field.Name, field.Value)
	}
	for _, name := range forbidden {
		if _, ok := header[name]; ok {
			return malformed
		}
	}
	if te := header["Te"]; len(te) > 0 && (len(te) > 1 || te[0] != "trailers" && te[0] != "") {
		return malformed
	}
	host, ok := authority(f, header)
	if !ok {
		return malformed
	}
	method, path := f.PseudoValue("method"), f.PseudoValue("path")
	target, ok := requestTarget(f, host)
	if !ok {
		return malformed
	}
	if method == http.MethodConnect {
		path = host // the target of CONNECT is the host, as in HTTP/1
	}
	if cookies := header["Cookie"]; len(cookies) > 1 {
		header["Cookie"] = []string{strings.Join(cookies, "; ")}
	}
	invite := httpguts.HeaderValuesContainsToken(header["Expect"], "100-continue")
	if invite {
		delete(header, "Expect")
	}
	ctx, cancel := context.WithCancel(st.conn.base)
	st.cancel = cancel
	r := &http.Request{
		Method: method, URL: target, RequestURI: path, Host: host,
		Proto: "HTTP/2.0", ProtoMajor: 2,
		Header: header, Trailer: declaredTrailers(header), Body: http.NoBody,
		RemoteAddr: st.conn.remote, TLS: st.conn.tlsState,
	}
	st.request = r.WithContext(ctx)
	if !st.setBody(header, invite) {
		cancel()
		return malformed
	}
	return nil
}

// setBody sets the request's body and length. It returns false if content-length is invalid or
// contradicts the end of the stream.
func (st *stream) setBody(header http.Header, invite bool) bool {
	if lengths := header["Content-Length"]; len(lengths) > 0 {
		n, err := strconv.ParseUint(textproto.TrimString(lengths[0]), 10, 63)
		if err != nil || len(lengths) > 1 {
			return false
		}
		st.declared = int64(n) //nolint:gosec // 63 bits
	}
	if st.remoteClosed {
		return st.declared <= 0
	}
	st.body = newBody(st)
	st.body.invite = invite
	st.request.Body, st.request.ContentLength = st.body, st.declared
	return true
}

// authority returns the host of a request, from the :authority pseudo-header field or the host
// field. It removes the host field from header.
func authority(f *http2.MetaHeadersFrame, header http.Header) (string, bool) {
	host := f.PseudoValue("authority")
	switch fields := header["Host"]; {
	case len(fields) > 1, len(fields) == 1 && host != "" && fields[0] != host:
		return "", false
	case len(fields) == 1:
		host = fields[0]
	}
	delete(header, "Host")
	return host, !strings.Contains(host, "@") && (host == "" || httpguts.ValidHostHeader(host))
}

// requestTarget returns the URL of a request, and reports whether its pseudo-header fields are
// valid (RFC 9113, section 8.3.1).
func requestTarget(f *http2.MetaHeadersFrame, host string) (*url.URL, bool) {
	method, scheme, path := f.PseudoValue("method"), f.PseudoValue("scheme"), f.PseudoValue("path")
	if f.PseudoValue("protocol") != "" {
		return nil, false // extended CONNECT is not supported
	}
	if method == http.MethodConnect {
		return &url.URL{Host: host}, scheme == "" && path == "" && host != ""
	}
	if method == "" || scheme != "https" && scheme != "http" || path != "*" && !strings.HasPrefix(path, "/") {
		return nil, false
	}
	u, err := url.ParseRequestURI(path)
	return u, err == nil
}

// declaredTrailers returns the names of the trailers that a request announces, and removes the
// announcement from header.
func declaredTrailers(header http.Header) http.Header {
	var trailer http.Header
	for _, v := range header["Trailer"] {
		for key := range strings.SplitSeq(v, ",") {
			key = textproto.CanonicalMIMEHeaderKey(textproto.TrimString(key))
			switch key {
			case "Transfer-Encoding", "Trailer", "Content-Length":
			default:
				if trailer == nil {
					trailer = http.Header{}
				}
				trailer[key] = nil
			}
		}
	}
	delete(header, "Trailer")
	return trailer
}
