// Package boltfile opens bbolt files that may be damaged.
//
// bbolt trusts its pages: over a bad one it panics, and while it opens a file also in a goroutine of its own,
// where nothing can catch it and the process ends. So [Open] first lets [Walk] read every page that bbolt will
// reach, without a byte written and with the file's lock held, and refuses what bbolt would stumble over. What
// a page has no means to show, such as a bit that changed within a value, is for sums of the owner's own, which
// it checks in the same walk.
//
//	db, err := boltfile.Open(path, func(tx *bbolt.Tx) error { return checkRows(tx) })
//	if boltfile.IsDamage(err) {
//		// put it aside and make it anew, or say how to get it back
//	}
//
// A file stands under its name only when it is complete: it is made beside it and comes there by [Rename].
package boltfile
