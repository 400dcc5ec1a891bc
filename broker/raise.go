package broker

import (
	"context"
	"math"
	"time"

	"github.com/weirlog/weir/broker/cluster"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

const (
	// raiseLimit is how long the cluster may take to begin the reigns that one image needs.
	raiseLimit = 10 * time.Second
	// raiseAtOnce is many: the cluster commits together what waits.
	raiseAtOnce = 128
)

// raise sees to it that no partition is led in an epoch that its log has already. That happens when an
// older copy of the metadata was put back, or it was made anew: the log is ahead then, and records in an
// epoch below that of the records before them would be taken for damage. Partitions for which the
// cluster does not answer in time are closed again; the watcher tries once more a little later. An error
// is one of closing a log.
func (n *Node) raise(ctx context.Context, changes []*change) error {
	ctx, cancel := context.WithTimeout(ctx, raiseLimit)
	defer cancel()
	var raises []func() error
	for _, c := range changes {
		for i, p := range c.partitions {
			d := c.topic.Partitions[i]
			if !c.fresh[i] || d.Leader != n.cfg.NodeID {
				continue
			}
			if above := p.lastEpoch(); above >= d.Epoch {
				raises = append(raises, func() error { return n.raiseOne(ctx, c, i, above) })
			}
		}
	}
	return inParallel(raiseAtOnce, raises)
}

// lastEpoch is the newest epoch that the log knows of, also when its records are gone already.
func (p *partition) lastEpoch() topic.Epoch {
	return max(p.log.Mark().Epoch, p.log.EpochEnd(math.MaxInt32).Epoch)
}

// raiseOne has one partition's reign begin above an epoch, and keeps what the cluster made of it.
func (n *Node) raiseOne(ctx context.Context, c *change, i int, above topic.Epoch) error {
	p := c.partitions[i]
	raised, err := n.askAbove(ctx, p.ref, above)
	if err != nil {
		p.logger.Warn("closed again: its log is in a later epoch than the metadata, and the cluster has not begun one above",
			"epoch", int(c.topic.Partitions[i].Epoch), "log_epoch", int(above), "err", err)
		c.partitions[i], c.fresh[i] = nil, false
		p.end()
		return p.log.Close()
	}
	p.logger.Warn("the metadata is older than the log: leading in an epoch above the log's",
		"epoch", int(raised.Epoch), "log_epoch", int(above), "metadata_epoch", int(c.topic.Partitions[i].Epoch), "end", int64(p.log.End()))
	c.decided[i] = raised
	return nil
}

// askAbove proposes an epoch above another one and returns what the image says of the partition then.
func (n *Node) askAbove(ctx context.Context, ref topic.Ref, above topic.Epoch) (*topic.PartitionDescription, error) {
	const op = "broker.raise"
	_, err := n.cluster.Propose(ctx, cluster.Command{Op: cluster.RaiseEpoch{
		Partition: ref, By: n.cfg.NodeID, Incarnation: n.incarnated, Above: above,
	}})
	if err != nil {
		return nil, err
	}
	for {
		image, changed := n.cluster.Watch()
		t, ok := image.TopicByID(ref.ID)
		if !ok {
			return nil, noTopicID(ref.ID)
		}
		d := &t.Partitions[ref.Partition]
		if d.Epoch > above {
			return d, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fault.Newf(op, fault.Timeout, topic.Path{Topic: t.Name, Partition: ref.Partition}, "no epoch above %d within %v", above, raiseLimit)
		}
	}
}
