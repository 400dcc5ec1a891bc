package broker

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlog/weir/topic"
)

// mostMeasured is how many groups have a lag of their own among the metrics, the first by name; the rest
// is counted.
const mostMeasured = 1000

// groupMetrics are the numbers of the consumer groups that a node coordinates.
type groupMetrics struct {
	rebalances    prometheus.Counter
	commits       prometheus.Counter
	commitSeconds prometheus.Histogram
	state         *groupState
}

func newGroupMetrics(n *Node) groupMetrics {
	return groupMetrics{
		rebalances: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "broker_group_rebalances_total", Help: "Changes of who reads what in a consumer group.",
		}),
		commits: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "broker_group_commits_total", Help: "Offsets that members of consumer groups committed.",
		}),
		commitSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "broker_group_commit_seconds", Help: "Time from a call that commits offsets to its acknowledgement.",
			Buckets: prometheus.ExponentialBuckets(0.000_1, 2, 17),
		}),
		state: &groupState{
			node:    n,
			groups:  prometheus.NewDesc("broker_groups", "Consumer groups that this node coordinates.", nil, nil),
			members: prometheus.NewDesc("broker_group_members", "Members of the consumer groups that this node coordinates.", nil, nil),
			lag: prometheus.NewDesc("broker_group_lag_records",
				"Records between what a consumer group has committed in a topic, or the log's start, and the end; of the first 1,000 groups by name.", []string{"group", "topic"}, nil),
			unmeasured: prometheus.NewDesc("broker_groups_unmeasured", "Consumer groups that broker_group_lag_records leaves out.", nil, nil),
		},
	}
}

// committed counts a call that committed offsets.
func (m *groupMetrics) committed(offsets int, took time.Duration) {
	m.commits.Add(float64(offsets))
	m.commitSeconds.Observe(took.Seconds())
}

// groupState is the metrics that are worked out when somebody looks.
type groupState struct {
	node                             *Node
	groups, members, lag, unmeasured *prometheus.Desc
}

// Describe is for the registry.
func (s *groupState) Describe(descriptions chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{s.groups, s.members, s.lag, s.unmeasured} {
		descriptions <- d
	}
}

// Collect is for the registry.
func (s *groupState) Collect(metrics chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	type place struct {
		name topic.GroupName
		of   *coordinator
	}
	var places []place
	var members int64
	for i := range s.node.groups.at {
		c := s.node.groups.at[i].Load()
		if c == nil {
			continue
		}
		c.each(func(one *seat) {
			if one.exists {
				places = append(places, place{one.name, c})
				members += int64(one.group.Size())
			}
		})
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.name, b.name) })
	measured := places[:min(len(places), mostMeasured)]
	for _, p := range measured {
		for _, l := range p.of.lags(p.name) {
			gauge(s.lag, l.records, string(p.name), string(l.topic))
		}
	}
	gauge(s.groups, int64(len(places)))
	gauge(s.members, members)
	gauge(s.unmeasured, int64(len(places)-len(measured)))
}

// topicLag is how far a group is behind in a topic.
type topicLag struct {
	topic   topic.Name
	records int64
}

// lags are those of a group, by topic, where they are known.
func (c *coordinator) lags(g topic.GroupName) (lags []topicLag) {
	for _, p := range c.partitionsOf(g) {
		c.node.measure(&p)
		if p.Lag < 0 {
			continue
		}
		if last := len(lags) - 1; last >= 0 && lags[last].topic == p.Path.Topic {
			lags[last].records += p.Lag
		} else {
			lags = append(lags, topicLag{p.Path.Topic, p.Lag})
		}
	}
	return lags
}

func (c *coordinator) partitionsOf(g topic.GroupName) []topic.GroupPartition {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.seats[g]
	if s == nil || c.deciding {
		return nil
	}
	return s.positions(func(topic.Ref) bool { return true })
}
