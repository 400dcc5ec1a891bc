// Package weir is the contracts of the public API as bytes, for the node that serves them.
//
// openapi.yaml says what REST does, asyncapi.yaml what the frames of a WebSocket say. Code and contracts are
// compared by the tests of gateway.
package weir

import _ "embed" // for the two documents

// OpenAPI is openapi.yaml.
//
//go:embed openapi.yaml
var OpenAPI []byte

// AsyncAPI is asyncapi.yaml.
//
//go:embed asyncapi.yaml
var AsyncAPI []byte
