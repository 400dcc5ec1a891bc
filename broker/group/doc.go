// Package group holds the rules of one consumer group: who its members are, who reads which partition,
// whose commits count, and what of it is written to the topic __groups.
//
// It does no I/O, starts no goroutine and asks neither a clock nor chance: the group's coordinator says
// what happened and when, and hands in a [World] to look at the topics.
//
//	turn, records, err := g.Poll(&poll, starts, world, now)
//	// commit the records, all in one batch; then answer with turn
//
// A call changes the [Group] at once and returns the records that say the same. When they cannot be
// committed the coordinator throws the group away and makes it again from what is: [New], [Group.Replay]
// with each record, [Group.Loaded]. Replayed records give an equal group, but for its sessions, which are
// never recorded and begin anew.
//
// The group counts its changes in one epoch. A member is told an epoch with each answer and names it in
// its next call, and so says what it has seen:
//
//   - Who names none joins, or takes the member of that name over. Nothing moves by a take-over, and calls
//     with an epoch from before it are fenced.
//   - A partition that is to go from one member to another is first taken away: the old owner still
//     commits, and reads no more. It is the next owner's once the old one names an epoch in which it was
//     taken away, leaves, or its time is up. Nobody waits for anybody else's partitions.
//   - Each partition of a member has the epoch in which it was assigned, or in which a seek moved it. That
//     is the fence: a commit made with an older assignment does not count, whoever makes it.
//
// After every call these promises hold. A partition has at most one member whose commits count. A committed
// offset falls only by a seek. Everything that a member subscribes has an owner, or a member that waits for it.
package group
