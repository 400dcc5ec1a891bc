package session

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// The mouths, as labels.
const (
	mouthWebSocket = "websocket"
	mouthSSE       = "sse"
	mouthNDJSON    = "ndjson"
)

type metrics struct {
	sessions  *prometheus.GaugeVec   // by mouth
	records   *prometheus.CounterVec // by mouth
	bytes     *prometheus.CounterVec // by mouth
	cut       *prometheus.CounterVec // by reason
	refused   prometheus.Counter
	gaps      prometheus.Counter
	shared    prometheus.Counter
	encoded   prometheus.Counter
	cacheSize prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		sessions: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "session_live", Help: "Open streams.",
		}, []string{"mouth"}),
		records: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "session_records_total", Help: "Records written to streams.",
		}, []string{"mouth"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "session_bytes_total", Help: "Bytes written to streams.",
		}, []string{"mouth"}),
		cut: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "session_cut_total", Help: "Streams that the node ended.",
		}, []string{"reason"}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "session_refused_total", Help: "Streams refused because too many were open.",
		}),
		gaps: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "session_gaps_total", Help: "Gaps announced to readers.",
		}),
		shared: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "session_shared_total", Help: "Pieces of a log that a reader took from another's encoding.",
		}),
		encoded: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "session_encoded_total", Help: "Pieces of a log that were encoded.",
		}),
		cacheSize: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "session_cache_bytes", Help: "Memory of shared encodings.",
		}),
	}
	if reg == nil {
		return m, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.sessions, m.records, m.bytes, m.cut, m.refused, m.gaps, m.shared, m.encoded, m.cacheSize} {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}

func (m *metrics) live(mouth string) prometheus.Gauge { return m.sessions.WithLabelValues(mouth) }
