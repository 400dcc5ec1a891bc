package quorum

import (
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Outcomes of a proposal, as labels.
const (
	outcomeTaken   = "taken"
	outcomeRefused = "refused"  // by the rules; nothing changed
	outcomeNotSent = "not_sent" // never committed
	outcomeUnknown = "unknown"
)

type metrics struct {
	proposals *prometheus.CounterVec
	commits   prometheus.Histogram
	batches   prometheus.Histogram
	snapshots prometheus.Histogram
}

func newMetrics(registry prometheus.Registerer) *metrics {
	factory := promauto.With(registry)
	return &metrics{
		proposals: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "cluster_proposals_total", Help: "Changes of the metadata that were proposed here, by command and outcome.",
		}, []string{"command", "outcome"}),
		commits: factory.NewHistogram(prometheus.HistogramOpts{
			Name: "cluster_commit_seconds", Help: "Time to commit and apply the changes that waited together.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		batches: factory.NewHistogram(prometheus.HistogramOpts{
			Name: "cluster_commit_commands", Help: "Changes that were committed together.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 9),
		}),
		snapshots: factory.NewHistogram(prometheus.HistogramOpts{
			Name: "cluster_snapshot_seconds", Help: "Time to write a snapshot of the metadata.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 12),
		}),
	}
}

// watchNumbers adds the numbers that are read when somebody asks.
func (q *Quorum) watchNumbers(registry prometheus.Registerer) {
	factory := promauto.With(registry)
	gauge := func(name, help string, value func() float64) {
		factory.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	gauge("cluster_topics", "Topics in the metadata.", func() float64 { return float64(q.Image().TopicCount()) })
	gauge("cluster_partitions", "Partitions in the metadata.", func() float64 { return float64(q.Image().PartitionCount()) })
	gauge("cluster_version", "Commands that took part in the metadata.", func() float64 { return float64(q.Image().Version()) })
	gauge("cluster_log_bytes", "Size of raft.db, which never shrinks.", func() float64 {
		info, err := os.Stat(q.files.log)
		if err != nil {
			return 0
		}
		return float64(info.Size())
	})
	gauge("cluster_log_free_bytes", "Part of raft.db that is free to be used again.", func() float64 {
		stats := q.files.bolt.Stats()
		return float64(stats.FreeAlloc)
	})
}
