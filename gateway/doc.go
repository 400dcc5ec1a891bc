// Package gateway is the street door: HTTP and WebSocket. It decodes requests into values of its own,
// keeps the order of checks, asks the node, and encodes the answers; errors leave it as problem documents.
//
//	server, err := gateway.New(gateway.DefaultConfig(), gateway.Deps{Node: node, Logger: logger})
//	err = server.Run(ctx) // listens, serves, and drains when ctx ends
//
// openapi.yaml at the project's root is its contract. Handlers of the control plane are generated from
// it (gateway/api); produce and read, where speed counts, are written by hand under the same tests.
//
// Three promises hold. A status never lies: 200 means that every record is stored, and what timed out is
// said to be unknown. Memory is bounded: every body, line, header, unpacked stream and wait has a limit. A
// web page of a foreign origin, or behind a name that was rebound to this address, reaches nothing.
//
// What comes from the web framework is a view of a buffer that the next request reuses; it is copied, or
// handed down only for as long as the call lasts.
package gateway
