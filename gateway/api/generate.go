// Package api holds the types of the control plane and the routes that call it, generated from
// openapi.yaml, which is written first. make generate makes it anew; only settings.go is written by hand.
package api

//go:generate go tool -modfile=../../tools/go.mod oapi-codegen -config oapi.yaml ../../openapi.yaml
