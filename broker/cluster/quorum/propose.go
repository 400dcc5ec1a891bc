package quorum

import (
	"context"
	"crypto/rand"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/weirlog/weir/broker/cluster"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

const (
	queueLength   = 1024    // proposals that may wait
	batchCommands = 512     // committed together
	batchBytes    = 1 << 20 // of them
)

// States of a request. Caller and proposer race for the first move, so that both know whether a request
// whose caller gave up was sent.
const (
	waiting int32 = iota
	taken         // by the proposer, which will answer
	abandoned
)

// request is a proposal, or a barrier, on its way through the queue.
type request struct {
	command []byte // encoded; nil for a barrier
	name    string
	state   atomic.Int32
	done    chan struct{} // closed when result and err are set
	result  cluster.Result
	err     error
}

func newRequest(name string, command []byte) *request {
	return &request{command: command, name: name, done: make(chan struct{})}
}

func (r *request) answer(result cluster.Result, err error) {
	r.result, r.err = result, err
	close(r.done)
}

// Propose commits a command and returns its result. An empty id of the command gets a random one. The
// error is the command's refusal, or a fault: of kind NotLeader, Overloaded, Closed or Stopping when the
// command was not committed and will not be, of kind Timeout when the outcome is unknown.
func (q *Quorum) Propose(ctx context.Context, c cluster.Command) (cluster.Result, error) {
	if c.ID == (cluster.CommandID{}) {
		_, _ = rand.Read(c.ID[:]) // crypto/rand.Read never fails: it ends the process instead
	}
	r := newRequest(c.Name(), c.Encode())
	err := q.send(ctx, r)
	q.metrics.proposals.WithLabelValues(r.name, outcome(r, err)).Inc()
	return r.resultFor(err)
}

// resultFor keeps a result away from callers that stopped waiting: the proposer may still write it.
func (r *request) resultFor(err error) (cluster.Result, error) {
	select {
	case <-r.done:
		return r.result, err
	default:
		return cluster.Result{}, err
	}
}

func outcome(r *request, err error) string {
	switch {
	case err == nil:
		return outcomeTaken
	case fault.Is(err, fault.Timeout):
		return outcomeUnknown
	}
	select {
	case <-r.done:
		if r.result.Err != nil {
			return outcomeRefused
		}
	default:
	}
	return outcomeNotSent
}

// Barrier returns when the image holds everything that had been acknowledged, by any node, before the
// call.
func (q *Quorum) Barrier(ctx context.Context) error { return q.send(ctx, newRequest("barrier", nil)) }

// send queues a request and waits for its answer.
func (q *Quorum) send(ctx context.Context, r *request) error {
	select {
	case <-q.closing:
		return q.stopped()
	default:
	}
	select {
	case q.queue <- r:
	case <-q.closing:
		return q.stopped()
	case <-ctx.Done():
		return q.notSent(ctx)
	}
	select {
	case <-r.done:
		return r.err
	case <-q.ended:
	case <-ctx.Done():
	}
	if r.state.CompareAndSwap(waiting, abandoned) {
		if ctx.Err() == nil {
			return q.stopped()
		}
		return q.notSent(ctx)
	}
	select {
	case <-r.done: // at the same moment
		return r.err
	default:
		return unknown("the wait ended before the change was committed")
	}
}

func unknown(why string) error {
	return fault.Newf("quorum.Propose", fault.Timeout, nil, "%s; whether it takes effect is unknown", why)
}

func (q *Quorum) stopped() error {
	if err := q.failure.get(); err != nil {
		return fault.Newf("quorum.Propose", fault.Stopping, nil, "the node is stopping after an error; nothing was changed")
	}
	return fault.Newf("quorum.Propose", fault.Stopping, nil, "the node is stopping; nothing was changed")
}

// notSent is for a caller whose wait ended while its request was in the queue.
func (q *Quorum) notSent(ctx context.Context) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return fault.Newf("quorum.Propose", fault.Closed, nil, "the caller went away; nothing was changed")
	case q.Ready() != nil:
		return fault.Newf("quorum.Propose", fault.NotLeader, nil, "the metadata has no leader yet; nothing was changed")
	default:
		return fault.Newf("quorum.Propose", fault.Overloaded, nil, "too many changes of the metadata are waiting; nothing was changed")
	}
}

