package broker

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlog/weir/storage"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

// metrics are the node's numbers. Without a registerer they count all the same, and nobody looks.
type metrics struct {
	appends      prometheus.Counter
	batches      prometheus.Counter
	bytes        prometheus.Counter
	syncs        prometheus.Histogram
	produce      *prometheus.HistogramVec
	produceBy    map[topic.Acks]prometheus.Observer
	coldReads    prometheus.Counter
	deletedBytes prometheus.Counter
	compactedOut prometheus.Counter
	lost         prometheus.Counter
	topics       prometheus.Gauge
	partitions   prometheus.Gauge
	inFlight     prometheus.GaugeFunc
	keys         prometheus.GaugeFunc
	keysEvicted  prometheus.CounterFunc
	openFiles    prometheus.GaugeFunc
	diskFree     prometheus.GaugeFunc
	diskTotal    prometheus.GaugeFunc
	groupMetrics
}

func newMetrics(registerer prometheus.Registerer, n *Node) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	seconds := func(name, help string) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.000_1, 2, 17)}
	}
	m := &metrics{
		appends:      counter("broker_appends_total", "Writes to logs; one serves all appends that waited."),
		batches:      counter("broker_append_batches_total", "Batches appended."),
		bytes:        counter("broker_append_bytes_total", "Bytes of batches appended."),
		syncs:        prometheus.NewHistogram(seconds("broker_sync_seconds", "Time of a sync of a log to disk.")),
		produce:      prometheus.NewHistogramVec(seconds("broker_produce_seconds", "Time from a produce call to its acknowledgement."), []string{"acks"}),
		coldReads:    counter("broker_cold_reads_total", "Reads that went to a log, not to memory."),
		deletedBytes: counter("broker_deleted_bytes_total", "Bytes of segments that retention deleted."),
		compactedOut: counter("broker_compacted_records_total", "Records that compaction removed."),
		lost:         counter("broker_damaged_logs_total", "Logs that were opened with synced records damaged or gone."),
		topics:       gauge("broker_topics", "Topics that this node knows."),
		partitions:   gauge("broker_partitions", "Partitions that are open on this node."),
		inFlight: prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "broker_in_flight_bytes", Help: "Bytes of appends between their producer and the log."},
			func() float64 { return float64(n.inFlight.used.Load()) }),
		keys: prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "broker_idempotency_keys", Help: "Idempotency keys that are remembered."},
			func() float64 { return float64(n.keys.Used()) }),
		keysEvicted: prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "broker_idempotency_keys_evicted_total", Help: "Keys forgotten before their window ended."},
			func() float64 { return float64(n.keys.EvictedTotal()) }),
		openFiles: prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "broker_open_files", Help: "Files of logs that are open."},
			func() float64 { return float64(n.files.Open()) }),
		diskFree: prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "broker_disk_free_bytes", Help: "Room on the disk of the data directory, the reserve included."},
			func() float64 { return spaceOf(n, func(s vfs.Space) int64 { return s.Free }) }),
		diskTotal: prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "broker_disk_total_bytes", Help: "Size of the disk of the data directory."},
			func() float64 { return spaceOf(n, func(s vfs.Space) int64 { return s.Total }) }),
	}
	m.groupMetrics = newGroupMetrics(n)
	m.produceBy = map[topic.Acks]prometheus.Observer{}
	for _, acks := range []topic.Acks{topic.AcksAll, topic.AcksLeader} {
		m.produceBy[acks] = m.produce.WithLabelValues(acks.String())
	}
	if registerer == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.appends, m.batches, m.bytes, m.syncs, m.produce, m.coldReads, m.deletedBytes, m.compactedOut, m.lost, m.topics, m.partitions,
		m.inFlight, m.keys, m.keysEvicted, m.openFiles, m.diskFree, m.diskTotal,
		m.rebalances, m.commits, m.commitSeconds, m.state,
	} {
		if err := registerer.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// spaceOf is a number of the disk's, or NaN when the file system does not say.
func spaceOf(n *Node, what func(vfs.Space) int64) float64 {
	space, err := n.room.Space()
	if err != nil {
		return math.NaN()
	}
	return float64(what(space))
}

func (m *metrics) appended(batches, bytes int) {
	m.appends.Inc()
	m.batches.Add(float64(batches))
	m.bytes.Add(float64(bytes))
}

func (m *metrics) synced(took time.Duration) { m.syncs.Observe(took.Seconds()) }

func (m *metrics) produced(acks topic.Acks, took time.Duration) {
	if o := m.produceBy[acks]; o != nil {
		o.Observe(took.Seconds())
	}
}

func (m *metrics) deleted(r storage.Retained) { m.deletedBytes.Add(float64(r.Bytes)) }

func (m *metrics) compacted(c storage.Compacted) { m.compactedOut.Add(float64(c.Records)) }
