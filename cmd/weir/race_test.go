//go:build race

package main

// raceEnabled says that the race detector is in the binary, which multiplies memory.
const raceEnabled = true
