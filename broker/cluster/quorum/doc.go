// Package quorum runs the raft group that commits the cluster's metadata: hashicorp/raft with its log
// in bbolt, snapshots in files and the state, a [cluster.State], in memory.
//
// One node alone is a quorum of one. It opens no port, and it elects itself as soon as it runs, since
// its transport hands raft the order to do so. Raft is seen nowhere outside this package.
//
//	q, err := quorum.Open(quorum.Config{Dir: "weir-data/raft", Node: 1, ClusterID: known, Found: fresh})
//	group.Go("metadata", q.Run)
//	err = q.AwaitReady(ctx) // elected, everything replayed, this process registered
//	result, err := q.Propose(ctx, cluster.Command{Op: cluster.CreateTopic{...}})
//
// What it promises: a command whose result was returned is on disk and in every later [Quorum.Image];
// commands that wait together are committed with one sync; an error of the disk, or an operation on it
// that takes too long, ends [Quorum.Run] with an error and the process should end with it. A log that
// is damaged or lost is never replaced by an empty one: [Open] refuses and says what can be done.
package quorum
