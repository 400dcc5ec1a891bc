// Package session holds the readers of a log: what stands between a partition and somebody who wants its
// records, from a page over HTTP to a subscription that stays open for weeks.
//
//	reader, err := hub.Open(ctx, session.Spec{Topics: names, From: session.From{Kind: session.Latest}})
//	defer reader.Close()
//	err = reader.Listen(bell)
//	for {
//		if err = reader.Next(ctx, limit, &page); err != nil { … }
//		if page.Empty() { <-bell; continue }
//		… // write page's notices, then its records, then the cursor
//	}
//
// A [Reader] follows partitions of one or several topics. Everything that pushes is that loop with a
// mouth: WebSocket, SSE and NDJSON differ in how they write a page. Nothing is queued for a slow
// reader: while its socket or its credit takes nothing, its session does not read the log.
//
// A [Hub] knows every live session, caps them, shares their encodings and says goodbye to them. Who
// stands at the tail of a partition shares one decoding and one encoding of each piece with everybody
// else there; heads and cursors are each reader's own.
//
// A [Membership] makes a connection a member of a consumer group. Its reader is one of [Hub.OpenGroup], which
// reads the partitions that the group assigns, wherever they lie, and is given others while it lives. A
// goroutine of its own makes every call to the group's coordinator, one at a time, and keeps what is to be
// committed meanwhile as one offset a partition; the session's goroutine waits for none of them.
//
// Three promises hold. A reader sees each partition's offsets rising and without holes; what retention,
// damage or a cut log took is announced as a gap before the record behind it. A cursor that was sent
// resumes exactly behind the records that were sent before it. One goroutine writes to a socket, and no
// goroutine is left when [Hub.Drain] returns.
package session
