//go:build race

package storage

// raced says that the race detector slows everything down.
const raced = true
