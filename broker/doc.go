// Package broker is the floor where partitions live: a node with its partitions, the goroutines that
// own them, and the calls that the doors make.
//
// A [Node] is made by [New] and lives for one [Node.Run]:
//
//	node, err := broker.New(broker.DefaultConfig(), broker.Deps{FS: vfs.OS{}, Cluster: quorum, Logger: logger})
//	...
//	err = node.Run(ctx) // returns after every log is closed; an error is one of the disk
//
// Every partition has one owner goroutine, which alone appends to the log and steps the partition's
// replica.Machine, and one syncer beside it, so that one fsync serves everyone who waits. Readers
// never meet a writer's lock: at the tail they share the memory of the batches that were appended
// last, elsewhere they read the log. One watcher a node follows the cluster's images and opens and
// closes partitions; one cleaner a node rolls, retains and compacts.
//
// Consumer groups live in the internal topic __groups. Each of its partitions has a coordinator where it
// is led: calls decide by the rules of package group, one at a time, on their callers' goroutines, and
// answer when the records of the decision are committed; the coordinator's goroutine appends them, one
// batch for all who wait, loads the groups when a reign begins, and throws them away when what was
// decided could not be committed.
//
// What a caller may rely on:
//
//   - A record whose result has no error is stored at its offset, as safely as the acks asked for.
//   - An error of any kind but Timeout means that the record will never be readable.
//   - Timeout means that nobody knows.
//   - No reader gets a record at or above the high watermark.
//   - What a call of a group was answered, and all that the answer depends on, is committed.
package broker
