//go:build race

package broker

// raceEnabled says that the race detector is in the binary, which multiplies memory.
const raceEnabled = true
