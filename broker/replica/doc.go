// Package replica holds the replication rules of one partition's leader: who may append, when an
// offset counts as committed, and when "latest" may be answered.
//
// It does no I/O and starts no goroutine. The partition's owner tells a [Machine] what happened and
// carries out, in order, the effects it returns:
//
//	for _, effect := range m.Step(replica.Synced{End: 1041}) {
//		switch effect.Do {
//		case replica.Commit: // release those who wait below effect.Offset, tell readers
//		...
//
// After every Step these promises hold. Within an epoch the high watermark never falls. It never
// passes an offset that a member of the quorum has not synced; the quorum is the in-sync set, and while
// a change of it is pending the old and the proposed set together. It moves only while the in-sync set
// has at least its minimum of members.
//
// "Synced" is an end: everything below it is on that replica's disk, or, for a topic that does not sync
// before it acknowledges, written.
package replica
