//go:build unix && !linux

package vfs

import "os"

// syncFile is fsync; on darwin Go asks for F_FULLFSYNC, which reaches the disk itself.
func syncFile(f *os.File) error { return f.Sync() }
