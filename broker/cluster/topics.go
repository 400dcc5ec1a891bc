package cluster

import (
	"maps"
	"slices"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// settingNames are the settings that a topic can have.
var settingNames = func() map[string]bool {
	names := map[string]bool{}
	for _, doc := range topic.SettingDocs() {
		names[doc.Name] = true
	}
	return names
}()

func (op CreateTopic) apply(s *State) Result {
	const what = "CreateTopic"
	if _, err := topic.ParseName(string(op.Name)); err != nil {
		return Result{Err: err}
	}
	if _, ok := s.image.topics.get(op.Name); ok {
		return refuse(what, fault.TopicExists, op.Name, "topic %q exists", op.Name)
	}
	if _, used := s.image.names.get(op.ID); used || op.ID.IsZero() || s.image.Deleted(op.ID) {
		return refuse(what, fault.Validation, op.Name, "topic id %s is not, or no longer, free", op.ID)
	}
	if err := s.checkCounts(what, op.Name, op.Partitions, op.Replication); err != nil {
		return Result{Err: err}
	}
	settings, err := parseOverrides(what, op.Name, op.Overrides)
	if err != nil {
		return Result{Err: err}
	}
	if len(op.Creator) > MaxEntryNameBytes {
		return refuse(what, fault.Validation, op.Name, "the principal's name is %d bytes long, at most %d are allowed", len(op.Creator), MaxEntryNameBytes)
	}
	if n := s.image.TopicsOf(op.Creator); !op.Name.Internal() && n >= MaxTopicsPerPrincipal {
		return refuse(what, fault.Limit, op.Name, "%s has %d topics, which is the most that one principal may have", op.Creator, n)
	}
	assignment := op.Assignment
	if len(assignment) == 0 {
		assignment = s.spread(op.Partitions, op.Replication)
	} else if err := s.checkAssignment(what, op); err != nil {
		return Result{Err: err}
	}
	nodes, err := s.placed(what, op.Name, assignment)
	if err != nil {
		return Result{Err: err}
	}

	t := &Topic{
		Description: &topic.Description{
			Name:        op.Name,
			ID:          op.ID,
			Replication: op.Replication,
			Partitions:  newPartitions(nil, assignment),
			Overrides:   cloneOverrides(op.Overrides),
			Settings:    settings,
			CreatedAt:   op.At,
		},
		Creator: op.Creator,
		Growth:  []Growth{{Partitions: op.Partitions, Since: op.At}},
		Version: s.image.version,
	}
	s.image.nodes = nodes
	s.image.insert(t)
	return Result{Topic: t}
}

// checkCounts checks numbers of partitions and replicas.
func (s *State) checkCounts(what string, name topic.Name, partitions, replication int) error {
	switch n := s.image.nodes.count; {
	case partitions < 1:
		return fault.Newf("cluster."+what, fault.Validation, name, "partitions %d: must be at least 1", partitions)
	case partitions > MaxPartitionsPerTopic:
		return fault.Newf("cluster."+what, fault.Limit, name, "partitions %d: a topic may have at most %d", partitions, MaxPartitionsPerTopic)
	case replication < 1:
		return fault.Newf("cluster."+what, fault.Validation, name, "replication %d: must be at least 1", replication)
	case replication > n:
		return fault.Newf("cluster."+what, fault.Validation, name, "replication %d needs as many nodes, the cluster has %d", replication, n)
	}
	return nil
}

// spread chooses replicas: each partition begins one node further on, in the order of node ids, and
// each topic begins where the one before it ended.
func (s *State) spread(partitions, replication int) [][]topic.NodeID {
	nodes := s.image.Nodes()
	assignment := make([][]topic.NodeID, partitions)
	for p := range assignment {
		replicas := make([]topic.NodeID, replication)
		for r := range replicas {
			replicas[r] = nodes[(s.image.partitions+p+r)%len(nodes)].ID
		}
		assignment[p] = replicas
	}
	return assignment
}

func (s *State) checkAssignment(what string, op CreateTopic) error {
	bad := func(format string, args ...any) error {
		return fault.Newf("cluster."+what, fault.Validation, op.Name, format, args...)
	}
	if len(op.Assignment) != op.Partitions {
		return bad("the assignment lists %d partitions of %d", len(op.Assignment), op.Partitions)
	}
	for p, replicas := range op.Assignment {
		if len(replicas) != op.Replication {
			return bad("the assignment gives partition %d %d replicas instead of %d", p, len(replicas), op.Replication)
		}
		for i, n := range replicas {
			if _, ok := s.image.nodes.get(n); !ok {
				return bad("the assignment gives partition %d to node %d, which is not registered", p, n)
			}
			if slices.Contains(replicas[:i], n) {
				return bad("the assignment gives partition %d to node %d twice", p, n)
			}
		}
	}
	return nil
}

// placed returns the nodes with the replicas of an assignment counted, or a refusal.
func (s *State) placed(what string, name topic.Name, assignment [][]topic.NodeID) (table[topic.NodeID, Node], error) {
	added := map[topic.NodeID]int{}
	for _, replicas := range assignment {
		for _, n := range replicas {
			added[n]++
		}
	}
	nodes := s.image.nodes
	for _, id := range slices.Sorted(maps.Keys(added)) {
		node, _ := nodes.get(id)
		if node.Partitions += added[id]; node.Partitions > MaxPartitionsPerNode {
			return nodes, fault.Newf("cluster."+what, fault.Limit, name,
				"node %d would hold %d partitions, at most %d are allowed", id, node.Partitions, MaxPartitionsPerNode)
		}
		nodes = nodes.with(id, node)
	}
	return nodes, nil
}

// newPartitions returns old and, behind it, a partition for each row of an assignment: the first
// replica leads, and all are in sync, since there is nothing to lack yet.
func newPartitions(old []topic.PartitionDescription, assignment [][]topic.NodeID) []topic.PartitionDescription {
	partitions := make([]topic.PartitionDescription, 0, len(old)+len(assignment))
	partitions = append(partitions, old...)
	for _, replicas := range assignment {
		replicas = slices.Clone(replicas)
		partitions = append(partitions, topic.PartitionDescription{
			Partition: topic.Partition(len(partitions)),
			Leader:    replicas[0],
			Replicas:  replicas,
			InSync:    replicas,
		})
	}
	return partitions
}

// parseOverrides bounds what is kept, since a value like "delete,delete,…" can be of any length.
func parseOverrides(what string, name topic.Name, overrides map[string]string) (topic.Settings, error) {
	for _, setting := range slices.Sorted(maps.Keys(overrides)) {
		if n := len(overrides[setting]); n > MaxEntryNameBytes {
			return topic.Settings{}, fault.Newf("cluster."+what, fault.Validation, name,
				"%q: the value is %d bytes long, at most %d are allowed", shortened(setting), n, MaxEntryNameBytes)
		}
	}
	return topic.ParseSettings(overrides)
}

// cloneOverrides never returns an empty map: nil stands for it, so that a restored state is the same.
func cloneOverrides(overrides map[string]string) map[string]string {
	if len(overrides) == 0 {
		return nil
	}
	return maps.Clone(overrides)
}

func (op AlterTopic) apply(s *State) Result {
	const what = "AlterTopic"
	old, ok := s.image.TopicByID(op.ID)
	if !ok {
		return refuse(what, fault.NoTopic, op.ID, "topic %s does not exist", op.ID)
	}
	now := *old.Description
	t := &Topic{Description: &now, Creator: old.Creator, Growth: old.Growth, Version: s.image.version}
	if err := op.alterSettings(t); err != nil {
		return Result{Err: err}
	}
	nodes := s.image.nodes
	if op.Partitions != 0 && op.Partitions != len(now.Partitions) {
		var err error
		if nodes, err = op.grow(s, t); err != nil {
			return Result{Err: err}
		}
	}
	if maps.Equal(now.Overrides, old.Overrides) && len(now.Partitions) == len(old.Partitions) {
		return Result{Topic: old}
	}
	s.image.nodes = nodes
	s.image.partitions += len(now.Partitions) - len(old.Partitions)
	s.image.topics = s.image.topics.with(t.Name, t)
	return Result{Topic: t}
}

// alterSettings changes the settings of t, which is not in the image yet.
func (op AlterTopic) alterSettings(t *Topic) error {
	if len(op.Settings) == 0 {
		return nil
	}
	overrides := make(map[string]string, len(t.Overrides)+len(op.Settings))
	maps.Copy(overrides, t.Overrides)
	for _, name := range slices.Sorted(maps.Keys(op.Settings)) {
		if value := op.Settings[name]; value != nil {
			overrides[name] = *value
			continue
		}
		if !settingNames[name] {
			return fault.Newf("cluster.AlterTopic", fault.Validation, t.Name, "%q: no such setting", shortened(name))
		}
		delete(overrides, name)
	}
	settings, err := parseOverrides("AlterTopic", t.Name, overrides)
	if err != nil {
		return err
	}
	t.Settings, t.Overrides = settings, cloneOverrides(overrides)
	return nil
}

// grow adds partitions to t, which is not in the image yet.
func (op AlterTopic) grow(s *State, t *Topic) (table[topic.NodeID, Node], error) {
	const what = "AlterTopic"
	have := len(t.Partitions)
	if op.Partitions < have {
		return s.image.nodes, fault.Newf("cluster."+what, fault.Validation, t.Name,
			"partitions %d: the topic has %d, and their number can only rise", op.Partitions, have)
	}
	if err := s.checkCounts(what, t.Name, op.Partitions, t.Replication); err != nil {
		return s.image.nodes, err
	}
	assignment := s.spread(op.Partitions-have, t.Replication)
	nodes, err := s.placed(what, t.Name, assignment)
	if err != nil {
		return nodes, err
	}
	t.Partitions = newPartitions(t.Partitions, assignment)
	// A proposer's clock may be behind; the history stays in order all the same.
	since := max(op.At, t.Growth[len(t.Growth)-1].Since)
	t.Growth = append(slices.Clip(t.Growth), Growth{Partitions: op.Partitions, Since: since})
	return nodes, nil
}

func (op DeleteTopic) apply(s *State) Result {
	t, ok := s.image.TopicByID(op.ID)
	if !ok {
		return refuse("DeleteTopic", fault.NoTopic, op.ID, "topic %s does not exist", op.ID)
	}
	s.image.remove(t)
	return Result{Topic: t, deletes: true}
}

// insert adds a topic that is not there.
func (m *Image) insert(t *Topic) {
	m.topics = m.topics.with(t.Name, t)
	m.names = m.names.with(t.ID, t.Name)
	m.partitions += len(t.Partitions)
	m.count(t, 1)
}

// remove takes a topic out and remembers its id.
func (m *Image) remove(t *Topic) {
	m.forget(t)
	m.bury(t.ID, m.version)
}

// forget takes a topic out without a memory of its id.
func (m *Image) forget(t *Topic) {
	m.topics = m.topics.without(t.Name)
	m.names = m.names.without(t.ID)
	m.partitions -= len(t.Partitions)
	m.count(t, -1)
	for _, p := range t.Partitions {
		for _, id := range p.Replicas {
			node, _ := m.nodes.get(id)
			node.Partitions--
			m.nodes = m.nodes.with(id, node)
		}
	}
}

// count adds a topic to, or takes it from, those of its creator.
func (m *Image) count(t *Topic, change int) {
	if t.Name.Internal() {
		return
	}
	if n := m.TopicsOf(t.Creator) + change; n > 0 {
		m.creators = m.creators.with(t.Creator, n)
	} else {
		m.creators = m.creators.without(t.Creator)
	}
}

// bury remembers the id of a deleted topic, and forgets the one that was deleted first when there are
// too many.
func (m *Image) bury(id topic.ID, version uint64) {
	m.deleted = m.deleted.with(id, version)
	m.deletions = m.deletions.with(version, id)
	if m.deletions.count > MaxDeletedTopicsRemembered {
		first := m.deletions.chunks[0]
		m.deleted = m.deleted.without(first.values[0])
		m.deletions = m.deletions.without(first.keys[0])
	}
}
