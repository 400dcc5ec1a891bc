// Package cluster holds the rules of the controller: what the cluster knows of its nodes, its topics
// and its settings, and how a command changes it.
//
// A [State] applies [Command]s in the order in which they were committed and answers each with a
// [Result]. It does no I/O, starts no goroutine and asks neither a clock nor chance, so every node
// that applies the same commands has the same state, and [State.Hash] says so. What a command needs
// of the outside world, a time or a new topic's id, its proposer puts into it. A command is checked
// again when it is applied: a decision that was made on an old picture becomes a refusal.
//
// The world reads an [Image]. It is immutable and shares with its predecessors what did not change,
// so to make one costs the same with ten topics and with ten thousand, and [Image.Since] finds what
// changed without looking at the rest.
//
//	result := state.Apply(index, cluster.Command{ID: id, Op: cluster.CreateTopic{...}})
//	image := state.Image()
//	t, ok := image.Topic("orders")
//
// Commands and snapshots have a byte format of their own, described in docs/metadata.md. Bytes of a
// version or a kind that this program does not know are an error that stops the node; they are never
// skipped, since a node that skips one has another state than its peers from there on.
package cluster
