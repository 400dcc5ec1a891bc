package broker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/weirlog/weir/broker/cluster"
	"github.com/weirlog/weir/broker/replica"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/internal/run"
	"github.com/weirlog/weir/topic"
)

// reopenEvery is how long partitions that could not be opened, for want of room, wait for the next try.
const reopenEvery = 5 * time.Second

// watchImages acts on whole images, in order, until ctx ends.
func (n *Node) watchImages(ctx context.Context) error {
	for {
		image, changed := n.cluster.Watch()
		if err := n.act(ctx, image); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		var again <-chan time.Time
		if len(n.shut) > 0 {
			again = time.After(reopenEvery)
		}
		select {
		case <-changed:
		case <-again:
		case <-ctx.Done():
			return nil
		}
	}
}

// act carries out an image: it closes what is gone, opens what is new, tells the others of their
// leaders and settings, and then lets callers see it. Only the watcher calls it.
func (n *Node) act(ctx context.Context, image *cluster.Image) error {
	difference := image.Since(n.hall.image.Load())
	for _, t := range difference.Gone {
		if err := n.drop(t); err != nil {
			return err
		}
	}
	changed := difference.Changed
	for _, t := range changed {
		delete(n.shut, t.ID) // once is enough: its partitions are opened by this change
	}
	for id := range n.shut {
		if t, ok := image.TopicByID(id); ok {
			changed = append(changed, t)
		}
	}
	clear(n.shut)
	var changes []*change
	var openings []func() error
	for _, t := range changed {
		c := n.changeOf(t)
		changes = append(changes, c)
		openings = append(openings, c.openings...)
	}
	err := inParallel(n.cfg.OpenAtOnce, openings)
	if err == nil {
		err = n.raise(ctx, changes)
	}
	if err != nil {
		for _, c := range changes {
			err = errors.Join(err, c.undo())
		}
		return err
	}
	for _, c := range changes {
		n.settle(ctx, c)
	}
	n.hall.publish(image)
	n.metrics.topics.Set(float64(image.TopicCount()))
	n.metrics.partitions.Set(float64(n.open.Load()))
	for _, c := range changes {
		for _, p := range c.partitions {
			if p != nil {
				p.bells.ring()
			}
		}
	}
	return nil
}

// change is what an image asks of one topic.
type change struct {
	topic      *cluster.Topic
	served     *served
	partitions []*partition // as they will be
	fresh      []bool       // opened by this change
	openings   []func() error

	// What a later image than this one says of a partition, nil for most: it was asked for an epoch
	// above that of the log.
	decided []*topic.PartitionDescription
}

// changeOf compares a topic with what is served of it.
func (n *Node) changeOf(t *cluster.Topic) *change {
	count := len(t.Partitions)
	c := &change{
		topic: t, served: &served{},
		partitions: make([]*partition, count), fresh: make([]bool, count), decided: make([]*topic.PartitionDescription, count),
	}
	if known, ok := n.hall.topics.Load(t.ID); ok {
		c.served = known.(*served)
		copy(c.partitions, *c.served.partitions.Load())
	}
	makeDir := sync.OnceValue(func() error { return n.makeTopicDir(t.ID) })
	for i := range t.Partitions {
		if c.partitions[i] != nil || !t.Partitions[i].On(n.cfg.NodeID) {
			continue
		}
		c.openings = append(c.openings, func() (err error) {
			if err = makeDir(); err == nil {
				c.partitions[i], err = n.openPartition(t.Description, topic.Partition(i))
			}
			if fault.Is(err, fault.StorageFull) { // tried again; deleting something else makes room
				n.logger.Warn("cannot open a partition", "topic", string(t.Name), "partition", i, "err", err)
				return nil
			}
			c.fresh[i] = err == nil
			return err
		})
	}
	return c
}

