// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package report defines the JSON document in which an API server reports the state of its databases.
// Both the server and clients use it.
package report

// Path is the path of the Document on an API server. With the query parameter UsageParameter, the
// document also has the usage of each database, for which the server reads all its objects.
const (
	Path           = "/debug/store"
	UsageParameter = "usage"
)

// Document is what the API server serves at Path.
type Document struct {
	Databases []Database `json:"databases"`
}

// Database is an etcd that the API server uses.
type Database struct {
	Name string `json:"name"`
	// Level is the name of a storehealth.Level.
	Level string `json:"level"`
	// WarningPercent and RefusalPercent are shares of the quota, and 0 if the server does not warn or
	// refuse writes.
	WarningPercent  int      `json:"warningPercent"`
	RefusalPercent  int      `json:"refusalPercent"`
	Defragmentation bool     `json:"defragmentation"`
	Members         []Member `json:"members"`
	// Error says why the members are not known.
	Error string `json:"error,omitempty"`
	Usage *Usage `json:"usage,omitempty"`
}

// Member is a member of an etcd cluster. Sizes are in bytes.
type Member struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Leader   bool   `json:"leader"`
	Size     int64  `json:"sizeBytes"`
	InUse    int64  `json:"inUseBytes"`
	Quota    int64  `json:"quotaBytes"` // 0 if it is not known
	NoSpace  bool   `json:"noSpaceAlarm"`
	Revision int64  `json:"revision"`
	// Error says why the state of the member is not known.
	Error string `json:"error,omitempty"`
}

// Usage is the size of the present objects in a database, without earlier states of them. The lists
// begin with the largest entry.
type Usage struct {
	Keys  int64 `json:"keys"`
	Bytes int64 `json:"bytes"`
	// Incomplete reports whether only a part of the database could be read.
	Incomplete bool `json:"incomplete,omitempty"`
	// Namespaces has the objects in namespaces, Resources all objects.
	Namespaces []Share `json:"namespaces"`
	Resources  []Share `json:"resources"`
}

// Share is the part of the usage that one namespace or resource has.
type Share struct {
	Name  string `json:"name"`
	Keys  int64  `json:"keys"`
	Bytes int64  `json:"bytes"`
}
