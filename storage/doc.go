// Package storage keeps one partition's log on disk: batches are appended at its end, read from any
// offset, and leave at its beginning. docs/storage.md has the files and their bytes.
//
// A [Log] has one owner, one syncer, one cleaner and any number of readers, each on a goroutine of
// the caller's: the package starts none. The owner appends and truncates, the syncer makes durable
// what was appended, the cleaner deletes and compacts, and none of them waits for another's disk
// beyond the roll of a segment. Readers take no lock that a writer holds.
//
//	log, found, err := storage.Open(vfs.OS{}, dir, cfg)
//	err = log.Append(batches)              // owner: one write; readable at once, durable not yet
//	end, err := log.Sync()                 // syncer: all below end survives any crash
//	piece, err := log.Read(from, end, max) // anyone: whole batches, verified
//	err = log.Close()                      // owner, when all others have stopped
//
// What holds: what Sync reported is there after any crash, in order and as it was written; bytes
// that do not fit their checksum are never returned; a file that can be rebuilt never stops a start.
// An error for which [Final] is true means that the disk can no longer be trusted to say what it
// holds. The log refuses all further work, and the process must end: only a recovery may look again.
package storage
