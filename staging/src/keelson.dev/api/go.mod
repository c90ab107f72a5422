module keelson.dev/api

go 1.26.0

require (
	k8s.io/apimachinery v0.36.6
	k8s.io/utils v0.0.0-20260210185600-b8788abfbbc2
)
