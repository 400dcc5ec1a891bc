// Package view keeps what the log of the groups says, the newest value of each key, in a file beside it:
// whoever becomes the coordinator of a partition reads its view and then only the end of its log.
//
//	v, err := view.Open(filepath.Join(dir, "groups", "view.db"), logger)
//	at, err := v.Load(p, group.Replay)          // what there is, and how far it goes
//	err = v.Apply(p, view.Position{ID: id, End: end, Epoch: epoch, At: now}, changes)
//
// The log is the truth and this a copy of it: nothing is lost with the file. A file that is damaged is put
// aside and made anew when it is opened, and a partition of which the rows no longer fit is an error of kind
// Corrupt, after which Reset begins it anew.
//
// The promises: the rows of a partition and its position are always those of one Apply, also after a kill or a
// power cut. What is damaged is never returned for sound: each position has with it the number of its rows and
// a sum over them. The package knows nothing of what keys and values say. docs/group-view.md has the bytes.
//
// A View may be used by several goroutines at once. It starts none.
package view
