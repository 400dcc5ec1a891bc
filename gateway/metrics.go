package gateway

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of the gateway. Labels are route patterns, methods and classes of status: small fixed sets.
type metrics struct {
	requests       *prometheus.CounterVec
	seconds        *prometheus.HistogramVec
	produceSeconds prometheus.Histogram
	records        *prometheus.CounterVec
	storedRecords  prometheus.Counter // of records
	bytes          prometheus.Counter
	connections    prometheus.Gauge
	panics         prometheus.Counter
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	buckets := []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gateway_requests_total", Help: "HTTP requests, by route pattern and class of status.",
		}, []string{"method", "route", "class"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "gateway_request_seconds", Help: "Time in the handler, by route pattern; waits of long polls included.", Buckets: buckets,
		}, []string{"method", "route"}),
		produceSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "gateway_produce_seconds", Help: "Time of one append call to the node, from decoded records to results.", Buckets: buckets,
		}),
		records: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gateway_produce_records_total", Help: "Records in produce requests, by outcome.",
		}, []string{"outcome"}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "gateway_produce_bytes_total", Help: "Bytes of produce request bodies, unpacked.",
		}),
		connections: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "gateway_connections", Help: "Open connections.",
		}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "gateway_panics_total", Help: "Requests that ended in a panic: each is a defect.",
		}),
	}
	m.storedRecords = m.records.WithLabelValues("stored")
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.requests, m.seconds, m.produceSeconds, m.records, m.bytes, m.connections, m.panics} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// stored counts the outcome of one append.
func (m *metrics) stored(stored, failed int) {
	m.storedRecords.Add(float64(stored))
	if failed > 0 {
		m.records.WithLabelValues("failed").Add(float64(failed))
	}
}

// operation is one route, with its counters looked up once.
type operation struct {
	method, pattern string
	always          bool     // served however busy the node is: whoever watches over it must see that
	checked         bool     // a query may have these parameters alone
	parameters      []string // see checked
	seconds         prometheus.Observer
	classes         [6]prometheus.Counter // by the first digit of the status
}

func (s *Server) operation(method, pattern string) *operation {
	op := &operation{
		method: method, pattern: pattern, seconds: s.metrics.seconds.WithLabelValues(method, pattern),
		checked: isChecked(pattern), parameters: parametersOf(method, pattern),
	}
	for class := 1; class < len(op.classes); class++ {
		op.classes[class] = s.metrics.requests.WithLabelValues(method, pattern, strconv.Itoa(class)+"xx")
	}
	return op
}

func (op *operation) count(status int, seconds float64) {
	op.seconds.Observe(seconds)
	if class := status / 100; class > 0 && class < len(op.classes) {
		op.classes[class].Inc()
	}
}