// propose registers this process and then commits what waits in the queue, until ctx ends. One batch is
// under way at a time: what arrives meanwhile waits for the next one, so each sync serves all it can.
func (q *Quorum) propose(ctx context.Context, group *raft.Raft) error {
	if err := q.register(ctx, group); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case first := <-q.queue:
			// Whoever was answered by the last batch may have its next proposal at hand; let it come along.
			runtime.Gosched()
			q.commit(group, q.take(first))
		}
	}
}

// register commits the first command of this process. Behind it everything that was committed before is
// in the image, and every partition that this node leads is in an epoch of its own.
func (q *Quorum) register(ctx context.Context, group *raft.Raft) error {
	now := topic.Millis(time.Now().UnixMilli())
	requests := make([]*request, 0, 2)
	for _, op := range []cluster.Op{cluster.FoundCluster{ClusterID: q.ClusterID()}, cluster.RegisterNode{Node: q.cfg.Node, At: now}} {
		c := cluster.Command{Op: op}
		_, _ = rand.Read(c.ID[:])
		r := newRequest(c.Name(), c.Encode())
		r.state.Store(taken)
		requests = append(requests, r)
	}
	q.commit(group, requests)
	for _, r := range requests {
		if r.err == nil {
			continue
		}
		if ctx.Err() != nil { // it was stopped before it was ready
			return ctx.Err()
		}
		return r.err
	}
	q.incarnation.Store(int64(requests[1].result.Incarnation))
	close(q.ready)
	return nil
}

// take returns first and what else waits, as far as one entry holds it.
func (q *Quorum) take(first *request) []*request {
	var batch []*request
	size := 0
	add := func(r *request) {
		if r.state.CompareAndSwap(waiting, taken) {
			batch = append(batch, r)
			size += len(r.command)
		}
	}
	add(first)
	for len(batch) < batchCommands && size < batchBytes {
		select {
		case r := <-q.queue:
			add(r)
		default:
			return batch
		}
	}
	return batch
}

// commit carries out a batch and answers it.
func (q *Quorum) commit(group *raft.Raft, batch []*request) {
	var proposals, barriers []*request
	var commands [][]byte
	for _, r := range batch {
		if r.command == nil {
			barriers = append(barriers, r)
			continue
		}
		proposals = append(proposals, r)
		commands = append(commands, r.command)
	}
	if len(proposals) > 0 {
		begun := time.Now()
		future := group.Apply(cluster.EncodeEntry(commands), 0)
		results, err := q.outcome(future)
		q.metrics.commits.Observe(time.Since(begun).Seconds())
		q.metrics.batches.Observe(float64(len(commands)))
		for i, r := range proposals {
			if err != nil {
				r.answer(cluster.Result{}, err)
				continue
			}
			r.answer(results[i], results[i].Err)
		}
	}
	if len(barriers) > 0 {
		// Registration was the first command of this term, so the image has what earlier terms committed;
		// being the leader still, it also has what was committed since.
		err := group.VerifyLeader().Error()
		if err != nil {
			err = fault.New("quorum.Barrier", fault.NotLeader, nil, err)
		}
		for _, r := range barriers {
			r.answer(cluster.Result{}, err)
		}
	}
}

// outcome waits for an entry and reads what became of it.
func (q *Quorum) outcome(future raft.ApplyFuture) ([]cluster.Result, error) {
	switch err := future.Error(); {
	case err == nil:
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return nil, fault.Newf("quorum.Propose", fault.NotLeader, nil, "this node does not lead the metadata now; nothing was changed")
	case errors.Is(err, raft.ErrLeadershipLost):
		return nil, unknown("the leadership was lost while the change was being committed")
	default:
		return nil, unknown("the node stopped while the change was being committed")
	}
	switch response := future.Response().(type) {
	case []cluster.Result:
		return response, nil
	default: // the machine's error is Run's to report
		return nil, unknown("the node stopped while the change was being applied")
	}
}