// settle tells the partitions of a changed topic who leads and which settings hold, starts those that
// were opened, and lets callers find them.
func (n *Node) settle(ctx context.Context, c *change) {
	for i, p := range c.partitions {
		description := &c.topic.Partitions[i]
		if c.decided[i] != nil {
			description = c.decided[i]
		}
		switch {
		case p == nil:
			if description.On(n.cfg.NodeID) {
				n.shut[c.topic.ID] = struct{}{}
			}
		case c.fresh[i]:
			p.follow(c.topic.Description, description) // nobody else knows it yet
			n.open.Add(1)
			n.partitions.Go(p.path.String(), func(context.Context) error {
				defer n.open.Add(-1)
				return p.run()
			})
		default:
			// An error says that the node or the partition is ending, and then nobody asks any more.
			if err := p.ask(ctx, func() { p.follow(c.topic.Description, description) }); err != nil {
				p.logger.Debug("not told of a change", "err", err)
			}
		}
	}
	if slices.ContainsFunc(c.partitions, func(p *partition) bool { return p != nil }) {
		n.described.push(c.topic)
	}
	// In this order: who sees that the topic has more partitions finds them open.
	c.served.partitions.Store(&c.partitions)
	c.served.topic.Store(c.topic)
	n.hall.topics.Store(c.topic.ID, c.served)
}

// undo closes what was opened for a change that is not to be.
func (c *change) undo() (err error) {
	for i, p := range c.partitions {
		if c.fresh[i] {
			err = errors.Join(err, p.log.Close())
		}
	}
	return err
}

// follow puts what the cluster decided of a partition in force. Owner only.
func (p *partition) follow(t *topic.Description, d *topic.PartitionDescription) {
	settings := t.Settings
	if *p.settings.Load() != settings {
		p.settings.Store(&settings)
		p.log.SetConfig(settings)
		ring(p.pace)
	}
	minInSync := settings.MinISR(t.Replication)
	if d.Leader != p.node.cfg.NodeID {
		p.apply(p.machine.Step(replica.Stop{}))
		return
	}
	if epoch := p.machine.Epoch(); d.Epoch > epoch {
		synced := p.log.Synced()
		if settings.FlushMessages == 0 {
			synced = p.log.End()
		}
		p.epoch.Store(int32(d.Epoch))
		p.apply(p.machine.Step(replica.Lead{
			Epoch: d.Epoch, PartitionEpoch: d.Changes, InSync: d.InSync, MinInSync: minInSync,
			End: p.log.End(), Synced: synced, HighWatermark: topic.Offset(p.hw.Load()),
		}))
		if epoch != topic.NoEpoch {
			p.logger.Info("became leader", "epoch", int(d.Epoch), "end", int64(p.log.End()))
		}
		return
	}
	p.apply(p.machine.Step(replica.Changed{PartitionEpoch: d.Changes, InSync: d.InSync, MinInSync: minInSync}))
}

// drop ends a topic's life on this node.
func (n *Node) drop(t *cluster.Topic) error {
	known, ok := n.hall.topics.LoadAndDelete(t.ID)
	if !ok {
		return nil
	}
	delete(n.shut, t.ID)
	n.described.forget(t.ID)
	partitions := *known.(*served).partitions.Load()
	for _, p := range partitions {
		if p != nil {
			p.stop(noTopic(t.Name))
		}
	}
	for _, p := range partitions {
		if p == nil {
			continue
		}
		select {
		case <-p.done:
		case <-n.failed:
			return n.failure()
		}
	}
	n.logger.Info("topic deleted", "topic", string(t.Name))
	return n.buryTopicDir(t.ID)
}

// inParallel runs tasks, most at a time, and returns the first error.
func inParallel(most int, tasks []func() error) error {
	if len(tasks) == 1 {
		return tasks[0]()
	}
	queue := make(chan func() error, len(tasks))
	for _, task := range tasks {
		queue <- task
	}
	close(queue)
	group := run.NewGroup(context.Background())
	for range min(most, len(tasks)) {
		group.Go("worker", func(ctx context.Context) error {
			for task := range queue {
				if err := task(); err != nil {
					return err
				}
				if ctx.Err() != nil {
					return nil // another has failed
				}
			}
			return nil
		})
	}
	return group.Wait()
}
